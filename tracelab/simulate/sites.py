"""Places of the user's program as parts of a replayed one: lines, functions, operators."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial, reduce
from itertools import count
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array, Record, read_only
from tracelab.base.errors import UsageError
from tracelab.base.intervals import Intervals, gaps, join, measure_within, subtract, union
from tracelab.measures.measure import summed
from tracelab.model.frames import (
    called_as_shown,
    is_of_torch,
    is_source_function,
    is_tensor_operator,
    parse_frame,
)
from tracelab.model.graph import Graph
from tracelab.model.host import Doing, Host, ThreadState, work_at
from tracelab.model.kernel_kinds import Kind, copy_direction, is_stream_wait
from tracelab.model.latencies import launch_index, previous_index
from tracelab.model.lookup import calls_of_name, groups_of, match_names, unions
from tracelab.model.program.call_sites import CallSite, call_sites, python_frames
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category
from tracelab.simulate.program import NodeKind, Program, Via

_KERNEL, _RANK = "kernel:", "rank:"
_PAUSES = "@pauses"
REMEDY = "remedy:"  # a place of which the caller says what it is
_LINE = re.compile(r"^(?P<file>.+\.pyx?):(?P<line>\d+)$")
_NAMED = (Category.OPERATOR, Category.PYTHON, Category.ANNOTATION)


class Selection(Record, eq=False, dict=True):
    """The part of a program that a place is.

    Attributes:
        calls, activities: bool[n], host calls made there, and what they launched or whose name it
            is.
        share_of: a function that gives `host_share`; None for that of the `regions`.
        made_there: of host events (int64[k], event ids), bool[k].
        is_everywhere: whether it is all of the program.
        regions: a function that gives when each thread was there, by its index.
    """

    sites: Sites
    calls: BoolArray
    activities: BoolArray
    share_of: Callable[[], NDArray[np.float64]] | None = None
    made_there: Callable[[Int64Array], BoolArray] = partial(np.zeros_like, dtype=np.bool_)
    is_everywhere: bool = False
    regions: Callable[[], Mapping[int, Intervals]] = dict

    @cached_property
    def host_share(self) -> NDArray[np.float64]:
        """float64[e], of each edge that is host work the share done there; 0 for all others."""
        return self.sites.share_for(self.regions()) if self.share_of is None else self.share_of()

    @cached_property
    def python_share(self) -> NDArray[np.float64]:
        """float64[e], the same of what is not PyTorch's: Python, numpy, other libraries."""
        return self.sites.share_within(exclude(self.regions(), self.sites.torch_times))


class Sites:
    """Finds the nodes of places, each place once.

    Attributes:
        lines: where the source is; without it, no line is known.
        program: the program that edits start from, as well as from `loose` ones.
        remedies: host events (int64[k], event ids) by remedy id.
        first_use: host events (int64[k], event ids) that come once: no edit changes them.
        edited: results by program and edit.
        named: places that are part of another one, as of `name_events`.
    """

    def __init__(
        self,
        graph: Graph,
        lines: SourceLines | None,
        program: Program,
        loose: Sequence[Program] = (),
        remedies: Mapping[str, Int64Array] = MappingProxyType({}),
        first_use: Sequence[int] | Int64Array = (),
    ) -> None:
        self.graph, self.lines, self.program, self.remedies = graph, lines, program, remedies
        self.first_use = first_use
        self.edited: dict[Program, dict[Any, Any]] = {one: {} for one in (program, *loose)}
        self.named: dict[str, Int64Array] = {}
        self._selections: dict[str | None, Selection] = {}

    @property
    def timeline(self) -> Timeline:
        """The GPU activities of the file."""
        return self.graph.host.timeline

    def select(self, place: str | None) -> Selection:
        """The part of the program that a place is, or a `UsageError`; None is all of it."""
        if place not in self._selections:
            self._selections[place] = self._select(place)
        return self._selections[place]

    def name_events(self, place: str, what: str, event_id: Int64Array) -> str:
        """Name a place that is some calls or activities (event ids): ``train.py:40@pin-batch``."""
        texts = (f"{place}@{what}{f'-{number}' if number > 1 else ''}" for number in count(1))
        return next(
            x for x in texts if np.array_equal(self.named.setdefault(x, event_id), event_id)
        )

    def name_pauses(self, place: str) -> str:
        """Name the other work of the host that ends with a call made at some place."""
        return f"{place}{_PAUSES}"

    @cached_property
    def gap_ns(self) -> Int64Array:
        """int64[kinds, kinds], ns, typical between two activities of a stream, by their kinds."""
        kinds = np.arange(len(Kind), dtype=np.int8)
        index = previous_index(kinds[:, None], kinds[None, :])
        return self.graph.binding.latencies.typical_ns[index]

    @cached_property
    def loading_share(self) -> NDArray[np.float64]:
        """float64[e], of each edge of host work the share that loads data; 0 for all others."""
        return read_only(self.share_within(self.regions(self.graph.host.loading_id)))

    @cached_property
    def torch_times(self) -> Mapping[int, Intervals]:
        """Intervals of each thread in an operator or directly in a PyTorch function."""
        trace, frames = self.timeline.trace, python_frames(self.timeline)
        regions = dict(self.regions(trace.of_category(Category.OPERATOR)))
        is_function = frames.have_name(is_source_function)
        is_torch = np.append(frames.have_name(is_of_torch), False)
        for thread in self._python_threads:
            own = frames.entries_of(thread)
            moments_ns = np.unique(np.concatenate((frames.start_ns[own], frames.end_ns[own])))
            function = frames.around(frames.innermost_at(thread, moments_ns), is_function)
            inside = np.flatnonzero(is_torch[function[:-1]])
            of_functions = union(moments_ns[inside], moments_ns[inside + 1])
            regions[thread] = join(regions.get(thread, of_functions), of_functions)
        return regions

    @cached_property
    def other_work(self) -> BoolArray:
        """bool[e], the edges of the recorded program that are host work other than launching."""
        return read_only(other_work(self.timeline, self.program))

    @cached_property
    def first_use_share(self) -> NDArray[np.float64]:
        """float64[e], of each edge of host work the share that comes once; 0 for all others."""
        return read_only(self.share_within(self.regions(self.first_use)))

    @cached_property
    def is_first_use(self) -> BoolArray:
        """bool[n], the calls that come once, and those made in what comes once."""
        return read_only(self.inside(self.regions(self.first_use)))

    @cached_property
    def silent_shares(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """float64[e] twice: of host work the share without any event, and that without a region."""
        silent, unknown = map(self.share_within, find_silence(self.graph.host))
        return read_only(silent), read_only(unknown)

    @cached_property
    def stream_wait_id(self) -> Int64Array:
        """int64[k], event ids of the calls that make a stream wait, by start."""
        trace = self.timeline.trace
        calls = calls_of_name(trace, is_stream_wait)
        return read_only(calls[np.argsort(trace.start_ns[calls], kind="stable")].astype(np.int64))

    @cached_property
    def blocking(self) -> NDArray[np.int8]:
        """int8[n], the `Blocking` of host calls that waited for the GPU, else ABSENT."""
        blocking_calls = self.graph.host.blocking_calls
        blocking_of = np.full(len(self.timeline.trace), ABSENT, dtype=np.int8)
        blocking_of[blocking_calls.event_id] = blocking_calls.kind
        is_call = self.program.kind == NodeKind.CALL
        return read_only(np.where(is_call, blocking_of[self.program.event_id], ABSENT))

    @cached_property
    def copy_direction(self) -> NDArray[np.str_]:
        """str[n], the direction of each copy, "" for all other nodes."""
        trace = self.timeline.trace
        names = np.array([copy_direction(name) for name in trace.strings])
        is_copy = self.program.activity_kind == Kind.COPY
        return read_only(np.where(is_copy, names[trace.name_index[self.program.event_id]], ""))

    @property
    def copy_launch_ns(self) -> int:
        """Typical from the return of a copy's call to the copy, ns."""
        index = launch_index(np.array([Kind.COPY], dtype=np.int8))
        return int(self.graph.binding.latencies.typical_ns[index][0])

    @cached_property
    def copied_bytes(self) -> Int64Array:
        """int64[n], the bytes of copies and memsets; ABSENT for other nodes, or not known."""
        return np.asarray(self.timeline.trace.copied_bytes[self.program.event_id])

    @cached_property
    def is_tensor_operator(self) -> BoolArray:
        """bool[operators], which of `Timeline.operators` are PyTorch's own."""
        return read_only(self.timeline.operators.have_name(is_tensor_operator))

    @cached_property
    def is_outermost(self) -> BoolArray:
        """bool[operators], all but PyTorch's own that one of PyTorch's own calls."""
        is_tensor, parent_index = self.is_tensor_operator, self.timeline.operators.parent_index
        return read_only(~(is_tensor & (parent_index != ABSENT) & is_tensor[parent_index]))

    def operators_of(self, nodes: BoolArray) -> Int64Array:
        """int64[n], index into `Timeline.operators` of the innermost around calls, or ABSENT."""
        index = np.full(len(nodes), ABSENT, dtype=np.int64)
        index[nodes] = self.timeline.operators.innermost(self.program.event_id[nodes])
        return index

    @cached_property
    def _is_host(self) -> BoolArray:
        return read_only(np.asarray(self.program.kind != NodeKind.ACTIVITY))

    def _select(self, place: str | None) -> Selection:
        if place is None:
            return self._everything()
        for prefix, select in (
            (_KERNEL, self._select_kernels),
            (_RANK, self._select_rank),
            (REMEDY, self._select_remedy),
        ):
            if place.startswith(prefix):
                return select(place.removeprefix(prefix))
        if place in self.named:
            return self._select_these(self.named[place], place.rpartition("@")[0])
        if place.endswith(_PAUSES):
            return self._select_pauses(self.select(place.removesuffix(_PAUSES)).calls)
        return self._select_code(place)

    def _select_code(self, place: str) -> Selection:
        line = _LINE.match(place)
        if line is not None:
            file, number = line["file"], int(line["line"])
            return self._select_call_sites(lambda x: x.line == number and _is_file(x.file, file))
        function, _, called = place.rpartition(".")
        if function and not any(_is_named(x, place) for x in self.timeline.trace.strings):
            return self._select_call_sites(lambda x: (x.function, x.call) == (function, called))
        return self._select_name(place)

    # --- kinds of places ---

    def _everything(self) -> Selection:
        is_host_work = np.isin(self.program.via, (Via.HOST, Via.THREAD))
        share = is_host_work.astype(np.float64)
        made_there = partial(np.ones_like, dtype=np.bool_)
        return Selection(self, self._is_host, ~self._is_host, lambda: share, made_there, True)

    def _nothing(self) -> Selection:
        none = np.zeros(len(self.program.kind), dtype=np.bool_)
        return Selection(self, none, none)

    def _select_rank(self, rank: str) -> Selection:
        if not rank.isdecimal():
            raise UsageError(f"'{_RANK}{rank}' names no rank: write it as rank:0")
        is_rank = self.timeline.trace.info.rank == int(rank)
        return self._everything() if is_rank else self._nothing()

    def _select_kernels(self, pattern: str) -> Selection:
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{pattern!r} is not a valid regular expression: {error}") from None
        activities = ~self._is_host
        activities[activities] = match_names(
            self.timeline.trace, self.program.event_id[activities], expression.search
        )
        return self._select_these(self.program.event_id[activities])

    def _select_remedy(self, remedy: str) -> Selection:
        events = self.remedies.get(remedy)
        if events is None:
            return self._nothing()
        return self._select_inside(events, lambda calls: np.isin(calls, events))

    def _select_name(self, place: str) -> Selection:
        trace = self.timeline.trace
        events = trace.of_category(*_NAMED)
        events = events[match_names(trace, events, lambda text: _is_named(text, place))]
        return self._select_inside(
            events, lambda calls: match_names(trace, calls, lambda text: text == place)
        )

    def _select_inside(
        self, events: Int64Array, is_one: Callable[[Int64Array], BoolArray]
    ) -> Selection:
        regions = self.regions(events)
        return self._select_calls(
            lambda calls: is_one(calls) | self._are_inside(calls, regions), lambda: regions
        )

    def _select_call_sites(self, is_chosen: Callable[[CallSite], bool]) -> Selection:
        def made_there(events: Int64Array) -> BoolArray:
            sites = call_sites(self.timeline, events, self.lines)
            return np.array(list(map(cache(is_chosen), sites)), dtype=np.bool_)

        def regions() -> Mapping[int, Intervals]:
            events = self.timeline.trace.of_category(Category.OPERATOR, Category.PYTHON)
            return self.regions(events[made_there(events.astype(np.int64))])

        return self._select_calls(made_there, regions)

    def _select_these(self, event_id: Int64Array, place: str | None = None) -> Selection:
        program = self.program
        chosen, launch = np.isin(program.event_id, event_id), program.launch_node
        launched = launch[chosen & ~self._is_host]
        of_calls = np.union1d(event_id, program.event_id[launched[launched != ABSENT]])
        calls = self._is_host & np.isin(program.event_id, of_calls)
        activities = (chosen & ~self._is_host) | ((launch != ABSENT) & (chosen & calls)[launch])

        def made_there(events: Int64Array) -> BoolArray:
            return np.isin(events, of_calls)

        def regions() -> Mapping[int, Intervals]:
            return {} if place is None else self._holding(self.select(place).regions(), of_calls)

        return Selection(self, calls, activities, made_there=made_there, regions=regions)

    def _select_pauses(self, calls: BoolArray) -> Selection:
        program, none = self.program, np.zeros(len(calls), dtype=np.bool_)
        made = np.isin(program.event_id, program.event_id[calls])
        edges = np.flatnonzero(self.other_work & made[program.target])

        def regions() -> Mapping[int, Intervals]:
            of, start_ns, end_ns = stretches(self.timeline, program, edges)
            return unions(program.thread_index[program.target[edges[of]]], start_ns, end_ns)

        return Selection(self, none, none, lambda: self.share_within(regions()), regions=regions)

    def _holding(
        self, regions: Mapping[int, Intervals], calls: Int64Array
    ) -> Mapping[int, Intervals]:
        trace, held = self.timeline.trace, {}
        for thread, region in regions.items():
            own = trace.thread_index[calls] == thread
            own |= ~np.isin(trace.thread_index[calls], [*self._python_threads])
            start_ns = np.sort(trace.start_ns[calls[own]])
            first = np.searchsorted(start_ns, region.starts)
            holds = np.searchsorted(start_ns, region.ends) > first
            held[thread] = union(region.starts[holds], region.ends[holds])
        return held

    # --- calls and regions ---

    def _select_calls(
        self,
        made_there: Callable[[Int64Array], BoolArray],
        regions: Callable[[], Mapping[int, Intervals]],
    ) -> Selection:
        calls = self._is_host.copy()
        calls[calls] = made_there(self.program.event_id[calls])
        launch = self.program.launch_node
        activities = (launch != ABSENT) & calls[launch]
        return Selection(self, calls, activities, made_there=made_there, regions=regions)

    def regions(self, events: Iterable[int]) -> Mapping[int, Intervals]:
        """Return the intervals of each thread in some events (event ids)."""
        trace, chosen = self.timeline.trace, np.asarray(events, dtype=np.int64)
        return unions(trace.thread_index[chosen], trace.start_ns[chosen], trace.end_ns[chosen])

    def inside(self, regions: Mapping[int, Intervals]) -> BoolArray:
        """bool[n], the host calls that were made in some regions, or for them."""
        inside = self._is_host.copy()
        inside[inside] = self._are_inside(self.program.event_id[inside], regions)
        return inside

    def _are_inside(self, events: Int64Array, regions: Mapping[int, Intervals]) -> BoolArray:
        trace = self.timeline.trace
        inside, helped = np.zeros(len(events), dtype=np.bool_), self._add_helpers(regions)
        for thread, index in groups_of(trace.thread_index[events]):
            if thread in helped:
                start_ns = trace.start_ns[events[index]]
                inside[index] = measure_within(helped[thread], start_ns, start_ns + 1) > 0
        return inside

    def _add_helpers(self, regions: Mapping[int, Intervals]) -> Mapping[int, Intervals]:
        by_python = [region for thread, region in regions.items() if thread in self._python_threads]
        meanwhile = reduce(join, by_python, union([], []))
        helpers = {*range(len(self.timeline.trace.threads))} - self._python_threads
        joined = {x: join(regions[x], meanwhile) for x in regions.keys() & helpers}
        return {**dict.fromkeys(helpers, meanwhile), **regions, **joined}

    @cached_property
    def _python_threads(self) -> frozenset[int]:
        trace = self.timeline.trace
        return frozenset(trace.thread_index[trace.of_category(Category.PYTHON)].tolist())

    def share_for(self, regions: Mapping[int, Intervals]) -> NDArray[np.float64]:
        """float64[e], of each edge of host work the share done in some regions, or for them."""
        return self.share_within(self._add_helpers(regions))

    def share_within(self, regions: Mapping[int, Intervals]) -> NDArray[np.float64]:
        """float64[e], of each edge of host work the share in regions of either of its threads."""
        program, trace = self.program, self.timeline.trace
        share = np.zeros(len(program.via))
        edges = np.flatnonzero(np.isin(program.via, (Via.HOST, Via.THREAD)))
        of, from_ns, to_ns = stretches(self.timeline, program, edges)
        edges = edges[of]
        source, target = program.source[edges], program.target[edges]
        length_ns = np.maximum(to_ns - from_ns, 0)
        whole_ns = summed(edges, length_ns, len(share))
        distinct = [None, *dict.fromkeys(regions.values())]
        number_of = {region: number for number, region in enumerate(distinct)}
        number = np.array([number_of[regions.get(x)] for x in range(len(trace.threads))])
        between = number[program.thread_index[source]] * len(distinct)
        between += number[program.thread_index[target]]
        for pair, index in groups_of(np.where(length_ns > 0, between, ABSENT)):
            of_pair = [region for x in {*divmod(pair, len(distinct))} if (region := distinct[x])]
            if of_pair:
                region = reduce(join, of_pair)
                within_ns = measure_within(region, from_ns[index], to_ns[index])
                np.add.at(share, edges[index], within_ns / whole_ns[edges[index]])
        return share


def exclude(
    regions: Mapping[int, Intervals], others: Mapping[int, Intervals]
) -> Mapping[int, Intervals]:
    """Take others out of the regions of each thread."""
    none = union([], [])
    return {thread: subtract(own, others.get(thread, none)) for thread, own in regions.items()}


def _is_named(text: str, name: str) -> bool:
    if text == name or called_as_shown(text) == name:
        return True
    frame = parse_frame(text)
    if frame is not None:
        return frame.function == name
    return "#" in name and re.sub(r"\d+", "#", text) == name


def _is_file(recorded: str | None, file: str) -> bool:
    if recorded is None:
        return False
    parts, wanted = re.split(r"[\\/]", recorded), re.split(r"[\\/]", file)
    return parts[-len(wanted) :] == wanted


# --- host time between launches that is more than launching: no batch takes it away ---

# PyTorch takes 5 to 50 us between launches; longer stretches of its own go with a replay of these.
_LONG_NS = 200_000
# Longer than this, and the file does not say what the host did.
_LONG_UNKNOWN_NS = 1_000_000
# In a silence no thread has an event for longer than launching takes.
_MIN_SILENCE_NS = 50_000
_DOING = ("profiler", "blocked", "input", "recorded", "waiting")  # of a thread's state


def other_work(timeline: Timeline, program: Program) -> BoolArray:
    """bool[e], the long stretches between two calls in Python that is not PyTorch's."""
    edges = np.flatnonzero((program.via == Via.HOST) & (program.latency_ns >= _LONG_NS))
    of, start_ns, end_ns = stretches(timeline, program, edges)
    edges, middle_ns = edges[of], start_ns + (end_ns - start_ns) // 2
    length_ns = np.minimum(end_ns - start_ns, program.latency_ns[edges])
    work = work_at(timeline, program.thread_index[program.target[edges]], middle_ns)
    is_work = (work == Doing.OTHER) & (length_ns >= _LONG_NS)
    is_work |= (work == Doing.UNKNOWN) & (length_ns >= _LONG_UNKNOWN_NS)
    is_other = np.zeros(len(program.via), dtype=np.bool_)
    is_other[edges[is_work]] = True
    return is_other


def stretches(
    timeline: Timeline, program: Program, edges: IndexArray
) -> tuple[IndexArray, Int64Array, Int64Array]:
    """The times in the file that edges of host work are: index into them, start and end, ns.

    One from the last step to the first is the beginning of the first one, and the end of the last.
    """
    trace = timeline.trace
    begin_ns, latency_ns = trace.start_ns[program.event_id], program.latency_ns[edges]
    source, target, lag = program.source[edges], program.target[edges], program.lag[edges]
    end_ns = begin_ns[target]  # of another one from the repetition before: the time just before
    start_ns = np.where(lag == 1, end_ns - latency_ns, program.moment_ns[source])
    wraps = np.flatnonzero((lag == 1) & (program.via[edges] == Via.HOST))
    step_id = np.array([step.event_id for step in timeline.steps], dtype=np.intp)
    first, last = (
        step_id[np.searchsorted(trace.start_ns[step_id], begin_ns[of[wraps]], side="right") - 1]
        for of in (target, source)
    )
    start_ns[wraps] = trace.start_ns[first]
    since_ns, until_ns = program.moment_ns[source[wraps]], trace.end_ns[last]
    index = np.concatenate((np.arange(len(edges)), wraps))
    return index, np.append(start_ns, since_ns), np.append(end_ns, until_ns)


def find_silence(host: Host) -> tuple[Mapping[int, Intervals], Mapping[int, Intervals]]:
    """Find when the file does not say what the host did: by index into `Trace.threads`.

    Returns silence longer than launches take, or unknown; and the unknown, outside named regions.
    """
    trace = host.timeline.trace
    recorded = trace.thread_index[trace.of_category(Category.OPERATOR, Category.PYTHON)]
    is_recorded = (np.bincount(recorded, minlength=len(trace.threads)) > 0).tolist()
    all_, unknown = {}, {}
    # All that launching threads do is in the joint state: they share their silence.
    of_launching = [_silence([host.all_threads], is_recorded=known) for known in (False, True)]
    for thread, own in host.states.items():
        found = of_launching[is_recorded[thread]]
        if thread not in host.launching_threads:
            found = _silence([own, host.all_threads], is_recorded=is_recorded[thread])
        if found is not None:
            all_[thread], unknown[thread] = found
    return all_, unknown


def _silence(
    states: Sequence[ThreadState], *, is_recorded: bool
) -> tuple[Intervals, Intervals] | None:
    known = functools.reduce(join, (getattr(state, doing) for state in states for doing in _DOING))
    if not len(known):
        return None
    silent = gaps(known, int(known.starts[0]), int(known.ends[-1]))
    is_long = silent.ends - silent.starts > _MIN_SILENCE_NS
    long = Intervals(silent.starts[is_long], silent.ends[is_long])
    named = functools.reduce(join, (state.annotated for state in states))
    unknown = subtract(long if is_recorded else silent, named)
    return join(long, unknown), unknown
