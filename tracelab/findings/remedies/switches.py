"""Debug switches that are left on, and Python's garbage collector."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    NO_EVENTS,
    are_in_launching_thread,
    are_inside,
    counts_inside,
    named,
    parents_match,
    recurring,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.measures.idle_culprits import innermost_functions
from tracelab.model.driver_api import is_kernel_launch
from tracelab.model.frames import is_built_in, is_engine_operator
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

_TUNING = "PyTorch Performance Tuning Guide"
_TUNING_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
_COLLECTOR = (
    "Collect when it does not hurt: `gc.collect(); gc.freeze()` once all is set up, then "
    "`gc.disable()` and `gc.collect(1)` every N steps, at the same step on all ranks."
)
_COLLECTOR_URL = "https://docs.python.org/3/library/gc.html#gc.freeze"

_FEWEST_LAUNCHES = 20  # of kernels; of ordinary files at most 2 % end after their kernel
_BLOCKED_SHARE = 0.95
_NAN_CHECKS = "aten::isnan"
_FORMATS_STACK = re.compile(r"traceback\.py\(\d+\): format_stack$")
_EMPTY = re.compile(r"^aten::(?:new_)?empty(?:_like|_strided)?$|^aten::resize_$")
_COLLECTS = "Python GC"
_LEAST_PAUSE_NS = 1_000_000
_LONG_SILENCE_NS = 10_000_000


def _launches_block(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """What the host does, if nearly all its launches end after their kernel; else nothing."""
    timeline = graph.host.timeline
    trace = timeline.trace
    rows = np.flatnonzero((timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT))
    rows = rows[match_names(trace, timeline.launch_id[rows], is_kernel_launch)]
    if len(rows) < _FEWEST_LAUNCHES:
        return NO_EVENTS
    ends_after = trace.end_ns[timeline.launch_id[rows]] >= timeline.end_ns[rows]
    if ends_after.mean() <= _BLOCKED_SHARE:
        return NO_EVENTS
    operators = timeline.operators
    outermost = operators.event_id[operators.parent_index == ABSENT]
    return np.concatenate((outermost, timeline.launch_id[rows])).astype(np.int64)


def _checks_for_nan(graph: Graph, events: Int64Array) -> Int64Array:
    """What anomaly mode does after each node of the backward pass, and for each in the forward.

    A hook of the program that looks for NaN does not do so after most nodes.
    """
    trace = graph.host.timeline.trace
    checks = parents_match(graph, events, is_engine_operator)
    nodes = named(trace, is_engine_operator, Category.OPERATOR)
    looks = checks[match_names(trace, checks, _NAN_CHECKS.__eq__)]
    if 2 * int((counts_inside(trace, nodes, looks) > 0).sum()) < len(nodes):
        return NO_EVENTS
    formats = named(trace, _FORMATS_STACK.search, Category.PYTHON)
    operators = trace.of_category(Category.OPERATOR)
    formats = formats[are_inside(trace, formats, operators)]
    return recurring(graph, np.concatenate((checks, formats)))


def _fills_empty(graph: Graph, events: Int64Array) -> Int64Array:
    """The fills of memory that was just allocated, where they launch."""
    trace = graph.host.timeline.trace
    fills = parents_match(graph, events, _EMPTY.search)
    launches = counts_inside(trace, fills, trace.of_category(*HOST_CALLS))
    return recurring(graph, fills[launches > 0])


def _pauses(graph: Graph, events: Int64Array) -> Int64Array:
    own = events[are_in_launching_thread(graph, events)]
    return own[graph.host.timeline.trace.duration_ns[own] >= _LEAST_PAUSE_NS]


def _collects_in_steps(graph: Graph, events: Int64Array) -> Int64Array:
    return recurring(graph, _pauses(graph, events))


def _silent_functions(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """Python functions that did nothing recorded for long, where collections are not recorded.

    A call that takes as long explains itself; between two events of a thread that is the function
    alone.
    """
    trace = graph.host.timeline.trace
    functions = trace.of_category(Category.PYTHON)
    if not len(functions) or _COLLECTS in trace.strings:
        return NO_EVENTS
    host = trace.of_category(Category.PYTHON, Category.OPERATOR, Category.ANNOTATION, *HOST_CALLS)
    host = host[are_in_launching_thread(graph, host)]
    silent = []
    for thread, index in groups_of(trace.thread_index[host]):
        of_thread = host[index]
        moments_ns = np.sort(np.concatenate((trace.start_ns[of_thread], trace.end_ns[of_thread])))
        begins = np.flatnonzero(np.diff(moments_ns) >= _LONG_SILENCE_NS)
        middle_ns = (moments_ns[begins] + moments_ns[begins + 1]) // 2
        function = innermost_functions(trace, middle_ns, np.full(len(middle_ns), thread))
        silent.append(function[function != ABSENT])
    found = np.unique(np.concatenate(silent)) if silent else NO_EVENTS
    return found[~match_names(trace, found, is_built_in)]


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="anomaly-mode",
        name="autograd's anomaly mode",
        title="Anomaly mode checks each gradient for NaN, and the CPU waits",
        shows="`aten::isnan`, `aten::any` and `aten::item` after most nodes of the backward pass, "
        "and `format_stack` of traceback.py inside operators of the forward pass.",
        not_when="You are looking for a NaN.",
        fixes=(
            Instead(
                "Remove `torch.autograd.set_detect_anomaly(True)` and `detect_anomaly()` "
                "(Lightning: `detect_anomaly=False`)."
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL101", "TL301"),
        edit="remove:{place}",
        operators=r"^aten::(?:isnan|_is_any_true|any|item)$",
        occurs=_checks_for_nan,
    ),
    Remedy(
        id="deterministic-fill",
        name="memory that deterministic mode fills",
        title="Deterministic mode fills each new tensor",
        shows="`aten::fill_` with a launch inside `aten::empty` and its like, in at least two "
        "steady steps.",
        not_when="A program reads memory that it has not written.",
        fixes=(
            Instead(
                "Keep deterministic algorithms without the fill: "
                "`torch.utils.deterministic.fill_uninitialized_memory = False`.",
                since="2.2",
                short="Set `torch.utils.deterministic.fill_uninitialized_memory = False`: the "
                "algorithms stay deterministic.",
            ),
        ),
        source="PyTorch documentation: torch.utils.deterministic",
        url="https://docs.pytorch.org/docs/stable/deterministic.html",
        rules=("TL301",),
        edit="remove:{place}",
        operators=r"^aten::fill_$",
        occurs=_fills_empty,
    ),
    Remedy(
        id="garbage-collection",
        name="pauses of Python's garbage collector",
        title="Python's garbage collector stops the launching thread",
        shows="`Python GC` of more than 1 ms in a thread that launches; recorded with stacks and "
        "`_ExperimentalConfig(record_python_gc_info=True)`.",
        not_when="Reference cycles hold GPU memory: it grows until the next collection.",
        fixes=(
            Instead(
                _COLLECTOR,
                since="1.5",
                short="Call `gc.collect(); gc.freeze(); gc.disable()` before the loop, and "
                "`gc.collect(1)` every N steps, at the same step on all ranks.",
            ),
        ),
        source="Python documentation: gc.freeze",
        url=_COLLECTOR_URL,
        rules=("TL301", "TL306"),
        edit="remove:{place}",
        frames=f"^{_COLLECTS}$",
        occurs=_pauses,
    ),
    Remedy(
        id="collected-each-step",
        name="gc.collect() in the loop",
        title="`gc.collect()` stops the launching thread in each step",
        shows="`<built-in function collect>` of more than 1 ms in at least two steady steps.",
        not_when="Reference cycles hold GPU memory: look for what makes them.",
        fixes=(
            Instead(
                "Remove `gc.collect()` from the loop, or call it every N steps. "
                "`gc.freeze()`, once all is set up, keeps it from looking at what stays.",
                since="1.5",
            ),
        ),
        source="Python documentation: gc.freeze",
        url=_COLLECTOR_URL,
        rules=("TL301",),
        edit="remove:{place}",
        frames=r"^<built-in function collect>$",
        occurs=_collects_in_steps,
    ),
    Remedy(
        id="perhaps-garbage-collection",
        name="a silent pause, perhaps of Python's garbage collector",
        title="The CPU pauses without a call, perhaps to collect garbage",
        shows="An irregular stall of more than 10 ms in a Python function that calls nothing "
        "during that time, in a file that does not record collections.",
        not_when="The function computes for so long by itself, or the machine was busy.",
        fixes=(
            Instead(
                "A hypothesis: the trace does not record collections. Record them, with stacks and "
                "`experimental_config=torch._C._profiler._ExperimentalConfig("
                f"record_python_gc_info=True)`. If it is the collector: {_COLLECTOR}",
                since="2.9",
                short="Record collections to be sure: "
                "`_ExperimentalConfig(record_python_gc_info=True)`, or try `gc.disable()` "
                "for a few steps.",
            ),
            Instead(
                "A hypothesis: the trace does not record collections. Try `gc.disable()` for a few "
                f"steps. If it is the collector: {_COLLECTOR}",
                short="Try `gc.disable()` for a few steps: the trace does not record collections.",
            ),
        ),
        source="Python documentation: gc.freeze",
        url=_COLLECTOR_URL,
        rules=("TL306",),
        edit=None,
        occurs=_silent_functions,
        is_general=True,
    ),
    Remedy(
        id="blocking-launches",
        name="CUDA_LAUNCH_BLOCKING",
        title="Each launch waits for its kernel, as with `CUDA_LAUNCH_BLOCKING=1`",
        shows="More than 95 % of the launches end after their kernel has ended.",
        not_when="You are looking for the call that fails.",
        fixes=(
            Instead(
                "Unset `CUDA_LAUNCH_BLOCKING` (and look for a debugger that does the same), and "
                "record again: nothing else in this trace is as it would be."
            ),
        ),
        source="PyTorch documentation: Asynchronous execution",
        url="https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
        rules=("TL101", "TL301"),
        edit=None,
        occurs=_launches_block,
        is_general=True,
    ),
)
