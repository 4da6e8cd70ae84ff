"""Python functions and operators of a trace, by their names.

The profiler writes ``train.py(12): step``, ``<built-in method item of Tensor object at 0x7f>`` and
``nn.Module: Linear_3``.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tracelab.base.arrays import Record
from tracelab.base.names import name_test

TRUTH = "__bool__"  # `if x`, `while x`, `not x`, `x and y` ...
MODULE_PREFIX = "nn.Module: "
NUMBER = "__float__"  # a number made of an object: `float(x)`, `int(x)`, `range(x)`, `y[x]` ...


# Python frames outside the user's code; files of the compiler are named by a hash.
_LIBRARY_FRAME = re.compile(
    r"^<|^nn\.Module:|^Python GC$|(?:^|/)(?:torch|numpy|scipy|PIL|site-packages|lib/python3\.\d+)/"
    r"|(?:^|/)torchinductor_[^/]+/|(?:^|/)([a-z2-7]{2})/c\1[a-z2-7]{49}\.py\("
    r"|(?:^|/)tracelab/(?:record|cli)/"
    r"|^(?:threading|runpy|contextlib|functools|os|typing|weakref|copy|pickle|queue)\.py\("
    r"|^(?:dataclasses|enum|inspect|warnings)\.py\("
    r"|^(?:json|re|collections|importlib|multiprocessing|concurrent/futures)/\w+\.py\("
    r"|^logging/(?:__init__|handlers)\.py\("
    r"|\): __torch_(?:function|dispatch)__$"
)
# Packages whose code a program calls. Engines that are started as programs do not count.
_PACKAGE_FRAME = re.compile(
    r"(?:^|/)(?:accelerate|bitsandbytes|datasets|diffusers|einops|kornia|lightning|monai|open_clip"
    r"|peft|pytorch_lightning|sentence_transformers|timm|torch_geometric|torchaudio|torchmetrics"
    r"|torchrl|torchtext|torchvision|tqdm|transformers|trl)/"
)
_OLD_NODE = re.compile(r"torch::autograd::\w+|[A-Z]\w*Backward\d*")
_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.DOTALL)
_BUILT_IN = re.compile(r"^<built-in (?:method|function) (?P<name>[^\s>]+)")
_SPECIAL_METHOD = re.compile(
    r"^<built-in method (?P<name>__\w+__) of (?P<type>\S+)(?: object)? at "
)
_MODULE = re.compile(r"^nn\.Module: (?P<name>.+?)(?:_\d+)?$")
_MODULE_FUNCTIONS = ("_wrapped_call_impl", "_call_impl")
# The recorder's `hooks.py` and `script.py` stand around the program's own code.
is_profiler_frame = name_test(
    r"(?:^|/)torch/(?:profiler/|autograd/profiler\.py\(\d+\): _(?:prepare|start)_trace$)"
    r"|(?:^|/)tracelab/record/(?:recorder|capture)\.py\("
)
is_backward = name_test(r"^<built-in (?:method|function) run_backward\b")
# PyTorch's `parallel_apply` starts the threads itself.
is_thread_wait = name_test(
    r"^<built-in method (?:acquire|join) of _thread\.\w+ object"
    r"|^<built-in method get of _queue\.SimpleQueue object"
    r"|(?:^|/)threading\.py\(\d+\): (?:join|wait|wait_for|_wait_for_tstate_lock)$"
    r"|(?:^|/)concurrent/futures/_base\.py\(\d+\): (?:result|exception|wait|as_completed)$"
    r"|(?:^|/)queue\.py\(\d+\): (?:get|put|join)$"
)
starts_threads = name_test(r"(?:^|/)torch/nn/parallel/parallel_apply\.py\(\d+\): parallel_apply$")
# A thread that sleeps neither works nor needs the GIL.
is_sleep = name_test(r"^<built-in (?:method|function) (?:sleep|poll|select|epoll|kevent|accept)\b")
is_of_torch = name_test(r"(?:^|/)torch/")
# Frames around the function that the program called, which they hide by a name of their own.
is_wrapper = name_test(
    r"(?:^|/)torch/(?:"
    r"optim/optimizer\.py\(\d+\): (?:wrapper|_use_grad)"
    r"|optim/lr_scheduler\.py\(\d+\): wrapper"
    r"|distributed/c10d_logger\.py\(\d+\): wrapper"
    r"|utils/_contextlib\.py\(\d+\): decorate_context"
    r"|nn/utils/clip_grad\.py\(\d+\): _no_grad_wrapper"
    r"|_compile\.py\(\d+\): inner"
    r"|_dynamo/eval_frame\.py\(\d+\): _fn"
    r"|_dynamo/external_utils\.py\(\d+\): \w+"
    r"|_tensor\.py\(\d+\): wrapped"
    r")$"
    r"|(?:^|/)tracelab/record/hooks\.py\(\d+\): called$"
    r"|\): __torch_(?:function|dispatch)__$"  # of a class of tensors, whoever wrote it
    r"|^<built-in (?:method|function) _disabled_torch_function_impl\b"
)

# What Python does without a call of a name shows as the operator alone.
_WITHOUT_NAME = {
    "aten::is_nonzero": (TRUTH, TRUTH),
    "aten::item": ("item", NUMBER),
    "aten::index": ("__getitem__", "__getitem__"),
    "aten::index_put_": ("__setitem__", "__setitem__"),
    "aten::add": ("__add__", "__add__"),
    "aten::add_": ("__iadd__", "__iadd__"),
    "aten::sub": ("__sub__", "__sub__"),
    "aten::sub_": ("__isub__", "__isub__"),
    "aten::mul": ("__mul__", "__mul__"),
    "aten::mul_": ("__imul__", "__imul__"),
    "aten::div": ("__truediv__", "__truediv__"),
    "aten::div_": ("__itruediv__", "__itruediv__"),
    "aten::matmul": ("__matmul__", "__matmul__"),
}


class Frame(Record):
    """A Python function of a source file, and the line at which the profiler saw it begin."""

    file: str
    line: int
    function: str


def parse_frame(name: str) -> Frame | None:
    """The function of a source file that a frame is, None for built-ins and modules."""
    match = _FRAME.match(name)
    return Frame(match["file"], int(match["line"]), match["function"]) if match else None


def called_name(frame: str) -> str:
    """The name by which the program calls what this frame is."""
    for expression in (_BUILT_IN, _MODULE, _FRAME):
        if match := expression.match(frame):
            return match["function" if expression is _FRAME else "name"]
    return frame


def called_as_shown(frame: str) -> str:
    """The report's name of a called frame: `called_name`, with the type of special methods."""
    if match := _SPECIAL_METHOD.match(frame):
        return f"{match['type'].rpartition('.')[2]}.{match['name']}"
    return called_name(frame)


def event_as_shown(name: str) -> str:
    """The report's name of any event: a built-in function without its address."""
    return called_as_shown(name) if is_built_in(name) else name


def operator_as_call(operator: str) -> tuple[str, str] | tuple[None, None]:
    """The report's name of what Python runs without a call, and its name in the source.

    Twice None for an operator that Python calls by a name.
    """
    return _WITHOUT_NAME.get(operator, (None, None))


def is_program_frame(name: str) -> bool:
    """Return True if a frame is of the program's own code."""
    return _LIBRARY_FRAME.search(name) is None


def is_own_frame(files: Collection[str], name: str) -> bool:
    """Return True if a frame outside PyTorch is of the program, not of a library that it uses.

    `files` are the source files of the program, where the recording stored them.
    """
    if not files:
        return _PACKAGE_FRAME.search(name) is None
    frame = parse_frame(name)
    return frame is not None and any(
        f"/{frame.file}".endswith(f"/{file}") or f"/{file}".endswith(f"/{frame.file}")
        for file in files
    )


def is_built_in(name: str) -> bool:
    """Return True if a frame is a built-in function."""
    return _BUILT_IN.match(name) is not None


def is_module_call(name: str) -> bool:
    """Return True if a frame is the call of a module, whose name the source does not tell."""
    return name.startswith("nn.Module:") or called_name(name) in _MODULE_FUNCTIONS


is_optimizer_step = name_test(r"^Optimizer\.step#")
# The forward pass of `nn.DataParallel`, which starts threads.
is_parallel_forward = name_test(r"^DataParallel\.forward$")


def is_source_function(name: str) -> bool:
    """Return True if a frame is a function of a source file, and no wrapper around another one."""
    return not (is_built_in(name) or is_module_call(name) or is_wrapper(name))


is_engine_operator = name_test(r"^autograd::engine::")


def is_autograd_node(name: str) -> bool:
    """True if an operator is a node of a backward pass; PyTorch 1.8 has them without its engine."""
    return is_engine_operator(name) or _OLD_NODE.fullmatch(name) is not None


is_tensor_operator = name_test(r"^aten::")
