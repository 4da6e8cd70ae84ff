"""Traces with very many of something: devices, threads, copies between devices, process groups.

Each has steps of a millisecond and more, so that all that is measured per step is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from tests.build.files import Event, call, kernel, launch, operator, step
from tests.build.rows import US

_STEPS = 4


def _steps(count: int, events_of: Callable[[int, int, int], Iterator[Event]]) -> list[Event]:
    """Steps in which each of so many does something, one after the other.

    Args:
        count: of how many.
        events_of: gives the events of one of them, by its number, when it begins, in ns, and a
            correlation; it takes 10 us.
    """
    length_ns = 10 * US * (count + 100)
    events: list[Event] = []
    for number in range(_STEPS):
        begin_ns = number * length_ns
        events.append(step(number, begin_ns, begin_ns + length_ns))
        for i in range(count):
            events += events_of(i, begin_ns + 10 * US * i, 1 + number * count + i)
    return events


def _devices(i: int, begin_ns: int, correlation: int) -> Iterator[Event]:
    """A kernel on a device of its own, launched by the one thread."""
    yield operator("aten::mm", begin_ns, begin_ns + 8 * US)
    yield launch(begin_ns + US, begin_ns + 5 * US, correlation)
    yield kernel(begin_ns + 6 * US, begin_ns + 90 * US, device=i, correlation=correlation)


def _threads(i: int, begin_ns: int, correlation: int) -> Iterator[Event]:
    """A kernel of the one device, launched by a thread of its own."""
    tid = 1000 + i
    yield operator("aten::mm", begin_ns, begin_ns + 8 * US, tid=tid)
    yield launch(begin_ns + US, begin_ns + 5 * US, correlation, tid=tid)
    yield kernel(begin_ns + 6 * US, begin_ns + 9 * US, correlation=correlation)


def _waiting_threads(i: int, begin_ns: int, correlation: int) -> Iterator[Event]:
    """The same, and each thread waits for its kernel."""
    yield from _threads(i, begin_ns, 2 * correlation)
    wait = begin_ns + 8 * US, begin_ns + 10 * US
    yield call("cudaStreamSynchronize", *wait, tid=1000 + i, correlation=2 * correlation + 1)


def _peer_copies(i: int, begin_ns: int, correlation: int) -> Iterator[Event]:
    """A kernel on a device of its own, and a copy of its result to the next device."""
    yield launch(begin_ns + US, begin_ns + 2 * US, 2 * correlation)
    yield kernel(begin_ns + 3 * US, begin_ns + 9 * US, device=i, correlation=2 * correlation)
    copy = 2 * correlation + 1
    yield launch(begin_ns + 4 * US, begin_ns + 6 * US, copy, name="cudaMemcpyPeerAsync")
    yield kernel(
        begin_ns + 9 * US,
        begin_ns + 15 * US,
        "Memcpy PtoP (Device -> Device)",
        cat="gpu_memcpy",
        device=i,
        correlation=copy,
        bytes=1 << 20,
        **{"fromDevice": i, "toDevice": i + 1, "inDevice": i},
    )


def _groups(i: int, begin_ns: int, correlation: int) -> Iterator[Event]:
    """An all-reduce of a process group of its own, and a kernel beside it."""
    yield launch(begin_ns + US, begin_ns + 2 * US, 2 * correlation)
    yield kernel(begin_ns + 3 * US, begin_ns + 9 * US, correlation=2 * correlation)
    yield launch(begin_ns + 3 * US, begin_ns + 4 * US, 2 * correlation + 1)
    yield kernel(
        begin_ns + 5 * US,
        begin_ns + 12 * US,
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        stream=13,
        correlation=2 * correlation + 1,
        **{
            "Collective name": "allreduce",
            "Process Group Name": str(i),
            "Process Group Ranks": f"[{i}, {i + 1}]",
            "Group size": 2,
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "dtype": "Float",
        },
    )


_EVENTS_OF: Mapping[str, Callable[[int, int, int], Iterator[Event]]] = MappingProxyType(
    {
        "devices": _devices,
        "threads": _threads,
        "threads that wait": _waiting_threads,
        "devices with peer copies": _peer_copies,
        "process groups": _groups,
    }
)
CROWDS = tuple(_EVENTS_OF)


def crowd(name: str, count: int) -> list[Event]:
    """The events of a trace with so many of one of `CROWDS`."""
    return _steps(count, _EVENTS_OF[name])
