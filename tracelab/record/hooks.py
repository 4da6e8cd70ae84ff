"""Be told when an optimizer has stepped, a region has ended, or another profiler begins."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch.profiler
from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_post_hook


def on_profiler_session(begins: Callable[[Any], None], ends: Callable[[Any], None]) -> None:
    """Call functions before a profiler session of this process begins and as it ends, from now on.

    Args:
        begins: takes the session, a ``torch.autograd.profiler.profile``.
        ends: likewise.
    """
    session_class = torch.autograd.profiler.profile
    prepare, leave = session_class._prepare_trace, session_class.__exit__

    def prepared(session: Any) -> None:
        begins(session)
        prepare(session)

    def left(session: Any, *error: Any) -> Any:
        ends(session)
        return leave(session, *error)

    session_class._prepare_trace, session_class.__exit__ = prepared, left


def on_optimizer_step(call: Callable[[], None]) -> None:
    """Call a function after each step of the program's first optimizer, from now on.

    A program with several optimizers makes one step with each of them; when the first one is gone,
    the next to step takes its place.
    """
    first: weakref.ref[torch.optim.Optimizer] | None = None

    def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal first
        if first is None or first() is None:
            first = weakref.ref(optimizer)
        if first() is optimizer:
            call()

    register_optimizer_step_post_hook(stepped)


def on_annotation(name: str, call: Callable[[], None]) -> None:
    """Call a function whenever a region of this name (`record_function`) has ended, from now on."""
    leave = record_function.__exit__

    def left(region: record_function, *error: Any) -> None:
        leave(region, *error)
        if region.name == name:
            call()

    record_function.__exit__ = left
