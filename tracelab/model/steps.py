"""The steps of a program: the annotations that are them, and the windows of their GPU work."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from types import MappingProxyType

import numpy as np

from tracelab.base.arrays import IndexArray, Int32Array, Int64Array, Record
from tracelab.base.errors import UsageError
from tracelab.base.intervals import Intervals, union
from tracelab.base.options import PROFILER_STEP
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.trace import ABSENT, Category, Trace

# Fewer steps show no spread.
MIN_STEPS = 3
_NUMBER = re.compile(r"#([0-9]+)")
_MAX_INT64_DIGITS = 18


class Step(Record):
    """One pass of the loop: the host's annotation and the window that its GPU work extends.

    `number` is that in the annotation's name, else the step's place among all, from 0; it is
    unique.
    """

    number: int
    event_id: int
    start_ns: int
    end_ns: int


class Window(Record):
    """A stretch of time to measure; `step` is its number, None for the whole trace."""

    step: int | None
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Length, ns."""
        return self.end_ns - self.start_ns


def bounds_of(stretches: Sequence[Step | Window]) -> tuple[Int64Array, Int64Array]:
    """The starts and the ends of some steps or windows, [k]."""
    bounds_ns = [(stretch.start_ns, stretch.end_ns) for stretch in stretches]
    start_ns, end_ns = np.array(bounds_ns, dtype=np.int64).reshape(-1, 2).T
    return start_ns, end_ns


class UnusedSteps(Record):
    """Annotations of one name that match the pattern of the steps and are not steps.

    Attributes:
        loss: why not: "nested_steps" or "repeated_steps" of `tracelab.model.losses.LOSSES`.
        name: what they are called.
        count: how many there are.
    """

    loss: str
    name: str
    count: int


def find_steps(
    trace: Trace, pattern: str | None, launch_id: Int64Array, activity_end_ns: Int64Array
) -> tuple[tuple[Step, ...], Int32Array, tuple[UnusedSteps, ...]]:
    """The steps, which of them launched each activity, and the annotations that are not steps.

    A step's window is ``[max(end of the window before, host start), max(host end, end of the last
    activity launched inside it))``: windows do not overlap. Work counts in the step that launched
    it, in the first of steps that overlap.

    The outermost annotations are the steps, except one whose name has the number of an earlier step
    (several recordings, processes, or micro-batches): its work belongs to the whole trace only.

    Args:
        trace: the file.
        pattern: regular expression of host annotations, else a UsageError.
        launch_id: [m], the call that launched each activity, else ABSENT.
        activity_end_ns: [m].

    Returns:
        the steps, by start; [m], the index of each activity's step, else ABSENT; and the other
        annotations.
    """
    step_index = np.full(len(launch_id), ABSENT, dtype=np.int32)
    launched = np.flatnonzero(launch_id != ABSENT)
    by_launch = launched[np.argsort(trace.start_ns[launch_id[launched]], kind="stable")]
    launch_ns = trace.start_ns[launch_id[by_launch]]
    steps: list[Step] = []
    window_end_ns = -(2**63)
    outermost, nested = _nested_apart(trace, step_annotations(trace, pattern))
    numbered = _numbered([trace.name_of(event_id) for event_id in outermost])
    for index, (place, number) in enumerate(numbered.items()):
        event_id = outermost[place]
        host_start_ns, host_end_ns = int(trace.start_ns[event_id]), int(trace.end_ns[event_id])
        first, end = np.searchsorted(launch_ns, (host_start_ns, host_end_ns))
        inside = by_launch[first:end]
        inside = inside[step_index[inside] == ABSENT]
        step_index[inside] = index
        start_ns = max(window_end_ns, host_start_ns)
        last_end_ns = int(activity_end_ns[inside].max(initial=start_ns))
        window_end_ns = max(start_ns, host_end_ns, last_end_ns)
        steps.append(Step(number, event_id, start_ns, window_end_ns))
    repeated = [event_id for place, event_id in enumerate(outermost) if place not in numbered]
    unused = Counter[tuple[str, str]]()
    unused.update(("nested_steps", trace.name_of(event_id)) for event_id in nested)
    unused.update(("repeated_steps", trace.name_of(event_id)) for event_id in repeated)
    return tuple(steps), step_index, tuple(UnusedSteps(*key, n) for key, n in unused.items())


def _nested_apart(trace: Trace, annotations: Sequence[int]) -> tuple[list[int], list[int]]:
    outermost: list[int] = []
    nested: list[int] = []
    reached_ns = -(2**63)
    for event_id in annotations:
        start_ns, end_ns = int(trace.start_ns[event_id]), int(trace.end_ns[event_id])
        if start_ns < reached_ns and end_ns <= reached_ns:
            nested.append(event_id)
        else:
            outermost.append(event_id)
        reached_ns = max(reached_ns, end_ns)
    return outermost, nested


def _numbered(names: Sequence[str]) -> dict[int, int]:
    """The number of each step by its place among all, without those that have none of their own."""
    written = [_NUMBER.search(name) for name in names]
    taken: set[int] = set()
    numbers: dict[int, int] = {}
    free = count()
    # The file's own come first: a place is a number only where no name says it, else what is free.
    for place in sorted(range(len(names)), key=lambda place: written[place] is None):
        digits = written[place]
        if digits and len(digits[1]) > _MAX_INT64_DIGITS:
            continue
        if digits:
            number = int(digits[1])
        elif place not in taken:
            number = place
        else:
            number = next(number for number in free if number not in taken)
        if number not in taken:
            taken.add(number)
            numbers[place] = number
    return dict(sorted(numbers.items()))


def step_annotations(trace: Trace, pattern: str | None) -> list[int]:
    """Event ids of the annotations that match, by start, then by length, the longest first."""
    if not pattern:
        return []
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"`step_on` {pattern!r} is not a valid regular expression: {error}", option="step_on"
        ) from None
    # Old files write the steps as operators.
    events = trace.of_category(Category.ANNOTATION, Category.OPERATOR)
    events = events[match_names(trace, events, expression.search)]
    order = np.lexsort((-trace.end_ns[events], trace.start_ns[events]))
    by_start: list[int] = events[order].tolist()
    return by_start


MIN_GPU_SHARE = 0.5
_MAX_CANDIDATES = 50
_MAX_LISTED = 10
_MAX_NAME_LETTERS = 200
# torch.distributed annotates every call of a collective.
_OF_COLLECTIVE = re.compile(r"(?:nccl|gloo|mpi|ucc|xccl):")
_DIGITS = re.compile(r"\d+")
_OF_PATTERNS = re.compile(r"[.^$*+?{}\[\]\\|()]")


class KnownSteps(Record):
    """Step names of a framework.

    Attributes:
        phases: of one that serves requests, what steps do by the pattern of such names.
        sequences: regular expression whose groups add up to how many requests a step serves.
    """

    framework: str
    pattern: str
    phases: Mapping[str, str] = MappingProxyType({})
    sequences: str = ""

    def phase_of(self, name: str) -> str:
        """Name the phase of a step of this name, such as "decode"; "" if that is not known."""
        return next((x for x, pattern in self.phases.items() if re.search(pattern, name)), "")

    def sequences_of(self, name: str) -> int:
        """Count the requests that a step of this name serves: 8 of context_1, generation_7."""
        found = re.search(self.sequences, name)
        return sum(int(digits[:_MAX_INT64_DIGITS]) for digits in found.groups()) if found else 0


# The first whose annotations are steps counts.
KNOWN_STEPS = (
    # Worker.annotate_profile, without a schedule: execute_context_1(512)_generation_0(0), with
    # detailed_trace_annotation execute_512_context_1(sq512...)_generation_0(...), before 0.12
    # execute_new_1_cached_0.
    KnownSteps(
        "vLLM",
        r"^execute_(\d+_)?(context|new)_\d",
        {
            "decode": r"^execute_(\d+_)?(context|new)_0(\(\w*\))?_(generation|cached)_[1-9]",
            "prefill": r"^execute_(\d+_)?(context|new)_[1-9]\d*(\(\w*\))?_(generation|cached)_0",
            "mixed": r"^execute_(\d+_)?(context|new)_[1-9]\d*(\(\w*\))?_(generation|cached)_[1-9]",
        },
        r"(?:context|new)_(\d+).*(?:generation|cached)_(\d+)",
    ),
    # ModelRunner.forward, since April 2026: step[DECODE bs=8], step[EXTEND bs=1 toks=512].
    KnownSteps(
        "SGLang",
        r"^step\[\w+ bs=\d",
        {"decode": r"^step\[DECODE bs=\d", "prefill": r"^step\[EXTEND bs=\d"},
        r"bs=(\d+)",
    ),
    # PyTorchProfiler with schedule=None: of the training loop, then of the others.
    KnownSteps("Lightning", r"^\[pl\]\[profile\]run_training_batch$"),
    KnownSteps("Lightning", r"^\[pl\]\[profile\]\[Strategy\]\w+\.(validation|test|predict)_step$"),
)


class RepeatedAnnotation(Record):
    """Annotations of one name in a file without steps, or of names that differ in a number.

    Attributes:
        name: with N for the digits of names that differ in them.
        pattern: regular expression that matches these annotations and no other.
        count: how many there are, at least two.
        gpu_share: which share of the GPU's time is of activities that were launched in them.
    """

    name: str
    pattern: str
    count: int
    gpu_share: float

    @property
    def may_be_step(self) -> bool:
        """True if they launch most of what the GPU does, as steps do."""
        return self.gpu_share > MIN_GPU_SHARE


def known_steps(pattern: str | None) -> tuple[KnownSteps | None, str]:
    """The framework whose annotations a pattern of steps matches, and the phase of them."""
    for known in KNOWN_STEPS:
        for phase, of_phase in {"": known.pattern, **known.phases}.items():
            if of_phase == pattern:
                return known, phase
    return None, ""


def choose_pattern(
    trace: Trace, asked: str | None, launch_id: Int64Array, activity_ns: Int64Array
) -> str | None:
    """The pattern of the annotations that are the steps: the requested one, if any.

    By default, if the profiler has marked no step, it is that of the first known framework whose
    annotations are steps: at least three, all of one thread, none overlapping another, which
    together launch more than half of what the GPU does; of one that serves requests those of the
    commonest phase.
    """
    if asked != PROFILER_STEP or step_annotations(trace, asked):
        return asked
    annotations = trace.of_category(Category.ANNOTATION)
    for known in KNOWN_STEPS:
        events = annotations[match_names(trace, annotations, re.compile(known.pattern).search)]
        if len(events) < MIN_STEPS or not _are_apart(trace, events):
            continue
        if LaunchedWork(trace, launch_id, activity_ns).share(trace, events) > MIN_GPU_SHARE:
            phases = Counter(known.phase_of(trace.name_of(event_id)) for event_id in events)
            [(phase, count)] = phases.most_common(1)
            is_most = MIN_STEPS <= count < len(events) < 2 * count
            return known.phases.get(phase, known.pattern) if is_most else known.pattern
    return asked


def find_repeated(
    trace: Trace, launch_id: Int64Array, activity_ns: Int64Array
) -> tuple[RepeatedAnnotation, ...]:
    """The annotations that repeat and launch work, those that launch most first; at most ten."""
    events = trace.of_category(Category.ANNOTATION)
    events = events[match_names(trace, events, _may_be_a_step)]
    by_name = {name: events[index] for name, index in groups_of(trace.name_index[events])}
    groups = _alike({trace.strings[name]: of_name for name, of_name in by_name.items()})
    groups = {key: alike for key, alike in groups.items() if len(alike) > 1}
    took_ns = {key: int(trace.duration_ns[alike].sum()) for key, alike in groups.items()}
    longest = sorted(groups, key=lambda key: -took_ns[key])[:_MAX_CANDIDATES]
    work = LaunchedWork(trace, launch_id, activity_ns)
    repeated = [
        RepeatedAnnotation(name, pattern, len(groups[name, pattern]), share)
        for name, pattern in longest
        if (share := work.share(trace, groups[name, pattern])) > 0
    ]
    return tuple(sorted(repeated, key=lambda x: -x.gpu_share)[:_MAX_LISTED])


class LaunchedWork:
    """GPU time by the moment of its launch."""

    def __init__(self, trace: Trace, launch_id: Int64Array, activity_ns: Int64Array) -> None:
        launched = np.flatnonzero(launch_id != ABSENT)
        launch_ns = trace.start_ns[launch_id[launched]]
        order = np.argsort(launch_ns, kind="stable")
        self._launch_ns = launch_ns[order]
        self._work_ns = np.concatenate(([0], np.cumsum(activity_ns[launched[order]])))
        self._all_ns = int(activity_ns.sum())

    def share(self, trace: Trace, events: IndexArray) -> float:
        """The share of GPU time that was launched during these events, on any thread."""
        spans: Intervals = union(trace.start_ns[events], trace.end_ns[events])
        first, end = np.searchsorted(self._launch_ns, (spans.starts, spans.ends))
        return int((self._work_ns[end] - self._work_ns[first]).sum()) / max(1, self._all_ns)


def _may_be_a_step(name: str) -> bool:
    return len(name) <= _MAX_NAME_LETTERS and not _OF_COLLECTIVE.match(name)


def _are_apart(trace: Trace, events: IndexArray) -> bool:
    order = np.argsort(trace.start_ns[events], kind="stable")
    start_ns, end_ns = trace.start_ns[events[order]], trace.end_ns[events[order]]
    is_one_thread = len(np.unique(trace.thread_index[events])) == 1
    return is_one_thread and bool((end_ns[:-1] <= start_ns[1:]).all())


def _alike(by_name: Mapping[str, IndexArray]) -> dict[tuple[str, str], IndexArray]:
    # Numbers count something where a name with them is there only once; where every name repeats,
    # as ``layer1`` and ``layer2`` do in each step, each is its own group.
    by_pattern: dict[str, list[str]] = defaultdict(list)
    for name in by_name:
        by_pattern[_DIGITS.sub(r"\\d+", _escaped(name))].append(name)
    groups: dict[tuple[str, str], IndexArray] = {}
    for pattern, names in by_pattern.items():
        if len(names) > 1 and any(len(by_name[name]) == 1 for name in names):
            numbered = _DIGITS.sub("N", names[0])
            groups[numbered, pattern] = np.concatenate([by_name[name] for name in names])
        else:
            groups |= {(name, _escaped(name)): by_name[name] for name in names}
    return groups


def _escaped(name: str) -> str:
    return f"^{_OF_PATTERNS.sub(lambda match: chr(92) + match[0], name)}$"
