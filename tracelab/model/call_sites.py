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
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.source_lines import MODULE_CALL, NUMBER, TRUTH, SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category
from tracelab.options import PROFILER_STEP

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
_NONE = (None, None)

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
class CallSite:
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


NO_CALL_SITE = CallSite()


@dataclass(frozen=True, slots=True)
class _Code:
    """The part of a place that the Python frames tell."""

    function: str | None = None
    file: str | None = None
    line: int | None = None
    call: str | None = None


def call_sites(
    timeline: Timeline, events: NDArray[np.integer[Any]], lines: SourceLines | None = None
) -> tuple[CallSite, ...]:
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


class _Locator:
    """Finds places; what many events share is worked out once."""

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        is_step = np.zeros(len(trace), dtype=np.bool_)
        is_step[[step.event_id for step in timeline.steps]] = True
        expression = re.compile(PROFILER_STEP)

        def of(category: Category) -> NDArray[np.integer[Any]]:
            # Old files write the steps as operators.
            events = trace.of_category(category)
            return events[~is_step[events] & ~match_names(trace, events, expression.search)]

        self._trace = trace
        self._operators = Nesting(trace, of(Category.OPERATOR))
        self._annotations = Nesting(trace, of(Category.ANNOTATION))
        self._frames = Nesting(trace, trace.of_category(Category.PYTHON))
        self._name_of_call = cache(_name_called)

    def places(self, events: Int64Array, lines: SourceLines | None) -> tuple[CallSite, ...]:
        """The place of each event."""
        operator = self._operators.innermost(events)
        annotation = self._annotations.innermost(events)
        frame = self._frames.innermost(events)
        caller = self._callers(events, frame)
        borrowed = np.flatnonzero(caller != ABSENT)
        for thread, places in groups_of(caller[borrowed]):
            rows = borrowed[places]
            frame[rows] = self._frames.innermost_on(thread, events[rows])
            around = self._annotations.innermost_on(thread, events[rows])
            annotation[rows] = np.where(annotation[rows] == ABSENT, around, annotation[rows])
        own, inside, called = self._calls(frame)
        # The operators of autograd's thread are not the ones of the thread that called backward.
        direct = self._outermost_in(np.where(caller == ABSENT, operator, ABSENT), own)
        ordinal, count = (
            self._among_calls(own, np.where(called == inside, inside, ABSENT))
            if lines is not None
            else np.full((2, len(events)), ABSENT)
        )
        columns = (
            self._operators.names(self._called(operator)),
            self._annotations.names(annotation),
            self._frames.names(own),
            self._frames.names(inside),
            self._frames.names(called),
            self._operators.names(direct),
            ordinal,
            count,
        )
        place = cache(partial(self._place, lines))
        return tuple(map(place, *(column.tolist() for column in columns)))

    def _place(
        self,
        lines: SourceLines | None,
        operator: int,
        annotation: int,
        own: int,
        inside: int,
        called: int,
        direct: int,
        ordinal: int,
        count: int,
    ) -> CallSite:
        """The place that these names (indices into the strings, or ABSENT) tell."""
        code = _Code()
        if own != ABSENT:
            call, looked_for = self._call(inside, called, direct)
            many = None if ordinal == ABSENT or looked_for == MODULE_CALL else (ordinal, count)
            code = _code(self._trace.strings[own], call, looked_for, many, lines)
        return CallSite(
            operator=self._string(operator),
            annotation=self._without_numbers(annotation),
            function=code.function,
            file=code.file,
            line=code.line,
            call=code.call,
        )

    def _string(self, name: int) -> str | None:
        return None if name == ABSENT else self._trace.strings[name]

    def _without_numbers(self, annotation: int) -> str | None:
        """The name of a region; its numbers, which may count the steps, as #."""
        name = self._string(annotation)
        return None if name is None else re.sub(r"\d+", "#", name)

    def _call(self, inside: int, called: int, direct: int) -> tuple[str | None, str | None]:
        """What a frame called, and its name in the source."""
        strings = self._trace.strings
        if inside == ABSENT:
            return (None, None) if direct == ABSENT else _WITHOUT_NAME.get(strings[direct], _NONE)
        if called == ABSENT:
            return self._name_of_call(strings[inside]), None
        call = self._name_of_call(strings[called])
        if strings[called].startswith("nn.Module:") or call in _MODULE_FRAMES:
            return call, MODULE_CALL
        return call, call

    def _called(self, operator: Int64Array) -> Int64Array:
        """The operator that the program called: of ``aten::item`` and all that it calls, the first.

        int64[k], rows; those asked for are the innermost, or ABSENT.
        """
        nest, called = self._operators, operator.copy()
        open_ = np.flatnonzero(operator != ABSENT)
        while len(open_):
            here = called[open_]
            outer = nest.parent[here]
            same = (outer != ABSENT) & self._is_aten[here] & self._is_aten[outer]
            open_ = open_[same]
            called[open_] = outer[same]
        return called

    def _calls(self, frame: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The own function around each frame, what ran directly inside it, and what it called.

        Three times int64[k], rows. Of the frames inside, from the outermost on, the first that is
        no wrapper was called; ABSENT without any.
        """
        own = frame.copy()
        inside, called = np.full((2, len(frame)), ABSENT, dtype=np.int64)
        open_ = np.flatnonzero(own != ABSENT)
        while len(open_):
            open_ = open_[~self._is_own[own[open_]]]
            here = own[open_]
            inside[open_] = here
            called[open_] = np.where(self._is_wrapper[here], called[open_], here)
            own[open_] = self._frames.parent[here]
            open_ = open_[own[open_] != ABSENT]
        return own, inside, called

    def _outermost_in(self, operator: Int64Array, own: Int64Array) -> Int64Array:
        """int64[k], of each operator and those around it the outermost in a frame, else ABSENT."""
        nest, frames = self._operators, self._frames
        found = np.full(len(own), ABSENT, dtype=np.int64)
        here = operator.copy()
        open_ = np.flatnonzero((here != ABSENT) & (own != ABSENT))
        while len(open_):
            frame, row = own[open_], here[open_]
            within = (nest.start[row] >= frames.start[frame]) & (nest.end[row] <= frames.end[frame])
            open_ = open_[within]
            found[open_] = here[open_]
            here[open_] = nest.parent[here[open_]]
            open_ = open_[here[open_] != ABSENT]
        return found

    def _among_calls(self, own: Int64Array, inside: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Which of the calls of one name directly inside a frame each row is, and of how many.

        Twice int64[k], ABSENT for a row that is ABSENT.
        """
        ordinal, count = np.full((2, len(own)), ABSENT, dtype=np.int64)
        asked = np.flatnonzero((own != ABSENT) & (inside != ABSENT))
        rows = self._frames.children(np.unique(own[asked]))
        parent, call = self._frames.parent[rows], self._call_numbers(rows)
        order = np.lexsort((call, parent))
        rows, parent, call = rows[order], parent[order], call[order]
        changes = (np.diff(parent, prepend=ABSENT) != 0) | (np.diff(call, prepend=ABSENT) != 0)
        group = np.cumsum(changes) - 1
        begins = np.flatnonzero(changes)
        place = np.zeros(len(self._frames.event), dtype=np.intp)
        place[rows] = np.arange(len(rows))
        mine = place[inside[asked]]
        ordinal[asked] = mine - begins[group[mine]]
        count[asked] = np.diff(begins, append=len(rows))[group[mine]]
        return ordinal, count

    def _call_numbers(self, rows: NDArray[np.intp]) -> Int64Array:
        """int64[k], a number for what each frame calls: the same for the same name of a call."""
        names = self._frames.names(rows)
        number_of_name = np.zeros(len(self._trace.strings), dtype=np.int64)
        number_of_name[names] = 1
        numbers: dict[str, int] = {}
        for name in np.flatnonzero(number_of_name).tolist():
            call = self._name_of_call(self._trace.strings[name])
            number_of_name[name] = numbers.setdefault(call, len(numbers))
        return number_of_name[names]

    def _callers(self, events: Int64Array, frame: Int64Array) -> Int64Array:
        """int64[k], the thread whose backward pass made each event of autograd's, else ABSENT.

        Autograd's own threads run no Python. Where two threads are inside a backward pass at once,
        the file does not say whose work it is.
        """
        caller = np.full(len(events), ABSENT, dtype=np.int64)
        alone = np.flatnonzero(frame == ABSENT)
        alone = alone[np.isin(self._trace.thread_index[events[alone]], self._autograd_threads)]
        if not len(alone):
            return caller
        count = np.zeros(len(alone), dtype=np.int64)
        for thread, _ in groups_of(self._frames.thread[self._is_backward]):
            # The innermost built-in of the thread at that time is ``run_backward``.
            row = self._frames.innermost_on(thread, events[alone])
            row = self._frames.around(row, self._is_built_in)
            inside = (row != ABSENT) & self._is_backward[row]
            count += inside
            caller[alone[inside]] = thread
        caller[alone[count != 1]] = ABSENT
        return caller

    @cached_property
    def _is_aten(self) -> NDArray[np.bool_]:
        """bool[operators]."""
        return self._operators.have_name(lambda x: x.startswith("aten::"))

    @cached_property
    def _is_own(self) -> NDArray[np.bool_]:
        """bool[frames], which are of the program's own code."""
        return self._frames.have_name(lambda x: not _LIBRARY_FRAME.search(x))

    @cached_property
    def _is_wrapper(self) -> NDArray[np.bool_]:
        """bool[frames], which stand around what the program called."""
        return self._frames.have_name(_WRAPPERS.search)

    @cached_property
    def _is_built_in(self) -> NDArray[np.bool_]:
        """bool[frames]."""
        return self._frames.have_name(_BUILT_IN.match)

    @cached_property
    def _is_backward(self) -> NDArray[np.bool_]:
        """bool[frames], which are calls into autograd's engine."""
        return self._frames.have_name(_RUN_BACKWARD.match)

    @cached_property
    def _autograd_threads(self) -> NDArray[np.int32]:
        """Index into `Trace.threads` of those that ran autograd's engine, or have its name."""
        is_engine = np.array(["autograd" in x.name for x in self._trace.threads], dtype=np.bool_)
        busy = self._operators.have_name(lambda x: x.startswith(_ENGINE))
        is_engine[self._operators.thread[busy]] = True
        return np.flatnonzero(is_engine).astype(np.int32)


def _code(
    frame: str,
    call: str | None,
    looked_for: str | None,
    many: tuple[int, int] | None,
    lines: SourceLines | None,
) -> _Code:
    """What the frame of an own function tells, given what it called: which of how many calls."""
    parts = _FRAME.match(frame)
    if parts is None:
        return _Code()
    line = None
    if lines is not None and looked_for is not None:
        line = lines.line_of(
            parts["file"],
            parts["function"],
            int(parts["line"]),
            looked_for,
            *(many if many is not None else (None, None)),
        )
    return _Code(parts["function"], parts["file"], line, call)


def _name_called(frame: str) -> str:
    """The name by which the program calls what this frame is."""
    for expression in (_BUILT_IN, _MODULE):
        if found := expression.match(frame):
            return found["name"]
    found = _FRAME.match(frame)
    return found["function"] if found else frame


# What was worked out of a file, for as long as somebody holds its timeline: rules ask for the
# places of a few events at a time.
_LOCATORS: WeakKeyDictionary[Timeline, _Locator] = WeakKeyDictionary()
