"""Which activity of a stream was the last, or the first, to be launched by some moment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.model.lookup import last_in_group
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

LONG_AGO = -(2**62)


class StreamQueues:
    """Which activity of a stream was the last, or the first, to be launched by some moment.

    Attributes:
        launch_ns: int64[m], ns, when each row and all before it in its lane had been launched.
    """

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        launched = timeline.launch_id != ABSENT
        # What the file does not see launched was launched before everything that it does.
        self.launch_ns = np.where(launched, trace.start_ns[timeline.launch_id], LONG_AGO)
        for lane in timeline.streams:
            queue = self.launch_ns[lane.first_row : lane.end_row]
            np.maximum.accumulate(queue, out=queue)
        self._lane = timeline.stream_index
        self._bounds = np.array([(x.first_row, x.end_row) for x in timeline.streams], dtype=np.intp)
        self._numbers = {
            (x.device_number, x.stream_number): i for i, x in enumerate(timeline.streams)
        }

    def find(self, device: NDArray[np.int32], stream: Int64Array) -> NDArray[np.intp]:
        """intp[k], the lane of each stream, ABSENT where it never worked."""
        streams = zip(device.tolist(), stream.tolist(), strict=True)
        return np.array([self._numbers.get(x, ABSENT) for x in streams], dtype=np.intp)

    def last_before(self, lane: NDArray[np.intp], time_ns: Int64Array) -> NDArray[np.intp]:
        """intp[k], the row of each lane that was launched last before each moment, else ABSENT."""
        return last_in_group(self._lane, self.launch_ns, lane, time_ns)

    def first_from(self, lane: NDArray[np.intp], time_ns: Int64Array) -> NDArray[np.intp]:
        """intp[k], the row of each lane launched first from each moment on, else ABSENT."""
        first, last = self._bounds[lane].T
        before = self.last_before(lane, time_ns)
        row = np.where(before == ABSENT, first, before + 1)
        return np.where((lane != ABSENT) & (row < last), row, ABSENT)
