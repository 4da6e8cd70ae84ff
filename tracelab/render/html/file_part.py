"""What a page needs of one file beside its report."""

from __future__ import annotations

from dataclasses import dataclass

from tracelab.base.arrays import OneLine
from tracelab.render.scene import Scene
from tracelab.report.schema import WhatIf
from tracelab.simulate.causal_profile import CausalMetrics


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FilePart(OneLine):
    """A file of a page.

    Attributes:
        scene: what its timeline shows.
        causal: what a step would take if a line, or an operator if no line is known, cost
            nothing; empty if nothing can be replayed.
        whatif: what the steps take with the fix of each finding alone, then with all of them.

    Example: ``FilePart(scene=Scene(...), causal=(), whatif=None)``.
    """

    scene: Scene
    causal: tuple[CausalMetrics, ...]
    whatif: WhatIf | None

    @property
    def path(self) -> str:
        """The file."""
        return self.scene.path
