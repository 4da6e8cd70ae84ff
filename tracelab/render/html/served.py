"""Traces that are served next to a page, to show them in Perfetto."""

from __future__ import annotations

from typing import Any

from tracelab.base.arrays import OneLine, dataclass

PERFETTO = "https://ui.perfetto.dev"


@dataclass(frozen=True, slots=True, repr=False)
class ServedTrace(OneLine):
    """A trace that is served beside the page, and its clock.

    Attributes:
        name: what Perfetto shows as its title.
        rank: the number of its file in the report's tables.
        url: where it is, relative to the page.
        origin_ns: its first event, ns as the file itself counts.
        start_ns, end_ns: the time that there is something in it, ns since its first event.
        clock: pairs of one moment, ns on the page's clock and since the file's first event,
            ascending, at least one; in between it passes evenly, elsewhere as fast as on the page.

    Example row: ``ServedTrace(name="step_rank0", rank=0, url="trace/0", origin_ns=5_000_000_000,
    start_ns=0, end_ns=20_000_000, clock=((0, 0),))``
    """

    name: str
    rank: int
    url: str
    origin_ns: int
    start_ns: int
    end_ns: int
    clock: tuple[tuple[int, int], ...] = ((0, 0),)


@dataclass(frozen=True, slots=True, repr=False)
class Served(OneLine):
    """The traces that are served beside a page, and the viewer that may have them.

    Example: ``Served(traces=(ServedTrace(...),))``.

    Attributes:
        traces: by rank.
        perfetto: the origin of the Perfetto UI.
    """

    traces: tuple[ServedTrace, ...]
    perfetto: str = PERFETTO

    def script_data(self) -> dict[str, Any]:
        """The same for the page's script, which knows no integers beyond 2**53."""
        traces = [
            {
                "name": trace.name,
                "rank": trace.rank,
                "url": trace.url,
                "origin": str(trace.origin_ns),
                "start": trace.start_ns,
                "end": trace.end_ns,
                "clock": trace.clock,
            }
            for trace in self.traces
        ]
        return {"perfetto": self.perfetto, "traces": traces}
