"""Call sites of host events in the user's program: operator, function, call and line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np

from tracelab.base.arrays import (
    Arrays,
    BoolArray,
    IndexArray,
    Int32Array,
    Int64Array,
    IntArray,
    Record,
)
from tracelab.base.intervals import Intervals
from tracelab.model.blocking_calls import watchdog_threads
from tracelab.model.frames import (
    Frame,
    called_as_shown,
    called_name,
    is_autograd_node,
    is_backward,
    is_built_in,
    is_module_call,
    is_own_frame,
    is_parallel_forward,
    is_program_frame,
    is_tensor_operator,
    is_thread_wait,
    is_wrapper,
    operator_as_call,
    parse_frame,
    starts_threads,
)
from tracelab.model.lookup import Nesting, unions
from tracelab.model.program.source_lines import MODULE_CALL, SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category


class CallSite(Record):
    """Place of a call in the program, as far as the trace and the source say.

    Attributes:
        operator: the operator that the program called, None outside any.
        annotation: the innermost region that the user or a library named, other than a step;
            numbers in its name are written #.
        function, file: the innermost Python function of the program's own code, and its file.
        call: what that function called there: "item", "Linear" for a module, or "__bool__" and the
            like for what is written without a name.
        line: the line of that call, None where the source does not say it for certain.
        waited_in: of a thread without any function in the file, in what the thread of the other
            fields waited for it, such as "join"; else None.
    """

    operator: str | None = None
    annotation: str | None = None
    function: str | None = None
    file: str | None = None
    line: int | None = None
    call: str | None = None
    waited_in: str | None = None


NO_CALL_SITE = CallSite()


def call_sites(
    timeline: Timeline, events: IntArray, lines: SourceLines | None = None
) -> tuple[CallSite, ...]:
    """Say where in the program each of these host events was made; without `lines`, no line."""
    return _locator(timeline).call_sites(np.asarray(events, dtype=np.int64), lines)


def calling_threads(timeline: Timeline, events: IntArray) -> Int64Array:
    """[k], the threads whose Python made the host events of threads without any, else ABSENT."""
    return _locator(timeline).calling_threads(np.asarray(events, dtype=np.int64))


def regions_around(timeline: Timeline, regions: Nesting, events: IntArray) -> Int64Array:
    """[k], the innermost region around each event, of its thread or its caller's."""
    event_id = np.asarray(events, dtype=np.int64)
    index, caller = regions.innermost(event_id), calling_threads(timeline, event_id)
    return np.where(index == ABSENT, regions.innermost_on(caller, event_id), index)


def waiting_threads(timeline: Timeline, events: IntArray) -> Int64Array:
    """[k], the thread that waited when a thread without Python made each event, else ABSENT.

    Those are threads that were started while the profiler ran, and none of autograd's.
    """
    return _locator(timeline).waiting_threads(np.asarray(events, dtype=np.int64))


def python_frames(timeline: Timeline) -> Nesting:
    """The Python functions of every thread as trees."""
    return _locator(timeline).frames


def _locator(timeline: Timeline) -> _Locator:
    if timeline not in _LOCATORS:
        _LOCATORS[timeline] = _Locator(timeline)
    return _LOCATORS[timeline]


def program_calls(timeline: Timeline) -> ProgramCalls:
    """The calls of the program's own code, as far as the file has Python stacks."""
    return _locator(timeline).program_calls()


def program_functions(timeline: Timeline) -> tuple[ProgramFunction, ...]:
    """The functions of the program's own code that a file has, with what they call."""
    return _locator(timeline).program_functions


class ProgramFunction(Record):
    """A function of the program's own code as the file names it, and all that it called.

    Attributes:
        frame: its file and name, and the line at which it was entered or went on.
        calls: each as `CallSite.call`, and its name in the source; of other functions of the
            program only those that something stands around.
        others: the names of what it calls besides modules.
        was_entered: whether the file has its beginning; else it ran when recording began.
    """

    frame: Frame
    calls: frozenset[tuple[str, str]]
    others: frozenset[str]
    was_entered: bool


class ProgramCalls(Arrays):
    """The functions of the program's own code, and what they call.

    `event_id` ([c]) has also the functions of others and the operators that they call, `site_id`
    the event whose call site is that of each, `backward` per thread its backward passes.
    """

    event_id: Int64Array
    site_id: Int64Array
    backward: Mapping[int, Intervals]
    autograd_threads: Int32Array


class _Locator:
    """Finds call sites; what many events share is worked out once.

    An operator, an annotation or a frame is given by its index in its `Nesting`, a name by its
    index in `Trace.strings`; ABSENT for none.
    """

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        self._trace = trace
        self._operators = timeline.operators
        self._annotations = Nesting(trace, timeline.ids_except_steps(Category.ANNOTATION))
        self.frames = Nesting(trace, trace.of_category(Category.PYTHON))
        self._is_parallel = self._annotations.have_name(is_parallel_forward)
        self._named = cache(self.frames.have_name)
        self._called_name = cache(called_name)
        self._source_files = tuple(trace.info.source_scopes)

    def calling_threads(self, events: Int64Array) -> Int64Array:
        return self._callers(events, self.frames.innermost(events))

    def waiting_threads(self, events: Int64Array) -> Int64Array:
        unrecorded = np.isin(self._trace.thread_index[events], self._unrecorded_threads)
        waiting = np.full(len(events), ABSENT, dtype=np.int64)
        waiting[unrecorded] = self.calling_threads(events[unrecorded])
        return waiting

    def call_sites(self, events: Int64Array, lines: SourceLines | None) -> tuple[CallSite, ...]:
        operator = self._operators.innermost(events)
        annotation = self._annotations.innermost(events)
        frame = self.frames.innermost(events)
        caller = self._callers(events, frame)
        borrowed = np.flatnonzero(caller != ABSENT)
        frame[borrowed] = self.frames.innermost_on(caller[borrowed], events[borrowed])
        around = self._annotations.innermost_on(caller, events)
        annotation = np.where(annotation == ABSENT, around, annotation)
        program_frame, inside, called, wait = self._calls(frame)
        # The operators of autograd's thread are not the ones of the thread that called backward.
        program_of = np.append(self.frames.around(self._operator_frame, self._is_program), ABSENT)
        is_own = (caller == ABSENT) & (program_of[operator] == program_frame)
        outer = self._operators.parent_index
        is_outermost = (outer == ABSENT) | (program_of[outer] != program_of[:-1])
        direct = self._operators.around(np.where(is_own, operator, ABSENT), is_outermost)
        ordinal, count = (
            self._among_calls(program_frame, np.where(called == inside, inside, ABSENT))
            if lines is not None
            else np.full((2, len(events)), ABSENT)
        )
        in_parallel = self._annotations.around(annotation, self._is_parallel)
        wait_name = np.where(
            wait == ABSENT, self._annotations.names(in_parallel), self.frames.names(wait)
        )
        columns = (
            self._operators.names(self._called_operator(operator)),
            self._annotations.names(annotation),
            self.frames.names(program_frame),
            self.frames.names(inside),
            self.frames.names(called),
            self._operators.names(direct),
            np.where(caller == ABSENT, ABSENT, wait_name),
            ordinal,
            count,
        )
        call_site = cache(partial(self._call_site, lines))
        return tuple(map(call_site, *(column.tolist() for column in columns)))

    def program_calls(self) -> ProgramCalls:
        frames = self.frames
        frame = np.flatnonzero(self._is_program | _take(self._is_program, frames.parent_index))
        site = self._wrapped(frame)
        direct, _ = self._direct_operators
        operator_id = self._operators.event_id[direct]
        is_run = self._named(is_backward)
        return ProgramCalls(
            event_id=np.concatenate((frames.event_id[frame], operator_id)),
            site_id=np.concatenate((frames.event_id[site], operator_id)),
            backward=unions(
                frames.thread_index[is_run], frames.start_ns[is_run], frames.end_ns[is_run]
            ),
            autograd_threads=self._autograd_threads,
        )

    @cached_property
    def program_functions(self) -> tuple[ProgramFunction, ...]:
        frames, strings = self.frames, self._trace.strings
        caller = frames.around(frames.parent_index, ~self._named(is_wrapper))
        is_wrapped = _take(self._named(is_wrapper), frames.parent_index)
        is_call = _take(self._is_program, caller) & (~self._is_program | is_wrapped)
        called = np.flatnonzero(is_call)
        calls: dict[int, set[tuple[str, str]]] = defaultdict(set)
        for function, call in _pairs(frames.names(caller[called]), frames.names(called)):
            calls[function].add((called_as_shown(strings[call]), self._name_in_source(call)))
        direct, around = self._direct_operators
        names = frames.names(around), self._operators.names(direct)
        for function, operator in _pairs(*names):
            shown, name_in_source = operator_as_call(strings[operator])
            if shown is not None and name_in_source is not None:
                calls[function].add((shown, name_in_source))
        entered = set(frames.names(np.flatnonzero(self._is_program & ~self._ran_before)).tolist())
        functions = np.unique(frames.names(np.flatnonzero(self._is_program))).tolist()
        return tuple(
            ProgramFunction(
                frame,
                frozenset(calls[function]),
                self._other_calls.get(function, _NOTHING),
                function in entered,
            )
            for function in functions
            if (frame := parse_frame(strings[function])) is not None
        )

    @cached_property
    def _ran_before(self) -> BoolArray:
        """bool[frames], which may have run already when recording began."""
        # They are the first of their thread, each inside the one before.
        frames = self.frames
        ran_before = np.zeros(len(frames.event_id), dtype=np.bool_)
        for thread in np.unique(frames.thread_index).tolist():
            of_thread = frames.entries_of(thread)
            position = np.arange(of_thread.start, of_thread.stop)
            is_inside = frames.parent_index[of_thread] == position - 1
            is_inside[0] = True
            ran_before[of_thread] = np.logical_and.accumulate(is_inside)
        return ran_before

    @cached_property
    def _operator_frame(self) -> Int64Array:
        return self.frames.innermost(self._operators.event_id)

    @cached_property
    def _direct_operators(self) -> tuple[IndexArray, Int64Array]:
        around, outer = self._operator_frame, self._operators.parent_index
        is_direct = _take(self._is_program, around)
        is_direct &= (outer == ABSENT) | (around[outer] != around)
        direct = np.flatnonzero(is_direct)
        return direct, around[direct]

    def _wrapped(self, frame: IndexArray, *, own: bool = False) -> IndexArray:
        # A wrapper stands around the longest frame inside it, unless that is of the program again.
        inside = self._inside_wrapper
        if not own:
            inside = np.where(self._is_program[inside], np.arange(len(inside)), inside)
        while not np.array_equal(wrapped := inside[frame], frame):
            frame = wrapped
        return frame

    @cached_property
    def _inside_wrapper(self) -> IndexArray:
        frames = self.frames
        inner = np.flatnonzero(_take(self._named(is_wrapper), frames.parent_index))
        inner = inner[np.argsort(frames.end_ns[inner] - frames.start_ns[inner], kind="stable")]
        longest = np.arange(len(frames.event_id))
        longest[frames.parent_index[inner]] = inner  # of several the last one counts
        return longest

    def _call_site(
        self,
        lines: SourceLines | None,
        operator: int,
        annotation: int,
        program_frame: int,
        inside: int,
        called: int,
        direct: int,
        wait: int,
        ordinal: int,
        count: int,
    ) -> CallSite:
        waited_in = None if wait == ABSENT else self._called_name(self._trace.strings[wait])
        region = self._string(annotation)
        if region is not None:
            region = re.sub(r"\d+", "#", region)  # numbers may count the steps
        site = CallSite(self._string(operator), region, waited_in=waited_in)
        frame_name = self._string(program_frame)
        frame = None if frame_name is None else parse_frame(frame_name)
        if frame is None:
            return site
        call, source_name = self._call(inside, called, direct)
        line = None
        if lines is not None and source_name is not None:
            nth, of = (None, None) if ordinal == ABSENT else (ordinal, count)
            others = self._other_calls.get(program_frame, _NOTHING)
            line = lines.line_of(
                frame.file, frame.function, frame.line, source_name, nth, of, others
            )
        return replace(site, function=frame.function, file=frame.file, line=line, call=call)

    def _string(self, name: int) -> str | None:
        return None if name == ABSENT else self._trace.strings[name]

    def _call(self, inside: int, called: int, direct: int) -> tuple[str | None, str | None]:
        strings = self._trace.strings
        if inside == ABSENT:
            return (None, None) if direct == ABSENT else operator_as_call(strings[direct])
        if called == ABSENT:
            return called_as_shown(strings[inside]), None
        return called_as_shown(strings[called]), self._name_in_source(called)

    def _name_in_source(self, called: int) -> str:
        frame = self._trace.strings[called]
        return MODULE_CALL if is_module_call(frame) else self._called_name(frame)

    def _called_operator(self, operator: Int64Array) -> Int64Array:
        """The outermost tensor operator around each: what the program called."""
        is_aten = self._operators.have_name(is_tensor_operator)
        is_inner = is_aten & _take(is_aten, self._operators.parent_index)
        return self._operators.around(operator, ~is_inner)

    def _calls(self, frame: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        program_frame = frame.copy()
        inside, called, wait = np.full((3, len(frame)), ABSENT, dtype=np.int64)
        open_ = np.flatnonzero(program_frame != ABSENT)
        while len(open_):
            open_ = open_[~self._is_program[program_frame[open_]]]
            library_frame = program_frame[open_]
            inside[open_] = library_frame
            called[open_] = np.where(
                self._named(is_wrapper)[library_frame], called[open_], library_frame
            )
            wait[open_] = np.where(self._named(_waits)[library_frame], library_frame, wait[open_])
            program_frame[open_] = self.frames.parent_index[library_frame]
            open_ = open_[program_frame[open_] != ABSENT]
        is_beside = _take(self._named(is_wrapper), inside)
        is_beside &= (called == ABSENT) | _take(self._named(_is_special), called)
        beside = np.flatnonzero(is_beside)
        wrapped = self._wrapped(inside[beside], own=True)
        is_named = ~self._named(is_wrapper)[wrapped] & ~self._named(_is_special)[wrapped]
        called[beside[is_named]] = wrapped[is_named]
        return program_frame, inside, called, wait

    def _among_calls(self, frame: Int64Array, inside: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Number the calls of one name directly inside a frame, and count them; or ABSENT."""
        ordinal, count = np.full((2, len(frame)), ABSENT, dtype=np.int64)
        known = np.flatnonzero((frame != ABSENT) & (inside != ABSENT))
        children = self.frames.children(np.unique(frame[known]))
        parent, call = self.frames.parent_index[children], self._call_numbers(children)
        order = np.lexsort((call, parent))
        children, parent, call = children[order], parent[order], call[order]
        changes = (np.diff(parent, prepend=ABSENT) != 0) | (np.diff(call, prepend=ABSENT) != 0)
        group = np.cumsum(changes) - 1
        group_start = np.flatnonzero(changes)
        position = np.zeros(len(self.frames.event_id), dtype=np.intp)
        position[children] = np.arange(len(children))
        of_known = position[inside[known]]
        ordinal[known] = of_known - group_start[group[of_known]]
        count[known] = np.diff(group_start, append=len(children))[group[of_known]]
        return ordinal, count

    def _call_numbers(self, frame: IndexArray) -> Int64Array:
        """A number for what each frame calls: the same for the same name of a call."""
        names = self.frames.names(frame)
        number_of_name = np.zeros(len(self._trace.strings), dtype=np.int64)
        number_of_name[names] = 1
        numbers: dict[str, int] = {}
        for name in np.flatnonzero(number_of_name).tolist():
            call = self._name_in_source(name)
            number_of_name[name] = numbers.setdefault(call, len(numbers))
        return number_of_name[names]

    def _callers(self, events: Int64Array, frame: Int64Array) -> Int64Array:
        """For which thread a thread without Python made each event, else ABSENT."""
        # Autograd's threads work for the thread inside a backward pass, threads started while the
        # profiler ran for the one that waits for others; of two callers at once none is known.
        caller = np.full(len(events), ABSENT, dtype=np.int64)
        alone = np.flatnonzero(frame == ABSENT)
        thread = self._trace.thread_index[events[alone]]
        of_autograd = alone[np.isin(thread, self._autograd_threads)]
        unrecorded = alone[np.isin(thread, self._unrecorded_threads)]
        for index, regions, is_chosen, is_inside in (
            (of_autograd, self.frames, self._named(is_backward), self._is_in_backward),
            (unrecorded, self._annotations, self._is_parallel, self._is_in_parallel),
            (unrecorded, self.frames, self._named(_waits), self._is_in_wait),
        ):
            if len(index):
                threads = np.unique(regions.thread_index[is_chosen]).tolist()
                found = self._only_one_of(threads, events[index], regions, is_inside)
                caller[index] = np.where(found == ABSENT, caller[index], found)
        return caller

    def _only_one_of(
        self,
        threads: Iterable[int],
        events: Int64Array,
        regions: Nesting,
        is_inside: Callable[[Int64Array], BoolArray],
    ) -> Int64Array:
        """The only one of some threads whose regions pass a test at each event's time."""
        process = np.array([thread.process for thread in self._trace.threads])
        of_events = process[self._trace.thread_index[events]]
        only = np.full(len(events), ABSENT, dtype=np.int64)
        count = np.zeros(len(events), dtype=np.int64)
        for thread in threads:
            inside = is_inside(regions.innermost_on(thread, events))
            inside &= of_events == process[thread]
            count += inside
            only[inside] = thread
        only[count != 1] = ABSENT
        return only

    def _is_in_backward(self, frame: Int64Array) -> BoolArray:
        """Tell for which frames the innermost built-in around them is ``run_backward``."""
        built_in = self.frames.around(frame, self._named(is_built_in))
        is_inside: BoolArray = (built_in != ABSENT) & self._named(is_backward)[built_in]
        return is_inside

    def _is_in_wait(self, frame: Int64Array) -> BoolArray:
        # A library's own thread that waits for something to do, a logger's for one, is in none.
        wait = self.frames.around(frame, self._named(_waits))
        is_inside: BoolArray = self.frames.around(wait, self._is_program) != ABSENT
        return is_inside

    def _is_in_parallel(self, annotation: Int64Array) -> BoolArray:
        is_inside: BoolArray = self._annotations.around(annotation, self._is_parallel) != ABSENT
        return is_inside

    @cached_property
    def _is_program(self) -> BoolArray:
        # A library's code counts if no other code called it: then the program is the library's.
        frames = self.frames
        is_program = frames.have_name(is_program_frame)
        is_own = is_program & frames.have_name(partial(is_own_frame, self._source_files))
        of_library = np.flatnonzero(is_program & ~is_own)
        is_program[of_library] = frames.around(of_library, is_own) == ABSENT
        return is_program

    @cached_property
    def _other_calls(self) -> Mapping[int, frozenset[str]]:
        """Name of a function of the program to the names of what it calls besides modules."""
        frames, strings = self.frames, self._trace.strings
        caller = frames.around(frames.parent_index, ~self._named(is_wrapper))
        is_call = _take(self._is_program, caller) & ~self._named(is_wrapper)
        is_call &= ~frames.have_name(is_module_call)
        called = np.flatnonzero(is_call)
        calls: dict[int, set[str]] = defaultdict(set)
        for of_caller, of_call in _pairs(frames.names(caller[called]), frames.names(called)):
            calls[of_caller].add(self._called_name(strings[of_call]))
        return {name: frozenset(of_caller) for name, of_caller in calls.items()}

    @cached_property
    def _unrecorded_threads(self) -> Int64Array:
        # Those without functions and regions, besides autograd's and those that check for ends.
        known = (self.frames.thread_index, self._annotations.thread_index, self._autograd_threads)
        watchdogs = np.array(watchdog_threads(self._trace), dtype=np.int64)
        return np.setdiff1d(
            np.arange(len(self._trace.threads)), np.concatenate((*known, watchdogs))
        )

    @cached_property
    def _autograd_threads(self) -> Int32Array:
        threads = self._trace.threads
        is_engine = np.array(["autograd" in thread.name for thread in threads], dtype=np.bool_)
        of_engine = self._operators.have_name(is_autograd_node)
        is_engine[self._operators.thread_index[of_engine]] = True
        return np.flatnonzero(is_engine).astype(np.int32)


_NOTHING: frozenset[str] = frozenset()


def _is_special(name: str) -> bool:
    return called_name(name).startswith("__")


def _waits(name: str) -> bool:
    return is_thread_wait(name) or starts_threads(name)


def _take(chosen: BoolArray, index: Int64Array) -> BoolArray:
    return np.append(chosen, False)[index]  # ABSENT is the last one


def _pairs(a: Int64Array, b: Int64Array) -> list[list[int]]:
    pairs: list[list[int]] = np.unique(np.stack((a, b), axis=1), axis=0).tolist()
    return pairs


# For as long as somebody has the timeline: rules ask for call sites of a few events at a time.
_LOCATORS: WeakKeyDictionary[Timeline, _Locator] = WeakKeyDictionary()
