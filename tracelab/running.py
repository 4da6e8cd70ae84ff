"""Run somebody's unchanged program in this process, and be told whenever one of its steps ends.

The program runs in this process as ``python SCRIPT`` would run it, so it works under torchrun and
in a debugger. A step ends when the program's first optimizer has stepped, or where the user says.
"""

from __future__ import annotations

import ast
import functools
import importlib
import runpy
import signal
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracelab.errors import UsageError
from tracelab.signals import SIGNALLED

INTERRUPTED = SIGNALLED + signal.SIGINT
_HOOK = "__tracelab_step__"


class StopRun(SystemExit):
    """The recording is done, and the user wants the program to end there."""


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
            sys.path.insert(0, "")
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            code = _compiled(Path(target), step)
            sys.path.insert(0, str(Path(target).resolve().parent))
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

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            ended()
            return result

        return stepped

    module, colon, path = name.partition(":")
    if not colon:
        _hooks[name] = wrap
        return
    *outer, last = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for part in outer:
            owner = getattr(owner, part)
        setattr(owner, last, wrap(getattr(owner, last)))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--step-on {name}: {error}") from None


def _compiled(path: Path, step: str | None) -> types.CodeType:
    """The script's code; the function that is the step, decorated where it is defined."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    tree = ast.parse(source, filename=str(path))  # a SyntaxError is the program's own
    if step is not None and step in _hooks:
        found = _function(tree, step.split("."))
        if found is not None:
            name = ast.copy_location(ast.Name(_HOOK, ast.Load()), found)
            found.decorator_list.insert(0, name)
    return compile(tree, str(path), "exec")


def _function(tree: ast.AST, path: list[str]) -> ast.FunctionDef | None:
    """The function of this dotted name, at whatever depth its first part stands."""
    first, *rest = path
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == first:
            if not rest:
                return node if isinstance(node, ast.FunctionDef) else None
            return _function(ast.Module(node.body, []), rest)
    return None


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
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)
