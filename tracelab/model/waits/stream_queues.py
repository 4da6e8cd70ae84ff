"""Which activity of a stream was the last, or the first, to be launched by some moment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import read_only
from tracelab.base.intervals import Int64Array
from tracelab.model.lookup import last_in_group
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

LONG_AGO = -(2**62)  # ns, when what the file does not see launched was launched


class StreamQueues:
    """Which activity of a stream was the last, or the first, to be launched by some moment.

    Attributes:
        launch_ns: int64[m], ns, when each row and all before it on its stream had been launched.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.launch_ns: Int64Array = read_only(_launch_ns(timeline))
        self._stream_index = timeline.stream_index
        bounds = [(stream.first_row, stream.end_row) for stream in timeline.streams]
        self._bounds = np.array(bounds, dtype=np.intp)
        self._index_of = {
            (stream.device_number, stream.stream_number): index
            for index, stream in enumerate(timeline.streams)
        }

    def find(self, device_number: NDArray[np.int32], stream_number: Int64Array) -> NDArray[np.intp]:
        """intp[k], index into `Timeline.streams` of each stream, ABSENT where it never worked."""
        streams = zip(device_number.tolist(), stream_number.tolist(), strict=True)
        return np.array([self._index_of.get(stream, ABSENT) for stream in streams], dtype=np.intp)

    def last_before(self, stream_index: NDArray[np.intp], time_ns: Int64Array) -> NDArray[np.intp]:
        """intp[k], the row of each stream that was launched last before each time, else ABSENT."""
        return last_in_group(self._stream_index, self.launch_ns, stream_index, time_ns)

    def first_from(self, stream_index: NDArray[np.intp], time_ns: Int64Array) -> NDArray[np.intp]:
        """intp[k], the row of each stream launched first from each time on, else ABSENT."""
        first_row, end_row = self._bounds[stream_index].T
        last_row = self.last_before(stream_index, time_ns)
        row = np.where(last_row == ABSENT, first_row, last_row + 1)
        return np.where((stream_index != ABSENT) & (row < end_row), row, ABSENT)

    def last_launch_ns(
        self, stream_index: NDArray[np.intp], time_ns: Int64Array
    ) -> NDArray[np.int64]:
        """int64[k], ns, when each stream was last given work before each time, else `LONG_AGO`."""
        row = self.last_before(stream_index, time_ns)
        return np.where(row == ABSENT, LONG_AGO, self.launch_ns[row])


def _launch_ns(timeline: Timeline) -> Int64Array:
    launched = timeline.launch_id != ABSENT
    # What the file does not see launched was launched before everything that it does.
    launch_ns = np.where(launched, timeline.trace.start_ns[timeline.launch_id], LONG_AGO)
    for stream in timeline.streams:
        queue = launch_ns[stream.first_row : stream.end_row]
        np.maximum.accumulate(queue, out=queue)
    return launch_ns
