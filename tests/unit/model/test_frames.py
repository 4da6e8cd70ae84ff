"""Python functions and operators by their names."""

import pytest

from tracelab.model import frames


@pytest.mark.parametrize(
    ("test", "name", "expected"),
    [
        ("is_profiler_frame", "torch/profiler/profiler.py(884): step", True),
        ("is_profiler_frame", "torch/autograd/profiler.py(854): __enter__", False),
        ("is_wrapper", "torch/optim/optimizer.py(480): wrapper", True),
        ("is_wrapper", "tracelab/record/hooks.py(58): called", True),
        (
            "is_backward",
            "<built-in method run_backward of torch._C._EngineBase object at 0x7f>",
            True,
        ),
        ("is_thread_wait", "<built-in method acquire of _thread.lock object at 0x7f>", True),
        ("is_thread_wait", "threading.py(1087): join", True),
        ("is_thread_wait", "train.py(12): wait", False),
        ("starts_threads", "torch/nn/parallel/parallel_apply.py(31): parallel_apply", True),
        ("is_sleep", "<built-in function sleep>", True),
        ("is_sleep", "<built-in function len>", False),
        ("is_of_torch", "torch/optim/adam.py(213): step", True),
        ("is_of_torch", "train.py(3): step", False),
    ],
)
def test_examples(test, name, expected):
    assert getattr(frames, test)(name) is expected
