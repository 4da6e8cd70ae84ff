"""What of a file's GPU work was launched as replays of CUDA graphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.model.driver_api import is_graph_launch
from tracelab.model.lookup import match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

_MOST = 0.5


def replayed(timeline: Timeline) -> NDArray[np.bool_]:
    """bool[m], which timeline rows are nodes of a graph that was replayed."""
    is_launched = timeline.launch_id != ABSENT
    is_replayed = match_names(timeline.trace, timeline.launch_id, is_graph_launch)
    found: NDArray[np.bool_] = is_launched & is_replayed
    return found


def mostly_replays(timeline: Timeline) -> bool:
    """Whether more than half of what the file launches is replayed: its program uses graphs."""
    launched = int((timeline.launch_id != ABSENT).sum())
    return bool(launched) and int(replayed(timeline).sum()) > _MOST * launched
