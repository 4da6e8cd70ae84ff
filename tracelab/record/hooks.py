"""Be called when an optimizer has stepped, a function or a region has ended, a profiler begins."""

from __future__ import annotations

import functools
import importlib
import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracelab.base.errors import UsageError
from tracelab.record.pytorch import require_pytorch

if TYPE_CHECKING:
    import torch
    from torch.autograd.profiler import record_function


class MissingFunctionError(UsageError):
    """There is no function of the given name; the text begins with that name."""


def around(
    function: Callable[..., Any],
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None],
) -> Callable[..., Any]:
    """Call something before and after each call of a function.

    A coroutine or a generator ends when it is exhausted. After an exception `after` is not called.
    Within what `torch.compile` compiles neither is: they would be compiled anew for each step.
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

    When the first one is gone, the next to step takes its place.
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
