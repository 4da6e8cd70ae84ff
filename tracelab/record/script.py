"""Run somebody's unchanged program in this process, and be told whenever one of its steps ends.

The program runs in this process as ``python SCRIPT`` would run it, so it works under torchrun and
in a debugger. A step ends when the program's first optimizer has stepped, or where the user says.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import runpy
import signal
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tracelab.errors import UsageError
from tracelab.system.signals import SIGNALLED

INTERRUPTED = SIGNALLED + signal.SIGINT
_HOOK = "__tracelab_step__"


class StopRun(SystemExit):
    """The recording is done, and the user wants the program to end there."""


def around(
    function: Callable[..., Any],
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None],
) -> Callable[..., Any]:
    """Call something before and after each call of a function; of a coroutine, when it is done."""

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
        before()
        result = function(*args, **kwargs)
        after()
        return result

    if inspect.iscoroutinefunction(function):
        return functools.update_wrapper(awaited, function)
    if inspect.isgeneratorfunction(function):
        return functools.update_wrapper(generated, function)
    return functools.update_wrapper(called, function)


def find_modules_of(target: str, *, as_module: bool) -> None:
    """Let imports find what stands beside the script, or in the current folder for a module."""
    folder = str(Path.cwd() if as_module else Path(target).resolve().parent)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def run_program(target: str, arguments: Sequence[str], *, as_module: bool, step: str | None) -> int:
    """Run a script, or a module, as ``__main__``.

    Args:
        target: the script's path, or the module's name.
        arguments: what stands behind it on the command line.
        as_module: as ``python -m`` runs it.
        step: the name of a function of the script, ``name`` or ``Class.method``, that was given to
            `hook_function`; None without one.

    Returns:
        the program's exit code. An exception that ends it is printed as Python prints it.

    Raises:
        UsageError: the script cannot be read.
    """
    sys.argv = [target, *arguments]
    try:
        if as_module:
            find_modules_of(target, as_module=True)
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            code = _compiled(Path(target), step)
            find_modules_of(target, as_module=False)
            main = types.ModuleType("__main__")
            main.__file__ = target
            setattr(main, _HOOK, _hooks.get(step or ""))
            sys.modules["__main__"] = main
            exec(code, main.__dict__)
    except SystemExit as end:
        return _exit_code(end)
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError:
        raise
    except BaseException:
        _print_exception()
        return 1
    return 0


_hooks: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {}


def hook_function(name: str, ended: Callable[[], None]) -> None:
    """Call a function whenever the function of this name has returned.

    Args:
        name: ``module:function`` or ``module:Class.method`` of an importable module, wrapped now;
            or a name of the script, wrapped where the script defines it.
        ended: what to call.

    Raises:
        UsageError: the module has no such function.
    """
    wrap = functools.partial(around, after=ended)
    module, colon, path = name.partition(":")
    if not colon:
        _hooks[name] = wrap
        return
    *outer, last = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for part in outer:
            owner = getattr(owner, part)
        found = inspect.getattr_static(owner, last)
        if isinstance(found, staticmethod | classmethod):
            setattr(owner, last, type(found)(wrap(found.__func__)))
        else:
            setattr(owner, last, wrap(found))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"`step_on` {name}: {error}", option="step_on") from None


def _compiled(path: Path, step: str | None) -> types.CodeType:
    """The script's code; the function that is the step, decorated where it is defined."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    tree = ast.parse(source, filename=str(path))  # a SyntaxError is the program's own
    if step is not None and step in _hooks:
        for found in _functions(tree, step.split(".")):
            # Innermost: what a static or a class method decorates is a function.
            found.decorator_list.append(ast.copy_location(ast.Name(_HOOK, ast.Load()), found))
    return compile(tree, str(path), "exec", dont_inherit=True)


def _functions(tree: ast.AST, path: list[str]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of this dotted name, at whatever depth its first part stands."""
    first, *rest = path
    for node in ast.walk(tree):
        if rest and isinstance(node, ast.ClassDef) and node.name == first:
            yield from _functions(ast.Module(node.body, []), rest)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and [node.name] == path:
            yield node


def _exit_code(end: SystemExit) -> int:
    """What the shell would see: nothing is success, a text is printed and is failure."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def _print_exception() -> None:
    """The traceback from the program's own first line on."""
    kind, error, trace = sys.exc_info()
    assert kind is not None
    assert error is not None
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        trace = trace.tb_next
    sys.excepthook(kind, error.with_traceback(trace), trace)
