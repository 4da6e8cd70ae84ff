"""Hand-made steps that are repeated, and what an edit makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.build import rows
from tracelab.simulate.edits import apply_edit, parse_edit
from tracelab.simulate.program import Edited, Program
from tracelab.simulate.recorded import record_program, repeat
from tracelab.simulate.replay import replay
from tracelab.simulate.sites import Sites

COUNT = 4  # steps; the first is not replayed


@dataclass(frozen=True)
class Scene:
    """A program of some steps, and its places."""

    program: Program
    sites: Sites

    def edited(self, *texts: str) -> Edited:
        """The program with some edits, one after the other; bounds are of the last."""
        edited = Edited.exactly(self.program, 0)
        for text in texts:
            edited = apply_edit(parse_edit(text), edited.program, self.sites)
        return edited

    def step_ns(self, *texts: str) -> int:
        """What a step takes with some edits."""
        return int(replay([self.program, self.edited(*texts).program]).step_ns[1])

    def bounds_ns(self, text: str) -> tuple[int, int]:
        edited = self.edited(text)
        low, high = replay([self.program, edited.low, edited.high]).step_ns[1:].tolist()
        return low, high


def scene(
    length_ns: int, of_step: Callable[[int, int], Iterable[rows.Row]], **of_trace: Any
) -> Scene:
    """Steps of one length.

    Args:
        length_ns: of the host's part of a step.
        of_step: a function of when a step begins, in ns, and of a number that is free for
            correlations up to a hundred more: the rows of that step.
        of_trace: as of `tests.build.rows.trace`.
    """
    some = []
    for number in range(COUNT):
        begin = number * length_ns
        some += [rows.step(number, begin, begin + length_ns), *of_step(begin, 100 * number)]
    graph = rows.graph(*some, **of_trace)
    program = repeat(graph, record_program(graph), 1, COUNT - 1)
    return Scene(program, Sites(graph, None, program))
