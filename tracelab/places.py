"""Where in the user's program a host event was made: operator, function, call and line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.source_lines import MODULE_CALL, NUMBER, TRUTH, SourceLines
from tracelab.timeline import PROFILER_STEP, Timeline
from tracelab.trace import ABSENT, Category, Trace

# Python frames that are nobody's own code: built-ins, PyTorch, the interpreter's library.
_LIBRARY_FRAME = re.compile(
    r"^<|^nn\.Module:|(?:^|/)torch/|(?:^|/)site-packages/|(?:^|/)lib/python3\.\d+/"
    r"|^(?:threading|runpy|contextlib|functools)\.py\("
)
_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.DOTALL)
_BUILT_IN = re.compile(r"^<built-in (?:method|function) (?P<name>[^\s>]+)")
_MODULE = re.compile(r"^nn\.Module: (?P<name>.+?)(?:_\d+)?$")
_MODULE_FRAMES = ("_wrapped_call_impl", "_call_impl")
_RUN_BACKWARD = re.compile(r"^<built-in (?:method|function) run_backward\b")
_ENGINE = "autograd::engine::"

# Frames that stand around the function that the program called, under a name of their own.
_WRAPPERS = re.compile(
    r"(?:^|/)torch/(?:"
    r"optim/optimizer\.py\(\d+\): (?:wrapper|_use_grad)"
    r"|optim/lr_scheduler\.py\(\d+\): wrapper"
    r"|distributed/c10d_logger\.py\(\d+\): wrapper"
    r"|utils/_contextlib\.py\(\d+\): decorate_context"
    r"|nn/utils/clip_grad\.py\(\d+\): _no_grad_wrapper"
    r"|_compile\.py\(\d+\): inner"
    r"|_dynamo/eval_frame\.py\(\d+\): _fn"
    r"|_dynamo/external_utils\.py\(\d+\): \w+"
    r"|_tensor\.py\(\d+\): wrapped"
    r")$"
)

# What Python does without a call of a name shows as the operator alone. Each: what to call it,
# and the name under which the source is searched.
_WITHOUT_NAME = {
    "aten::is_nonzero": (TRUTH, TRUTH),
    "aten::item": ("item", NUMBER),
    "aten::index": ("__getitem__", "__getitem__"),
    "aten::index_put_": ("__setitem__", "__setitem__"),
    "aten::add": ("__add__", "__add__"),
    "aten::add_": ("__iadd__", "__iadd__"),
    "aten::sub": ("__sub__", "__sub__"),
    "aten::sub_": ("__isub__", "__isub__"),
    "aten::mul": ("__mul__", "__mul__"),
    "aten::mul_": ("__imul__", "__imul__"),
    "aten::div": ("__truediv__", "__truediv__"),
    "aten::div_": ("__itruediv__", "__itruediv__"),
    "aten::matmul": ("__matmul__", "__matmul__"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the program a call was made, as far as the trace and the source say.

    Attributes:
        operator: the operator that the program called, None outside any.
        annotation: the innermost region that the user or a library named, other than a step;
            numbers in its name are written #.
        function, file: the innermost Python function of the program's own code, and its file.
        call: what that function called there: "item", "synchronize", "Linear" for a module, or
            "__bool__" and the like for what is written without a name.
        line: the line of that call, None where the source does not say it for certain.
    """

    operator: str | None = None
    annotation: str | None = None
    function: str | None = None
    file: str | None = None
    line: int | None = None
    call: str | None = None


NOWHERE = Place()


@dataclass(frozen=True, slots=True)
class _Code:
    """The part of a place that the Python frames tell."""

    function: str | None = None
    file: str | None = None
    line: int | None = None
    call: str | None = None


def locate(
    timeline: Timeline, events: NDArray[np.integer[Any]], lines: SourceLines | None = None
) -> tuple[Place, ...]:
    """Say where in the program each of these host events was made.

    Args:
        timeline: the trace.
        events: int[k], event ids; they may nest, and repeat.
        lines: where to look for the program's source; without it, no line is named.

    Returns:
        k places.
    """
    if timeline not in _LOCATORS:
        _LOCATORS[timeline] = _Locator(timeline)
    return _LOCATORS[timeline].places(np.asarray(events, dtype=np.int64), lines)


class _Nest:
    """Events of some categories as trees: each row points to the one that encloses it.

    Attributes:
        event: int64[n], event ids by thread, start, longest first.
        parent: int64[n], row of the nearest enclosing one, else ABSENT.
    """

    def __init__(self, trace: Trace, events: NDArray[np.integer[Any]]) -> None:
        start, end, thread = trace.start_ns[events], trace.end_ns[events], trace.thread[events]
        order = np.lexsort((-end, start, thread))
        self.event = events[order].astype(np.int64)
        self.start, self.end, self.thread = start[order], end[order], thread[order]
        self._trace = trace
        self.parent = self._parents()

    def _parents(self) -> Int64Array:
        """The nearest row before each that is of its thread and ends no earlier.

        All rows still without an answer step to their candidate's candidate at once: what lies
        between a row and its candidate ends earlier than the row.
        """
        rows = np.arange(len(self.event), dtype=np.int64)
        first = np.searchsorted(self.thread, self.thread, side="left")
        parent = rows - 1
        open_ = rows
        while len(open_):
            there = parent[open_] >= first[open_]
            parent[open_[~there]] = ABSENT
            open_ = open_[there]
            open_ = open_[self.end[parent[open_]] < self.end[open_]]
            parent[open_] = parent[parent[open_]]
        return parent

    def innermost(self, events: Int64Array) -> Int64Array:
        """int64[k], the innermost row around each event on its own thread, else ABSENT."""
        found = np.full(len(events), ABSENT, dtype=np.int64)
        threads = self._trace.thread[events]
        for thread in np.unique(threads):
            asked = np.flatnonzero(threads == thread)
            found[asked] = self.innermost_on(int(thread), events[asked])
        return found

    def innermost_on(self, thread: int, events: Int64Array) -> Int64Array:
        """int64[k], the innermost row of a thread around the time of each event, else ABSENT."""
        start, end = self._trace.start_ns[events], self._trace.end_ns[events]
        first, last = np.searchsorted(self.thread, (thread, thread + 1))
        row = np.searchsorted(self.start[first:last], start, side="right").astype(np.int64)
        row += first - 1
        row[row < first] = ABSENT
        late = np.flatnonzero(row != ABSENT)
        while len(late):
            late = late[self.end[row[late]] < end[late]]
            row[late] = self.parent[row[late]]
            late = late[row[late] != ABSENT]
        return row

    def stack(self, row: int) -> list[int]:
        """This row and those around it, outermost first."""
        rows = []
        while row != ABSENT:
            rows.append(row)
            row = int(self.parent[row])
        return rows[::-1]

    def name(self, row: int) -> str:
        """The name of one row's event."""
        return self._trace.name_of(int(self.event[row]))

    @cached_property
    def _by_parent(self) -> tuple[Int64Array, NDArray[np.intp]]:
        order = np.argsort(self.parent, kind="stable")
        return self.parent[order], order

    def children(self, row: int) -> NDArray[np.intp]:
        """Rows directly inside this one, in order."""
        parents, order = self._by_parent
        first, last = np.searchsorted(parents, (row, row + 1))
        return order[first:last]


class _Locator:
    """Finds places; what many events share is worked out once."""

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        steps = np.array([step.event for step in timeline.steps], dtype=np.int64)
        expression = re.compile(PROFILER_STEP)
        named = [i for i, text in enumerate(trace.strings) if expression.search(text)]

        def of(category: Category) -> NDArray[np.integer[Any]]:
            # Old files write the steps as operators.
            events = np.setdiff1d(trace.of_category(category), steps)
            return events[~np.isin(trace.name[events], named)]

        self._trace = trace
        self._operators = _Nest(trace, of(Category.OPERATOR))
        self._annotations = _Nest(trace, of(Category.ANNOTATION))
        self._frames = _Nest(trace, trace.of_category(Category.PYTHON))
        self._own: dict[int, bool] = {}  # by name
        self._called: dict[int, str] = {}  # by name
        self._same: dict[tuple[int, str], dict[int, int]] = {}

    def places(self, events: Int64Array, lines: SourceLines | None) -> tuple[Place, ...]:
        """The place of each event."""
        operator = self._operators.innermost(events)
        annotation = self._annotations.innermost(events)
        frame = self._frames.innermost(events)
        caller = self._callers(events, frame)
        borrowed = np.flatnonzero(caller != ABSENT)
        for thread in np.unique(caller[borrowed]):
            rows = borrowed[caller[borrowed] == thread]
            frame[rows] = self._frames.innermost_on(int(thread), events[rows])
            around = self._annotations.innermost_on(int(thread), events[rows])
            annotation[rows] = np.where(annotation[rows] == ABSENT, around, annotation[rows])
        place = cache(partial(self._place, lines))
        columns = (operator, annotation, frame, caller)
        return tuple(map(place, *(column.tolist() for column in columns)))

    def _place(
        self, lines: SourceLines | None, operator: int, annotation: int, frame: int, caller: int
    ) -> Place:
        # The operators of autograd's thread are not the ones of the thread that called backward.
        operators = self._operators.stack(operator)
        code = self._code(frame, operators if caller == ABSENT else [], lines)
        return Place(
            operator=_called_operator([self._operators.name(row) for row in operators]),
            annotation=self._named(annotation),
            function=code.function,
            file=code.file,
            line=code.line,
            call=code.call,
        )

    def _named(self, annotation: int) -> str | None:
        """The name of a region; its numbers, which may count the steps, as #."""
        if annotation == ABSENT:
            return None
        return re.sub(r"\d+", "#", self._annotations.name(annotation))

    def _callers(self, events: Int64Array, frame: Int64Array) -> Int64Array:
        """int64[k], the thread whose backward pass made each event of autograd's, else ABSENT.

        Autograd's own threads run no Python. Where two threads are inside a backward pass at once,
        the file does not say whose work it is.
        """
        caller = np.full(len(events), ABSENT, dtype=np.int64)
        alone = np.flatnonzero(frame == ABSENT)
        alone = alone[np.isin(self._trace.thread[events[alone]], self._autograd_threads)]
        if not len(alone) or not len(self._backward):
            return caller
        count = np.zeros(len(alone), dtype=np.int64)
        for thread in np.unique(self._frames.thread[self._backward]):
            inside = self._is_in_backward(int(thread), events[alone])
            count += inside
            caller[alone[inside]] = thread
        caller[alone[count != 1]] = ABSENT
        return caller

    def _is_in_backward(self, thread: int, events: Int64Array) -> NDArray[np.bool_]:
        """bool[k], whether the innermost built-in of a thread is ``run_backward`` at that time."""
        rows, which = np.unique(self._frames.innermost_on(thread, events), return_inverse=True)
        inside = []
        for row in rows.tolist():
            names = map(self._frames.name, reversed(self._frames.stack(row)))
            built_in = next((x for x in names if _BUILT_IN.match(x)), "")
            inside.append(bool(_RUN_BACKWARD.match(built_in)))
        return np.array(inside, dtype=np.bool_)[which]

    @cached_property
    def _backward(self) -> NDArray[np.intp]:
        """Rows of the frames of the calls into autograd's engine."""
        names = [i for i, x in enumerate(self._trace.strings) if _RUN_BACKWARD.match(x)]
        return np.flatnonzero(np.isin(self._trace.name[self._frames.event], names))

    @cached_property
    def _autograd_threads(self) -> NDArray[np.int32]:
        trace = self._trace
        names = [i for i, x in enumerate(trace.strings) if x.startswith(_ENGINE)]
        busy = self._operators.thread[np.isin(trace.name[self._operators.event], names)]
        named = [i for i, x in enumerate(trace.threads) if "autograd" in x.name]
        return np.union1d(busy, np.array(named, dtype=np.int32))

    def _code(self, frame: int, operators: list[int], lines: SourceLines | None) -> _Code:
        """What the frames tell, given the operators of the same thread, outermost first."""
        own, *inside = self._from_own(frame) or [ABSENT]
        if own == ABSENT:
            return _Code()
        parts = _FRAME.match(self._frames.name(own))
        if parts is None:
            return _Code()
        call, looked_for, ordinal, count = self._call(own, inside, operators)
        line = None
        if lines is not None and looked_for is not None:
            line = lines.line_of(
                parts["file"], parts["function"], int(parts["line"]), looked_for, ordinal, count
            )
        return _Code(parts["function"], parts["file"], line, call)

    def _call(
        self, own: int, inside: list[int], operators: list[int]
    ) -> tuple[str | None, str | None, int | None, int | None]:
        """What a frame called, its name in the source, and which of how many calls of that name."""
        if not inside:
            return *self._without_name(own, operators), None, None
        names = [self._frames.name(row) for row in inside]
        depth = next((i for i, x in enumerate(names) if not _WRAPPERS.search(x)), None)
        if depth is None:
            return self._name_of_call(inside[0]), None, None, None
        call = self._name_of_call(inside[depth])
        if names[depth].startswith("nn.Module:") or call in _MODULE_FRAMES:
            return call, MODULE_CALL, None, None
        if depth:
            # Other calls in the same wrapper may be of the same function or not.
            return call, call, None, None
        same = self._same_called(own, call)
        return call, call, same[inside[0]], len(same)

    def _without_name(self, own: int, operators: list[int]) -> tuple[str | None, str | None]:
        start, end = self._frames.start[own], self._frames.end[own]
        nest = self._operators
        direct = (x for x in operators if nest.start[x] >= start and nest.end[x] <= end)
        first = next(direct, ABSENT)
        return _WITHOUT_NAME.get(nest.name(first), (None, None)) if first != ABSENT else (None,) * 2

    def _from_own(self, frame: int) -> list[int]:
        """The frames from the innermost of the program's own code on; empty without any."""
        rows = []
        while frame != ABSENT:
            rows.append(frame)
            if self._is_own(frame):
                return rows[::-1]
            frame = int(self._frames.parent[frame])
        return []

    def _is_own(self, row: int) -> bool:
        name = int(self._trace.name[self._frames.event[row]])
        if name not in self._own:
            self._own[name] = not _LIBRARY_FRAME.search(self._trace.strings[name])
        return self._own[name]

    def _same_called(self, own: int, call: str) -> dict[int, int]:
        """The rows directly inside a frame that are calls of this name, and their numbers."""
        if (own, call) not in self._same:
            for row in self._frames.children(own).tolist():
                same = self._same.setdefault((own, self._name_of_call(row)), {})
                same[row] = len(same)
        return self._same[own, call]

    def _name_of_call(self, row: int) -> str:
        name = int(self._trace.name[self._frames.event[row]])
        if name not in self._called:
            self._called[name] = _name_called(self._trace.strings[name])
        return self._called[name]


def _name_called(frame: str) -> str:
    """The name by which the program calls what this frame is."""
    for expression in (_BUILT_IN, _MODULE):
        if found := expression.match(frame):
            return found["name"]
    found = _FRAME.match(frame)
    return found["function"] if found else frame


def _called_operator(inside: list[str]) -> str | None:
    """The operator that the program called: of ``aten::item`` and all that it calls, the first."""
    if not inside:
        return None
    called = len(inside) - 1
    while (
        called > 0
        and inside[called].startswith("aten::")
        and inside[called - 1].startswith("aten::")
    ):
        called -= 1
    return inside[called]


# What was worked out of a file, for as long as somebody holds its timeline: rules ask for the
# places of a few events at a time.
_LOCATORS: WeakKeyDictionary[Timeline, _Locator] = WeakKeyDictionary()
