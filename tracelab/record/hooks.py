"""Run a program unchanged, and be called when a step, a function, a region or a session ends."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import runpy
import signal
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError, reason_of
from tracelab.record.pytorch import require_pytorch
from tracelab.system.processes import SIGNALLED

if TYPE_CHECKING:
    import torch
    from torch.autograd.profiler import record_function

_INTERRUPTED = SIGNALLED + signal.SIGINT
_HOOK = "__tracelab_step__"
# Files whose frames stand before the program's own in a traceback.
_RUNNERS = frozenset({__file__, ast.__file__, runpy.__file__, "<frozen runpy>"})


class MissingFunctionError(UsageError):
    """There is no function of the given name; the text begins with that name."""


def around(
    function: Callable[..., Any],
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None],
) -> Callable[..., Any]:
    """Call something before and after each call of a function.

    A coroutine or a generator ends when it is exhausted. `after` is not called after an exception,
    and neither is inside `torch.compile`, which would compile anew for each step.
    """
    from torch.compiler import is_compiling

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        before()
        result = await function(*args, **kwargs)
        after()
        return result

    def generated(*args: Any, **kwargs: Any) -> Any:
        before()
        result = yield from function(*args, **kwargs)
        after()
        return result

    def called(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        before()
        result = function(*args, **kwargs)
        after()
        return result

    if inspect.iscoroutinefunction(function):
        return functools.update_wrapper(awaited, function)
    if inspect.isgeneratorfunction(function):
        return functools.update_wrapper(generated, function)
    return functools.update_wrapper(called, function)


def watch_function(name: str, call: Callable[[], None]) -> None:
    """Call something after each call of ``module:function`` or ``module:Class.method``."""
    module, _, path = name.partition(":")
    *outer_names, last_name = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for outer_name in outer_names:
            owner = getattr(owner, outer_name)
        function = inspect.getattr_static(owner, last_name)
        if isinstance(function, staticmethod | classmethod):
            setattr(owner, last_name, type(function)(around(function.__func__, after=call)))
        else:
            setattr(owner, last_name, around(function, after=call))
    except (ImportError, AttributeError) as error:
        raise MissingFunctionError(f"{name}: {error}") from None


def watch_optimizer_step(call: Callable[[], None]) -> None:
    """Call something after each step of the program's first optimizer, from now on.

    When that is gone, the next to step takes its place.
    """
    require_pytorch()
    from torch.optim.optimizer import register_optimizer_step_post_hook

    first: weakref.ref[torch.optim.Optimizer] | None = None

    def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal first
        if first is None or first() is None:
            first = weakref.ref(optimizer)
        if first() is optimizer:
            call()

    register_optimizer_step_post_hook(stepped)


def watch_annotation(name: str, call: Callable[[], None]) -> None:
    """Call something whenever a region of this name (`record_function`) has ended."""
    require_pytorch()
    from torch.autograd.profiler import record_function

    leave = record_function.__exit__

    def left(region: record_function, *error: Any) -> None:
        leave(region, *error)
        if region.name == name:
            call()

    record_function.__exit__ = left


def watch_session(begins: Callable[[Any], None], ends: Callable[[Any], None]) -> None:
    """Call functions with each profiler session of this process before it begins, as it ends."""
    require_pytorch()
    import torch.profiler

    session_class = torch.autograd.profiler.profile
    prepare, leave = session_class._prepare_trace, session_class.__exit__

    def prepared(session: Any) -> None:
        begins(session)
        prepare(session)

    def left(session: Any, *error: Any) -> Any:
        ends(session)
        return leave(session, *error)

    session_class._prepare_trace, session_class.__exit__ = prepared, left


class StopRun(SystemExit):
    """The recording is done, and the user wants the program to end there."""


class StepFunction(Record):
    """A function of the program with whose end a step ends.

    Attributes:
        name: of the script, ``function`` or ``Class.method``, wrapped where the script defines it;
            or of an importable module, ``module:function`` or ``module:Class.method``. A name that
            the script does not define is no error.
        ended: called whenever the function has returned.
    """

    name: str
    ended: Callable[[], None]

    @property
    def is_in_module(self) -> bool:
        """True if the name is that of an importable module rather than of the script."""
        return ":" in self.name


def run_program(
    target: str, arguments: Sequence[str], *, as_module: bool, step: StepFunction | None = None
) -> int:
    """Run a script, or a module, as ``__main__``; return the program's exit code.

    An exception that ends it is printed as Python prints it. A step's function must be one of a
    module if the program is one.

    Raises:
        MissingFunctionError: the step's module has no such function.
        UsageError: the script cannot be read.
    """
    _import_from_folder_of(target, as_module=as_module)
    if step is not None and step.is_in_module:
        watch_function(step.name, step.ended)
    sys.argv = [target, *arguments]
    try:
        if as_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            _run_script(target, step)
    except SystemExit as end:
        return _exit_code(end)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except UsageError:
        raise
    except BaseException:
        _print_exception()
        return 1
    return 0


def _import_from_folder_of(target: str, *, as_module: bool) -> None:
    """Let imports find what stands beside the script, or in the current folder for a module."""
    folder = str(Path.cwd() if as_module else Path(target).resolve().parent)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def _run_script(target: str, step: StepFunction | None) -> None:
    code = _compiled(Path(target), step)
    main = types.ModuleType("__main__")
    main.__file__ = target
    if step is not None:
        setattr(main, _HOOK, functools.partial(around, after=step.ended))
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _compiled(path: Path, step: StepFunction | None) -> types.CodeType:
    """The script's code; the function that is the step, decorated where it is defined."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {reason_of(error)}") from None
    tree = ast.parse(source, filename=str(path))  # a SyntaxError is the program's own
    if step is not None and not step.is_in_module:
        for function in _definitions(tree, step.name.split(".")):
            # Innermost: what a static or a class method decorates is a function.
            hook = ast.copy_location(ast.Name(_HOOK, ast.Load()), function)
            function.decorator_list.append(hook)
    return compile(tree, str(path), "exec", dont_inherit=True)


def _definitions(
    tree: ast.AST, names: list[str]
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of this dotted name, at whatever depth its first part stands."""
    first, *rest = names
    for node in ast.walk(tree):
        if rest and isinstance(node, ast.ClassDef) and node.name == first:
            yield from _definitions(ast.Module(node.body, []), rest)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and [node.name] == names:
            yield node


def _exit_code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def _print_exception() -> None:
    kind, error, trace = sys.exc_info()
    assert kind is not None
    assert error is not None
    while trace is not None and trace.tb_frame.f_code.co_filename in _RUNNERS:
        trace = trace.tb_next
    sys.excepthook(kind, error.with_traceback(trace), trace)
