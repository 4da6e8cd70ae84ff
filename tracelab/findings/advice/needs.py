"""Values that the host truly needs when it reads them.

A blocking call that reads a value for a log can be left out. One whose value decides what the
program does next is a dependency: what can change is when the value is read, where it is used,
and how much work one read serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.fed_back import fed_back
from tracelab.findings.remedy import Instead
from tracelab.model.graph import Graph
from tracelab.model.trace import ABSENT
from tracelab.simulate.waits import DECIDES, SIZED_BY_DATA


class Need(IntEnum):
    """Uses of a value by the host, as far as the file shows them."""

    NONE = 0  # nothing that the file shows
    BRANCH = 1  # it decides what the program does next: `if x`, `while x`
    SIZE = 2  # it is the size of an operator's result
    INPUT = 3  # the host computes the GPU's next input from it
    RETURNED = 4  # as many bytes are copied back at once


# Shares of the calls of a place from which a need holds for the place, or rules it out.
_MIN_SHARE, _MIN_SHARE_TO_KEEP = 0.75, 0.1

# What can be moved if no remedy knows the library that reads.
_MOVES: Mapping[Need, Instead] = MappingProxyType(
    {
        Need.SIZE: Instead(
            "The CPU needs the size of the result. If it is the same in every step, find the "
            "positions once, before the loop.",
            short="Compute this result once, before the loop, if it is the same in every step.",
        ),
        Need.BRANCH: Instead(
            "The CPU needs this value: it decides what is done next. Decide one step late, by a "
            "copy that has arrived by then, or ask only every N steps. A check in a library may "
            "have a switch.",
            short="Decide one step late: copy the value with `non_blocking=True` into pinned "
            "memory and test it in the next step. Or test it every N steps.",
        ),
    }
)


def host_needs(graph: Graph) -> NDArray[np.int8]:
    """int8[k], the `Need` for the value that each blocking call of a file waits for.

    Example: ``[Need.BRANCH, Need.NONE]``: `if loss > 3:`, and `log.append(loss.item())`.
    """
    calls, operators = graph.host.blocking_calls, graph.host.timeline.operators
    need = np.full(len(calls), Need.NONE, dtype=np.int8)
    fed = fed_back(graph)
    need[fed.is_input], need[fed.is_returned] = Need.INPUT, Need.RETURNED
    inside = operators.innermost(calls.event_id)
    for names, what in ((SIZED_BY_DATA, Need.SIZE), (DECIDES, Need.BRANCH)):
        is_named = operators.have_name(names.__contains__)
        need[operators.around(inside, is_named) != ABSENT] = what
    return need


def choose_fix(fix: Instead, needs: NDArray[np.int8]) -> Instead:
    """Choose the fix for blocking calls of one place; if the host needs their values, what to move.

    Args:
        fix: what to do about calls whose values nothing needs.
        needs: int8[k], a `Need` for each of the calls, as of `host_needs`.

    >>> choose_fix(Instead("Remove it."), np.array([Need.NONE, Need.NONE])).text
    'Remove it.'
    """
    return next((text for need, text in _MOVES.items() if _are(needs, _MIN_SHARE, need)), fix)


def cannot_go(needs: NDArray[np.int8]) -> bool:
    """Return True if the host needs the values of some blocking calls of a place.

    Without the size of a result another operator can do, and what is copied back can stay.

    Args:
        needs: int8[k], as of `choose_fix`.
    """
    return _are(needs, _MIN_SHARE_TO_KEEP, Need.BRANCH, Need.INPUT)


def is_size(needs: NDArray[np.int8]) -> bool:
    """Tell whether the host needs the values of most blocking calls of a place as sizes.

    Args:
        needs: int8[k], as of `choose_fix`.
    """
    return _are(needs, _MIN_SHARE, Need.SIZE)


def _are(needs: NDArray[np.int8], share: float, *which: Need) -> bool:
    """Return True if at least such a share of the needs are some of these."""
    return bool(len(needs)) and bool(np.isin(needs, which).mean() >= share)
