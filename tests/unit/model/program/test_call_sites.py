from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.rows import (
    AUTOGRAD,
    MAIN,
    WATCHDOG,
    annotation,
    call,
    operator,
    python,
    step,
    timeline,
    trace,
)
from tests.examples import examples
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import FileInfo

OTHER = AUTOGRAD
ITEM = "<built-in method item of Tensor object at 0x7f>"
RUN_BACKWARD = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
ENGINE = "autograd::engine::evaluate_function: MmBackward0"


def site_of(*around, start=40, end=50, thread=MAIN, lines=None, **options):
    """The call site of a call in [40, 50) amid these rows."""
    launch_row = call("cudaLaunchKernel", start, end, thread=thread)
    (site,) = call_sites(timeline(launch_row, *around, **options), np.array([0]), lines)
    return site


def nested(*names, thread=MAIN):
    """Python frames around [40, 50), the outermost first."""
    return [python(name, 1 + i, 99 - i, thread=thread) for i, name in enumerate(names)]


# The operator.


def test_call_outside_everything():
    assert site_of() == NO_CALL_SITE == CallSite(None, None, None, None, None, None)


def test_operator_is_the_one_that_the_program_called():
    # aten::item calls aten::_local_scalar_dense, which synchronises.
    site = site_of(operator("aten::item", 10, 90), operator("aten::_local_scalar_dense", 11, 89))

    assert site.operator == "aten::item"


@pytest.mark.parametrize(
    ("outer", "called"), [("MyFunctionBackward", "aten::item"), ("aten::to", "aten::to")]
)
def test_operators_around_the_called_one_are_not_called_by_the_program(outer, called):
    assert site_of(operator(outer, 10, 90), operator("aten::item", 11, 89)).operator == called


def test_old_files_write_the_step_as_an_operator():
    assert site_of(operator("ProfilerStep#5", 0, 99)) == NO_CALL_SITE


# The annotation.


def test_annotation_is_the_innermost_that_is_no_step():
    site = site_of(
        annotation("epoch", 0, 99), annotation("forward", 1, 98), step(3, 20, 80), step(4, 21, 79)
    )

    assert site == CallSite(annotation="forward")


def test_steps_of_another_name_are_no_annotation_either():
    rows = annotation("iteration 7", 0, 99), step(7, 1, 98)

    assert site_of(*rows, step_pattern="iteration") == NO_CALL_SITE
    assert site_of(*rows).annotation == "iteration #"  # else each would be a call site


# The function.


def test_function_is_the_innermost_of_the_programs_own():
    site = site_of(
        *nested(
            "<frozen runpy>(88): _run_code",
            "runpy.py(86): _run_code",
            "train.py(1): <module>",
            "src/model.py(30): forward",
            "/usr/lib/python3.11/contextlib.py(80): inner",
            "contextlib.py(80): inner",
            "nn.Module: Linear_0",
            "/usr/local/site-packages/torch/_tensor.py(10): __bool__",
            "torch/nn/modules/module.py(1): _call_impl",
            ITEM,
        )
    )

    assert (site.function, site.file) == ("forward", "src/model.py")


@pytest.mark.parametrize(
    "frame",
    [
        "<string>(1): forward",
        "nn.Module: Linear_0",
        "torch/_tensor.py(10): backward",
        "/opt/torch/_tensor.py(10): backward",
        "site-packages/numpy/core.py(3): dot",
        "/usr/local/site-packages/numpy/core.py(3): dot",
        "lib/python3.9/json/decoder.py(3): decode",
        "/usr/lib/python3.11/json/decoder.py(3): decode",
        "threading.py(10): run",
        "runpy.py(86): _run_code",
        "contextlib.py(80): inner",
        "functools.py(5): wrapper",
    ],
)
def test_frames_of_libraries_are_not_the_programs(frame):
    assert site_of(*nested("train.py(1): step", frame)).function == "step"


@pytest.mark.parametrize(
    "file",
    [
        "mytorch/model.py",
        "my-site-packages/model.py",
        "mylib/python3.11/model.py",
        "lib/model.py",
        "src/threading.py",
        "my_functools.py",
        "two\nlines.py",
    ],
)
def test_files_with_names_like_those_of_libraries_are_the_programs(file):
    site = site_of(*nested("train.py(1): step", f"{file}(30): forward"))

    assert (site.function, site.file) == ("forward", file)


def test_frames_of_another_thread_or_another_time_are_no_place():
    site = site_of(
        python("train.py(1): step", 0, 99, thread=OTHER),
        python("train.py(9): later", 50, 99),
        python("train.py(5): earlier", 0, 40),
        python("train.py(7): begins_within", 41, 99),
        python("train.py(8): ends_within", 0, 45),
        operator("aten::item", 41, 99),
        annotation("forward", 41, 99),
    )

    assert site == NO_CALL_SITE


def test_frame_of_an_unknown_form_is_no_function():
    assert site_of(python("my own mark", 0, 99)) == NO_CALL_SITE


# What it called.


@pytest.mark.parametrize(
    ("frames", "called"),
    [
        ([ITEM], "item"),
        (["<built-in function linear>"], "linear"),
        (["torch/cuda/streams.py(133): synchronize", "<built-in method x of Y>"], "synchronize"),
        (["torch/_tensor.py(590): backward", RUN_BACKWARD], "backward"),
        (["nn.Module: Linear_12", "torch/nn/modules/module.py(1): _call_impl"], "Linear"),
        (["torch/optim/optimizer.py(512): wrapper", "torch/optim/sgd.py(9): step"], "step"),
        (["torch/optim/optimizer.py(60): _use_grad", "torch/optim/sgd.py(9): step"], "step"),
        (
            [
                "torch/optim/lr_scheduler.py(137): wrapper",
                "torch/optim/lr_scheduler.py(200): step",
            ],
            "step",
        ),
        (
            [
                "torch/distributed/c10d_logger.py(83): wrapper",
                "torch/distributed/distributed_c10d.py(2800): all_reduce",
            ],
            "all_reduce",
        ),
        (
            [
                "torch/utils/_contextlib.py(115): decorate_context",
                "torch/nn/utils/clip_grad.py(29): _no_grad_wrapper",
                "torch/nn/utils/clip_grad.py(180): clip_grad_norm_",
            ],
            "clip_grad_norm_",
        ),
        (
            [
                "torch/_compile.py(32): inner",
                "torch/_dynamo/eval_frame.py(745): _fn",
                "torch/_dynamo/external_utils.py(38): nonrecursive_disable_wrapper",
                "torch/_tensor.py(30): wrapped",
                "<built-in method sum of Tensor object at 0x7f>",
            ],
            "sum",
        ),
        (
            [
                "my/tensors.py(12): __torch_function__",
                "<built-in method _disabled_torch_function_impl of type object at 0x7f>",
                "<built-in function linear>",
            ],
            "linear",
        ),
        (["tqdm/std.py(1160): __iter__", "torch/utils/data/dataloader.py(9): load"], "__iter__"),
        (["torch/optim/optimizer.py(512): wrapper"], "wrapper"),
        (["<frozen importlib>"], "<frozen importlib>"),
        ([], None),
    ],
)
def test_call_is_what_the_function_called(frames, called):
    assert site_of(*nested("train.py(1): step", *frames)).call == called


@pytest.mark.parametrize(
    ("beside", "wrapped"),
    [
        ("torch/autograd/profiler.py(854): __enter__", "torch/optim/sgd.py(9): step"),
        ("torch/autograd/profiler.py(854): __enter__", "train.py(30): step"),
        (None, "torch/optim/sgd.py(9): step"),
    ],
)
def test_what_a_wrapper_does_before_it_calls_is_done_for_what_it_calls(lines, beside, wrapped):
    wrapper = python("torch/optim/optimizer.py(512): wrapper", 20, 90)
    enter = [python(beside, 35, 55)] if beside else []
    rows = python("train.py(1): step", 0, 99), wrapper, *enter, python(wrapped, 60, 89)

    site = site_of(*rows, lines=lines)

    assert (site.function, site.call, site.line) == ("step", "step", 6)


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("aten::is_nonzero", "__bool__"),
        ("aten::item", "item"),
        ("aten::index", "__getitem__"),
        ("aten::index_put_", "__setitem__"),
        ("aten::add", "__add__"),
        ("aten::add_", "__iadd__"),
        ("aten::sub", "__sub__"),
        ("aten::sub_", "__isub__"),
        ("aten::mul", "__mul__"),
        ("aten::mul_", "__imul__"),
        ("aten::div", "__truediv__"),
        ("aten::div_", "__itruediv__"),
        ("aten::matmul", "__matmul__"),
        ("aten::lt", None),
    ],
)
def test_what_is_written_without_a_name_shows_as_the_operator_alone(name, called):
    inside = operator(name, 20, 80), operator("aten::nonzero", 21, 79)
    own = nested("train.py(1): step")

    assert site_of(*own, *inside).call == called
    assert site_of(operator("ScriptFunction", 15, 85), *own, *inside).call is None
    assert site_of(operator("MyBackward", 0, 100), *own, *inside).call == called


# The line.


@pytest.fixture
def lines(tmp_path):
    """A folder with train.py, in which every line of `step` says what it is."""
    (tmp_path / "train.py").write_text(
        "def step(x):\n"
        "    x.to(1)\n"
        "    x.to(2)\n"
        "    if x: pass\n"
        "    float(x)\n"
        "    optimizer.step(), scheduler.step()\n"
        "def evaluate(x):\n"
        "    model(x).sum()\n"
        "def train(loss):\n"
        "    loss.backward()\n"
    )
    return SourceLines([str(tmp_path)])


def to(start, end):
    return python("<built-in method to of Tensor object at 0x7f>", start, end)


def test_line_of_one_of_several_calls_of_a_name(lines):
    own = python("train.py(1): step", 0, 99)

    assert site_of(own, to(10, 20), to(30, 60), lines=lines).line == 3
    assert site_of(own, to(30, 60), to(70, 80), lines=lines).line == 2
    # A call within another call is not the function's own.
    assert (
        site_of(own, python("lib.py(1): f", 9, 21), to(10, 20), to(30, 60), lines=lines).line
        is None
    )
    assert site_of(own, to(30, 60), lines=lines).line is None


def test_calls_of_another_activation_are_not_counted(lines):
    own = python("train.py(1): step", 25, 99), python("train.py(1): step", 0, 22)

    assert site_of(*own, to(10, 20), to(30, 60), to(70, 80), lines=lines).line == 2


@pytest.mark.parametrize(("name", "line"), [("aten::is_nonzero", 4), ("aten::item", 5)])
def test_line_of_what_is_written_without_a_name(lines, name, line):
    assert site_of(*nested("train.py(1): step"), operator(name, 20, 80), lines=lines).line == line


def test_line_of_a_wrapped_call(lines):
    frames = "torch/optim/optimizer.py(512): wrapper", "torch/optim/sgd.py(9): step"

    assert site_of(*nested("train.py(1): step", *frames), lines=lines).line == 6


@pytest.mark.parametrize(
    "frame",
    [
        "nn.Module: Linear_0",
        "torch/nn/modules/module.py(1): _wrapped_call_impl",
        "torch/nn/modules/module.py(1): _call_impl",
    ],
)
def test_line_of_a_modules_call(lines, frame):
    assert site_of(*nested("train.py(7): evaluate", frame), lines=lines).line == 8


@pytest.fixture
def modules(tmp_path):
    """A folder with net.py, in which objects are called beside what has a name."""
    (tmp_path / "net.py").write_text(
        "def forward(self, x):\n"
        "    x = F.relu(self.first(x))\n"
        "    return self.second(x)\n"
        "def main():\n"
        "    for x in data:\n"
        "        loss = model(x)\n"
        "        clip(model.parameters())\n"
        "        loss.backward()\n"
        "        if done: print(float(loss), loss.item())\n"
        "def sample(x):\n"
        "    return pick(Normal(x))\n"
    )
    return SourceLines([str(tmp_path)])


def test_a_module_is_what_no_other_call_of_the_function_explains(modules):
    # The loop of main ran already when recording began, in line 8.
    main = python("net.py(8): main", 0, 99)
    rows = main, python("nn.Module: Net_0", 30, 60), python("utils.py(3): clip", 61, 63)

    backward = python("torch/_tensor.py(590): backward", 64, 70)
    assert site_of(*rows, backward, lines=modules).line == 6
    # Without the call of backward in the file it might be the object.
    assert site_of(*rows, lines=modules).line is None


def test_modules_are_called_in_the_order_of_the_source(modules):
    own = python("net.py(1): forward", 0, 99), python("<built-in function relu>", 21, 22)
    before, after = python("nn.Module: Linear_0", 10, 20), python("nn.Module: Norm_0", 60, 70)
    this = python("nn.Module: Linear_1", 30, 55)

    assert site_of(*own, before, this, lines=modules).line == 3
    assert site_of(*own, this, after, lines=modules).line == 2
    assert site_of(*own, before, this, after, lines=modules).line is None


def test_an_object_is_made_where_its_class_is_called(modules):
    rows = nested("net.py(10): sample", "torch/distributions/normal.py(5): __init__")

    assert site_of(*rows, lines=modules).line == 11


def test_a_library_is_called_where_the_program_calls_it():
    library = "nn.Module: Bert_0", "transformers/models/bert.py(50): forward", "nn.Module: Linear_7"

    site = site_of(*nested("train.py(1): step", *library))
    assert (site.function, site.file, site.call) == ("step", "train.py", "Bert")
    # Where nobody called it, it is the program itself.
    alone = site_of(*nested(*library))
    assert (alone.function, alone.file) == ("forward", "transformers/models/bert.py")


def test_where_the_sources_were_stored_all_other_code_is_a_librarys():
    rows = nested("src/train.py(1): step", "zoo/blocks.py(9): forward")
    info = FileInfo(source_scopes={"train.py": []})
    made = replace(trace(call("cudaLaunchKernel", 40, 50), *rows), info=info)

    (site,) = call_sites(build_timeline(made), np.array([0]))
    assert (site.function, site.call) == ("step", "forward")


def test_without_a_place_to_look_there_is_no_line(lines):
    rows = nested("train.py(9): train", "torch/_tensor.py(590): backward")

    assert (site_of(*rows, lines=lines).line, site_of(*rows).line) == (10, None)


# Autograd's thread runs no Python.

BACKWARD = [
    annotation("backward", 0, 99),
    *nested("train.py(9): train", "torch/_tensor.py(590): backward", RUN_BACKWARD),
]


def test_backward_pass_is_where_the_program_called_it(lines):
    inside = (
        operator(ENGINE, 10, 90, thread=AUTOGRAD),
        operator("MmBackward0", 11, 89, thread=AUTOGRAD),
        operator("aten::mm", 12, 88, thread=AUTOGRAD),
    )

    site = site_of(*BACKWARD, *inside, thread=AUTOGRAD, lines=lines)

    assert site == CallSite("aten::mm", "backward", "train", "train.py", 10, "backward")


def test_own_annotation_of_autograds_thread_comes_first():
    own = annotation("hook", 10, 90, thread=AUTOGRAD)

    assert site_of(*BACKWARD, own, thread=AUTOGRAD).annotation == "hook"


def test_autograds_thread_is_known_by_its_work_as_well():
    row = operator(ENGINE, 60, 70, thread=WATCHDOG)

    assert site_of(*BACKWARD, row, thread=WATCHDOG).function == "train"
    # However little of it is the engine's: collectives of a hook are operators of their own.
    others = [operator("c10d::allreduce_", 10 + i, 11 + i, thread=WATCHDOG) for i in range(9)]
    assert site_of(*BACKWARD, *others, row, thread=WATCHDOG).function == "train"
    assert site_of(*BACKWARD, thread=WATCHDOG) == NO_CALL_SITE


def test_python_on_autograds_thread_is_its_own_place():
    rows = nested("train.py(1): step", thread=AUTOGRAD)

    assert site_of(*BACKWARD, *rows, thread=AUTOGRAD).function == "step"


def test_outside_the_backward_pass_nobody_called():
    assert site_of(*BACKWARD, start=97, end=98, thread=AUTOGRAD) == NO_CALL_SITE


def test_innermost_built_in_must_be_the_backward_pass():
    inside = python("<built-in function sleep>", 30, 60)

    assert site_of(*BACKWARD, inside, thread=AUTOGRAD) == NO_CALL_SITE


@pytest.mark.parametrize(
    ("built_in", "function"),
    [
        (RUN_BACKWARD, "step"),
        ("<built-in function run_backward>", "step"),
        ("<built-in function run_backward_hooks>", None),
    ],
)
def test_autograds_thread_works_for_whoever_runs_the_backward_pass(built_in, function):
    rows = nested("train.py(1): step", built_in)

    assert site_of(*rows, thread=AUTOGRAD).function == function


def test_two_backward_passes_at_once_are_not_distinguished():
    other = nested("train.py(1): step", RUN_BACKWARD, thread=WATCHDOG)

    assert site_of(*BACKWARD, *other, thread=AUTOGRAD) == NO_CALL_SITE


# Many events.


def test_events_may_nest_and_repeat_and_come_in_any_order():
    rows = timeline(
        call("cudaLaunchKernel", 10, 40),
        call("cuLaunchKernel", 20, 30),
        call("cudaFree", 60, 70),
        operator("aten::mm", 5, 45),
        operator("aten::to", 50, 80),
    )

    sites = call_sites(rows, np.array([2, 1, 0, 1]))

    assert [x.operator for x in sites] == ["aten::to", "aten::mm", "aten::mm", "aten::mm"]
    assert call_sites(rows, np.array([], dtype=np.int64)) == ()


_SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 1)), min_size=1, max_size=30
)


@examples(200)
@given(_SPANS, st.integers(0, 20), st.integers(0, 5))
def test_innermost_of_any_rows_is_the_last_begun_that_holds_the_call(spans, start, length):
    rows = [
        operator(f"op{i}", min(a, b), max(a, b), thread=thread)
        for i, (a, b, thread) in enumerate(spans)
    ]

    site = site_of(*rows, start=start, end=start + length)

    around = [
        (row.start, -row.end, row.name)
        for row in rows
        if row.thread == MAIN and row.start <= start and row.end >= start + length
    ]
    innermost = max(around, default=(0, 0, None), key=lambda x: (*x[:2], int(x[2][2:])))
    assert site.operator == innermost[2]


_OWN, _LIBRARY, _WRAPPER = (
    "train.py(3): step",
    "/lib/torch/nn.py(7): relu",
    "/lib/torch/optim/optimizer.py(5): wrapper",
)
_FRAMES = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 30),
        st.sampled_from([_OWN, _LIBRARY, _WRAPPER, ITEM, "eval.py(9): test"]),
    ),
    min_size=1,
    max_size=25,
)


class _Ordinals:
    """Instead of source lines: the line is the query about the call."""

    def line_of(self, _file, _function, _first_line, called, ordinal=None, count=None, _others=()):
        return called, ordinal, count


@examples(300)
@given(_FRAMES, st.integers(0, 30), st.integers(0, 3))
def test_call_of_any_frames_is_what_the_walk_from_the_own_function_inwards_meets(
    spans, start, length
):
    rows = sorted(
        (python(name, min(a, b), max(a, b)) for a, b, name in spans),
        key=lambda x: (x.start, -x.end),
    )

    site = site_of(*rows, start=start, end=start + length, lines=_Ordinals())

    def parent(i, end):
        return next((j for j in range(i - 1, -1, -1) if rows[j].end >= end), None)

    def called(i):
        return {_LIBRARY: "relu", _WRAPPER: "wrapper", ITEM: "item"}.get(
            rows[i].name, rows[i].name.split()[-1]
        )

    stack = []
    begun = sum(row.start <= start for row in rows)
    program_row = parent(begun, start + length)
    while program_row is not None and rows[program_row].name in (_LIBRARY, _WRAPPER, ITEM):
        stack.insert(0, program_row)
        program_row = parent(program_row, rows[program_row].end)
    if program_row is None:
        assert site == NO_CALL_SITE
        return
    assert site.function == rows[program_row].name.split()[-1]
    unwrapped = [i for i in stack if rows[i].name != _WRAPPER]
    if not unwrapped:
        # Beside what a wrapper stands around, which is the longest inside it.
        around = stack[0] if stack else None
        while around is not None and rows[around].name == _WRAPPER:
            inner = [i for i in range(len(rows)) if parent(i, rows[i].end) == around]
            around = max(inner, key=lambda i: (rows[i].end - rows[i].start, i), default=None)
        wrapped = None if around is None else called(around)
        assert site.call == (wrapped or (called(stack[0]) if stack else None))
        assert site.line == (None if wrapped is None else (wrapped, None, None))
        return
    siblings = [i for i in range(len(rows)) if parent(i, rows[i].end) == program_row]
    same = [i for i in siblings if called(i) == called(unwrapped[0])]
    many = (same.index(stack[0]), len(same)) if unwrapped[0] == stack[0] else (None, None)
    assert site.call == called(unwrapped[0])
    assert site.line == (called(unwrapped[0]), *many)


# Threads of which the file has no Python: those that were started while the profiler ran.

NEW = 3
JOIN = "threading.py(1087): join"
WITH_NEW = ("thread 1 (python)", "thread 2 (pt_autograd_0)", "thread 3 (pt_nccl_watchdg)", "")


def site_of_new_thread(*around):
    """The call site of a call in [40, 50) of a thread that the file has no name for."""
    launch_row = call("cudaLaunchKernel", 40, 50, thread=NEW)
    made = build_timeline(trace(launch_row, *around, threads=WITH_NEW))
    (site,) = call_sites(made, np.array([0]))
    return site


@pytest.mark.parametrize(
    ("frames", "called", "waited_in"),
    [
        ([JOIN, "<built-in method acquire of _thread.lock object at 0x7f>"], "join", "join"),
        (
            ["concurrent/futures/_base.py(428): result", "threading.py(295): wait"],
            "result",
            "result",
        ),
        (["queue.py(154): get", "threading.py(295): wait"], "get", "get"),
        (["<built-in method join of _thread._ThreadHandle object at 0x7f>"], "join", "join"),
        (
            [
                "nn.Module: DataParallel_0",
                "torch/nn/parallel/parallel_apply.py(31): parallel_apply",
                "threading.py(973): start",
                "threading.py(637): wait",
            ],
            "DataParallel",
            "parallel_apply",
        ),
    ],
)
def test_a_thread_without_python_is_known_by_the_wait_for_it(frames, called, waited_in):
    site = site_of_new_thread(*nested("train.py(8): step", *frames))

    assert site == CallSite(function="step", file="train.py", call=called, waited_in=waited_in)


def test_without_stacks_by_the_region_of_data_parallel():
    site = site_of_new_thread(annotation("DataParallel.forward", 0, 90))

    assert site == CallSite(annotation="DataParallel.forward", waited_in="DataParallel.forward")


@pytest.mark.parametrize(
    "around",
    [
        # The program does something else.
        nested("train.py(8): step", "torch/_tensor.py(5): item"),
        # It waits at another time.
        [python("train.py(8): step", 0, 90), python(JOIN, 60, 80)],
        # A thread of a library waits for something to do.
        nested("threading.py(1002): _bootstrap", "threading.py(629): wait"),
        # Two threads wait.
        [
            *nested("train.py(8): step", JOIN),
            *nested("train.py(30): consume", "queue.py(154): get", thread=OTHER),
        ],
        # The thread has Python of its own.
        [*nested("train.py(8): step", JOIN), python("work.py(3): run", 60, 90, thread=NEW)],
    ],
)
def test_else_nothing_is_known_of_it(around):
    assert site_of_new_thread(*around) == NO_CALL_SITE


def test_a_watchdog_is_nobodys_thread():
    launch_row = call("cudaLaunchKernel", 40, 50, thread=WATCHDOG)
    made = timeline(launch_row, *nested("train.py(8): step", JOIN))

    assert call_sites(made, np.array([0])) == (NO_CALL_SITE,)
