"""Constraints: what an activity can have waited for, and the columns that hold it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import BoolArray, Int64Array


class Constraint(IntEnum):
    """Kind of wait of an activity; of several that end at one moment the first counts."""

    STREAM = 0  # the end of the activities before it in its stream
    DEPENDENT_LAUNCH = 1  # only a sign of them: programmatic dependent launch, or a graph's node
    EVENT = 2  # what its stream was made to wait for
    PEER_COPY = 3  # a copy between devices in a default stream
    LAUNCH = 4  # the host's call
    QUEUE = 5  # what shares its hardware queue or copy engine
    NO_FREE_SM = 6  # kernels of other streams, which left no multiprocessor free
    UNKNOWN = 7  # the file does not say
    CALLBACK = 8  # found by earlier versions; the key of the reports stays


class Reason(IntEnum):
    """Reason why the wait of an activity, or a device, is unknown."""

    NONE = 0
    LAUNCH_NOT_IN_FILE = 1
    HOST_NOT_RECORDED = 2
    WAIT_WITHOUT_RECORD = 3
    NOTHING_IN_THE_WAY = 4


REASONS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.LAUNCH_NOT_IN_FILE: "the launch of the next activity is not in the file",
        Reason.HOST_NOT_RECORDED: "no event says what the CPU did (record with_stack=True)",
        Reason.WAIT_WITHOUT_RECORD: "a stream waited for work of another one, and the file does "
        "not say which",
        Reason.NOTHING_IN_THE_WAY: "an activity started long after its launch, and the file shows "
        "nothing in its way: events may be missing",
    }
)


class Awaited(Arrays):
    """Waits of each row of a timeline because of stream waits and peer copies.

    Attributes:
        row: [m], the row of another stream that ended last of those, else ABSENT.
        is_inferred: whether that is inferred from the times and not recorded.
        is_peer_copy: whether it was a copy between devices, without any wait.
        after_unresolved_wait: whether its stream waited for something else before it, that neither
            the file nor the times tell.
        any_stream_waits: whether waits are in the file whose streams are not: any may be meant.
    """

    row: Int64Array
    is_inferred: BoolArray
    is_peer_copy: BoolArray
    after_unresolved_wait: BoolArray
    any_stream_waits: bool
