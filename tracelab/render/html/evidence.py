"""Where what a finding cites lies in the timeline, for the page to mark it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tracelab.base.arrays import OneLine
from tracelab.findings.finding import Finding
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


@dataclass(frozen=True, slots=True, repr=False)
class Place(OneLine):
    """Where one cited event lies.

    Attributes:
        start_ns, end_ns: ns since the file's first event.
        row: of the timeline, where it is a GPU activity, else ABSENT.
        thread_index: into `Trace.threads`, where it is one of the host's, else ABSENT.

    Example row: ``Place(start_ns=400, end_ns=900, row=ABSENT, thread_index=0)``.
    """

    start_ns: int
    end_ns: int
    row: int
    thread_index: int


def places_of_evidence(timeline: Timeline, findings: Iterable[Finding]) -> Mapping[int, Place]:
    """The place of each event that findings of the file cite, by event id."""
    trace = timeline.trace
    cited = dict.fromkeys(event_id for finding in findings for event_id in finding.evidence)
    event_id = np.array(list(cited), dtype=np.int64)
    is_activity = np.isin(timeline.event_id, event_id)
    row_of = dict(
        zip(
            timeline.event_id[is_activity].tolist(),
            np.flatnonzero(is_activity).tolist(),
            strict=True,
        )
    )
    return {
        one: Place(
            start_ns=int(trace.start_ns[one]),
            end_ns=int(trace.end_ns[one]),
            row=row_of.get(one, ABSENT),
            thread_index=ABSENT if one in row_of else int(trace.thread_index[one]),
        )
        for one in cited
    }
