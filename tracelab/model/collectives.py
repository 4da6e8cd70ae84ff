"""Communication in a file: operations, process groups, sizes and peers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import IntEnum
from typing import Any

import numpy as np

from tracelab.base.arrays import (
    Arrays,
    BoolArray,
    IndexArray,
    Int8Array,
    Int32Array,
    Int64Array,
    IntArray,
    Record,
)
from tracelab.base.names import qualified_name
from tracelab.model.kernel_kinds import Kind, is_graph_launch
from tracelab.model.lookup import Nesting, groups_of, map_names, match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, COLLECTIVE_OPERATOR, Category, GroupText, Trace


class Operation(IntEnum):
    """Operation of a communication."""

    ALL_REDUCE = 0
    ALL_GATHER = 1
    REDUCE_SCATTER = 2
    BROADCAST = 3
    REDUCE = 4
    GATHER = 5
    SCATTER = 6
    ALL_TO_ALL = 7
    BARRIER = 8
    SEND = 9
    RECV = 10
    SEND_RECV = 11  # a kernel that sends or receives, of which nothing more is known
    UNKNOWN = 12


POINT_TO_POINT = (Operation.SEND, Operation.RECV)

# The first that is found in the letters of a name; "_allgather_base" has those of "allgather".
_LETTERS = {
    "barrier": Operation.BARRIER,
    "sendrecv": Operation.SEND_RECV,
    "allreduce": Operation.ALL_REDUCE,
    "crossdevicereduce": Operation.ALL_REDUCE,
    "allgather": Operation.ALL_GATHER,
    "reducescatter": Operation.REDUCE_SCATTER,
    "alltoall": Operation.ALL_TO_ALL,
    "all2all": Operation.ALL_TO_ALL,
}
# Of kernels only in the names of NCCL's: others may reduce or gather without any peer.
_LETTERS_OF_LIBRARY = {
    "broadcast": Operation.BROADCAST,
    "reduce": Operation.REDUCE,
    "gather": Operation.GATHER,
    "scatter": Operation.SCATTER,
    "send": Operation.SEND,
    "recv": Operation.RECV,
}
_LIBRARY = re.compile("nccl|rccl", re.IGNORECASE)
# A larger number in a file is damage.
_MAX_GROUP_RANKS = 2**20
_REGION = re.compile("c10d::|nccl:")  # PyTorch's operators and annotations around operations
# What a kernel of NCCL's may do: its name is that of the way in which the data move.
_DONE_BY = {
    Operation.ALL_REDUCE: (Operation.ALL_REDUCE, Operation.BARRIER),
    Operation.BROADCAST: (Operation.BROADCAST, Operation.ALL_GATHER),
    Operation.REDUCE: (Operation.REDUCE, Operation.REDUCE_SCATTER),
    Operation.SEND_RECV: tuple(
        Operation[name]
        for name in ("SEND", "RECV", "ALL_TO_ALL", "GATHER", "SCATTER", "ALL_GATHER")
    ),
    Operation.UNKNOWN: tuple(Operation),
}


class Group(Record):
    """A process group: its name in the file or "", its global ranks and size as far as known."""

    name: str
    ranks: tuple[int, ...]
    size: int | None


class Collectives(Arrays):
    """The communication operations of one file, c of them, by the start of their kernels.

    Operations in one kernel, which sends and receives, have the same `row`. Coalesced collectives
    of the same sort and group are one.

    Attributes:
        row: [c], the timeline's row of the kernel, whose start and end are the operation's.
        operation: an `Operation`.
        sequence: the number of the operation in its group, else ABSENT.
        peer_rank: the global rank that is sent to or received from, else ABSENT.
        in_bytes, out_bytes: what this rank gives and gets, else ABSENT; of sends and receives both
            are the message.
        operator_id: event id of the `COLLECTIVE_OPERATOR` that issued it, else ABSENT.
    """

    row: IndexArray
    operation: Int8Array
    group_index: Int32Array
    sequence: Int64Array
    peer_rank: Int64Array
    in_bytes: Int64Array
    out_bytes: Int64Array
    operator_id: Int64Array
    groups: tuple[Group, ...]

    def __len__(self) -> int:
        return len(self.row)


def collectives(timeline: Timeline) -> Collectives:
    """Find the communication operations of a file."""
    trace = timeline.trace
    rows = np.flatnonzero(timeline.kind == Kind.COMM)
    launch_id = _single_launches(timeline, rows)
    operators = _Operators(trace)
    around_index = operators.nesting.innermost(launch_id)
    around_index[launch_id == ABSENT] = ABSENT
    by_kernel = _operations_of_kernels(timeline, rows, launch_id)

    kernel_index, operator_index = _coalesced(operators, launch_id, around_index, by_kernel, trace)
    single = np.setdiff1d(np.arange(len(rows)), kernel_index)
    kernel_index = np.concatenate((kernel_index, single))
    operator_index = np.concatenate((operator_index, around_index[single]))

    is_issued = operator_index != ABSENT
    operator_id = np.full(len(kernel_index), ABSENT, dtype=np.int64)
    operator_id[is_issued] = operators.nesting.event_id[operator_index[is_issued]]
    message_row = trace.message_row[timeline.event_id[rows[kernel_index]]]
    of_operator = trace.message_row[operator_id]
    has_operator = is_issued & (of_operator != ABSENT)
    message_row = np.where(has_operator, of_operator, message_row)

    operation = by_kernel[kernel_index]
    by_message = _operations_of_names(trace.messages.names)[trace.messages.name_index[message_row]]
    operation = np.where(by_message != Operation.UNKNOWN, by_message, operation)
    by_operator = operators.operation[operator_index[is_issued]]
    is_known = by_operator != Operation.UNKNOWN
    operation[np.flatnonzero(is_issued)[is_known]] = by_operator[is_known]

    groups, group_index = _groups(trace, message_row)
    messages = trace.messages
    found = Collectives(
        row=rows[kernel_index],
        operation=operation.astype(np.int8),
        group_index=group_index,
        sequence=messages.sequence[message_row],
        peer_rank=np.where(
            np.isin(operation, POINT_TO_POINT), messages.peer_rank[message_row], ABSENT
        ),
        in_bytes=messages.in_bytes[message_row],
        out_bytes=messages.out_bytes[message_row],
        operator_id=operator_id,
        groups=groups,
    )
    return _joined(timeline, found)


class _Operators:
    def __init__(self, trace: Trace) -> None:
        operator_id = trace.of_category(Category.OPERATOR)
        operator_id = operator_id[match_names(trace, operator_id, COLLECTIVE_OPERATOR.__eq__)]
        self.nesting = Nesting(trace, operator_id)
        event_id = self.nesting.event_id
        messages, message_row = trace.messages, trace.message_row[self.nesting.event_id]
        name_index = messages.name_index[message_row]
        operation = _operations_of_names(messages.names)[name_index]
        unnamed = np.flatnonzero(name_index == ABSENT)
        operation[unnamed] = _operations_of_regions(trace, event_id[unnamed])
        self.operation = operation
        self.group_index = messages.group_index[message_row]


def _single_launches(timeline: Timeline, rows: IndexArray) -> Int64Array:
    """The call that launched just this kernel; ABSENT for none or a graph."""
    launch_id = timeline.launch_id[rows].copy()
    launched = np.flatnonzero(launch_id != ABSENT)
    is_replay = match_names(timeline.trace, launch_id[launched], is_graph_launch)
    launch_id[launched[is_replay]] = ABSENT
    return launch_id


def _coalesced(
    operators: _Operators,
    launch_id: Int64Array,
    around_index: Int64Array,
    by_kernel: Int8Array,
    trace: Trace,
) -> tuple[IndexArray, Int64Array]:
    # An operator that launches nothing itself belongs to the next launch of communication on its
    # thread, unless that one has an operator of its own. All of a launch are of one group.
    nesting = operators.nesting
    issues = operators.operation != Operation.UNKNOWN
    issues[around_index[around_index != ABSENT]] = False
    launched = np.flatnonzero(launch_id != ABSENT)
    launched = launched[np.argsort(trace.start_ns[launch_id[launched]], kind="stable")]
    thread_index = trace.thread_index[launch_id[launched]]
    kernel_index = np.full(len(issues), ABSENT, dtype=np.intp)
    for thread, of_thread in groups_of(thread_index):
        kernels = launched[of_thread]
        own = np.arange(len(issues))[nesting.entries_of(thread)]
        own = own[issues[own]]
        start_ns = trace.start_ns[launch_id[kernels]]
        following = np.searchsorted(start_ns, nesting.end_ns[own])
        own, following = own[following < len(kernels)], following[following < len(kernels)]
        kernel_index[own] = kernels[following]
    operator_index = np.flatnonzero(kernel_index != ABSENT)
    kernel_index = kernel_index[operator_index]
    fits = _can_do()[by_kernel[kernel_index], operators.operation[operator_index]]
    fits &= around_index[kernel_index] == ABSENT
    kernel_index, operator_index = kernel_index[fits], operator_index[fits]
    group_index = operators.group_index[operator_index]
    last_group = np.full(len(launch_id), ABSENT, dtype=np.int32)
    last_group[kernel_index] = group_index  # by issue, so that the last one stays
    is_of_group = group_index == last_group[kernel_index]
    return kernel_index[is_of_group], operator_index[is_of_group].astype(np.int64)


def _can_do() -> BoolArray:
    can_do = np.eye(len(Operation), dtype=np.bool_)
    for by_name, done in _DONE_BY.items():
        can_do[by_name, list(done)] = True
    return can_do


def _operations_of_kernels(
    timeline: Timeline, rows: IndexArray, launch_id: Int64Array
) -> Int8Array:
    trace = timeline.trace
    operation = np.full(len(rows), Operation.UNKNOWN, dtype=np.int8)
    launched = np.flatnonzero(launch_id != ABSENT)
    operation[launched] = _operations_of_regions(trace, launch_id[launched])
    open_ = np.flatnonzero(operation == Operation.UNKNOWN)
    kernel_id = timeline.event_id[rows[open_]]
    operation[open_] = map_names(trace, kernel_id, _operation_of_kernel, np.int8)
    return operation


def _operations_of_regions(trace: Trace, event_id: Int64Array) -> Int8Array:
    operation = np.full(len(event_id), Operation.UNKNOWN, dtype=np.int8)
    if not len(event_id):
        return operation
    region_id = trace.of_category(Category.OPERATOR, Category.ANNOTATION)
    region_id = region_id[match_names(trace, region_id, _REGION.match)]
    regions = Nesting(trace, region_id)
    of_region = map_names(trace, regions.event_id, operation_of, np.int8)
    index = regions.around(regions.innermost(event_id), of_region != Operation.UNKNOWN)
    operation[index != ABSENT] = of_region[index[index != ABSENT]]
    return operation


def _operations_of_names(names: Iterable[str]) -> Int8Array:
    return np.array([*map(operation_of, names), Operation.UNKNOWN], dtype=np.int8)


def operation_of(name: str) -> Operation:
    """The operation that an operator, an annotation or an argument names."""
    letters = re.sub("[^a-z2]", "", name.lower())
    known = _LETTERS | _LETTERS_OF_LIBRARY
    return next((known[word] for word in known if word in letters), Operation.UNKNOWN)


def _operation_of_kernel(name: str) -> Operation:
    own_name = qualified_name(name) or name
    operation = operation_of(own_name)
    is_of_library = operation not in _LETTERS_OF_LIBRARY.values() or _LIBRARY.search(own_name)
    return operation if is_of_library else Operation.UNKNOWN


def _groups(trace: Trace, message_row: IntArray) -> tuple[tuple[Group, ...], Int32Array]:
    texts = (*trace.messages.groups, GroupText("", "", ABSENT, ABSENT, ABSENT))
    text_index = trace.messages.group_index[message_row]
    text_index[text_index == ABSENT] = len(texts) - 1
    by_name: dict[str, list[GroupText]] = {}
    for index in np.unique(text_index).tolist():
        by_name.setdefault(texts[index].name, []).append(texts[index])
    listed = _listed_ranks(trace.metadata)
    groups = tuple(_group(name, same, listed.get(name, ())) for name, same in by_name.items())
    positions = {name: position for position, name in enumerate(by_name)}
    of_text = np.array([positions.get(text.name, ABSENT) for text in texts], dtype=np.int32)
    return groups, of_text[text_index]


def _group(name: str, texts: list[GroupText], listed: tuple[int, ...]) -> Group:
    """The group that some texts describe; ranks that they leave out come from elsewhere."""
    size = max(text.size for text in texts)
    first_ranks = max((_numbers(text.ranks) for text in texts), key=len)
    whole = [_numbers(text.ranks) for text in texts if not text.ranks.endswith("...]")]
    regular = [
        tuple(range(text.first_rank, text.first_rank + size * text.rank_stride, text.rank_stride))
        for text in texts
        if 0 < size <= _MAX_GROUP_RANKS and text.first_rank != ABSENT and text.rank_stride > 0
    ]
    fitting = (
        ranks
        for ranks in (*whole, listed, *regular)
        if ranks and ranks[: len(first_ranks)] == first_ranks and size in (ABSENT, len(ranks))
    )
    ranks = next(fitting, ())
    return Group(name, ranks, len(ranks) or (None if size == ABSENT else size))


def _listed_ranks(metadata: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    job = metadata.get("distributedInfo")
    listed = job.get("pg_config") if isinstance(job, dict) else None
    return {
        str(group.get("pg_name")): _numbers(str(group.get("ranks")))
        for group in (listed if isinstance(listed, list) else ())
        if isinstance(group, dict) and "..." not in str(group.get("ranks"))
    }


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,18}", text)))


def _joined(timeline: Timeline, found: Collectives) -> Collectives:
    operation, row = found.operation, found.row
    alone = np.isin(operation, POINT_TO_POINT)
    own = np.where(alone, np.arange(len(row)), ABSENT)
    keys = np.stack((row, operation, found.group_index, own), axis=1)
    _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    columns = {
        field.name: getattr(found, field.name)[first]
        for field in fields(found)
        if field.name != "groups"
    }
    for name in ("in_bytes", "out_bytes"):
        single, total = getattr(found, name), np.zeros(len(first), dtype=np.int64)
        np.add.at(total, index.reshape(-1), single)
        total[index.reshape(-1)[single == ABSENT]] = ABSENT
        columns[name] = total
    issued_ns = timeline.trace.start_ns[columns["operator_id"]]
    order = np.lexsort((issued_ns, columns["row"], timeline.start_ns[columns["row"]]))
    ordered = {name: column[order] for name, column in columns.items()}
    return Collectives(**ordered, groups=found.groups)
