"""TL401 to TL411: what keeps the GPU busy though less work would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, Int64Array
from tracelab.base.intervals import measure
from tracelab.findings.candidates import Candidate, grouped, where
from tracelab.findings.context import Context
from tracelab.findings.finding import GENERIC, WARNING_SHARE
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Case, Rule, load_rule
from tracelab.model.arithmetic import (
    are_convolutions,
    is_batched_product,
    is_elementwise,
    is_float64,
    is_layout_change,
    launched_by,
    products_without_tf32,
)
from tracelab.model.lookup import Nesting, match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.arithmetic import USUAL_KERNELS, left_in_tf32, left_of_table_gradients

# The timeline rows that count, bool[m].
Rows = Callable[[Timeline], BoolArray]

_MIN_CHAIN_WINDOW_SHARE = 0.25
_TF32_SWITCH = '`torch.set_float32_matmul_precision("high")`'
_CUDNN_SWITCH = "`torch.backends.cudnn.allow_tf32 = True`"


def _named(test: Callable[[str], object]) -> Rows:
    return lambda timeline: match_names(timeline.trace, timeline.event_id, test)


def _work_of_remedies(
    rule_id: str,
    cause: str,
    *,
    counts: Rows | None = None,
    in_forward: bool = True,
    at_events: bool = False,
) -> Callable[[Context], list[Candidate]]:
    def find(context: Context) -> list[Candidate]:
        candidates = []
        for remedy, event_id in context.recognized.events_of:
            if rule_id in remedy.rules:
                around = _events_around(context, event_id)
                candidates += _candidate(
                    context,
                    (around != ABSENT) & (True if counts is None else counts(context.timeline)),
                    Case(cause=cause),
                    remedy=remedy,
                    in_forward=in_forward,
                    made_by=around if at_events else None,
                )
        return candidates

    return find


def _rule_of_remedies(rule_id: str, cause: str, **how: Any) -> Rule:
    return load_rule(rule_id, _work_of_remedies(rule_id, cause, **how))


def _events_around(context: Context, event_id: Int64Array) -> Int64Array:
    launch_id = context.timeline.launch_id
    around = np.full(len(launch_id), ABSENT, dtype=np.int64)
    rows = np.flatnonzero(launch_id != ABSENT)
    nesting = Nesting(context.trace, event_id)
    index = nesting.innermost(launch_id[rows])
    around[rows] = np.where(index == ABSENT, ABSENT, nesting.event_id[index])
    return around


def _candidate(
    context: Context,
    is_chosen: BoolArray,
    case: Case,
    values: Mapping[str, object] | None = None,
    *,
    remedy: Remedy | None = None,
    max_saved: NDArray[np.float64] | None = None,
    in_forward: bool = False,
    made_by: Int64Array | None = None,
) -> list[Candidate]:
    """Make one candidate of some GPU work, at the call site and kernel that take most of it.

    The fix saves at most the share `max_saved` of each row; `made_by` has the events of sites.
    """
    timeline = context.timeline
    rows = np.flatnonzero(is_chosen & context.is_inside(timeline.start_ns, timeline.end_ns))
    lost = context.time_of(rows)
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    saved_ns = length_ns if max_saved is None else length_ns * max_saved[rows]
    device_number = timeline.device_number[rows]
    limit_ns = {
        device: min(measure(time), round(float(saved_ns[device_number == device].sum())))
        for device, time in lost.items()
    }
    most_ns = max(limit_ns.values(), default=0)
    if not most_ns or most_ns < WARNING_SHARE * context.window.length_ns:
        return []
    sites = context.call_sites((timeline.launch_id if made_by is None else made_by)[rows])
    names = [context.kernel_name(row) for row in rows.tolist()]
    is_place = ~(context.is_of_backward[rows] & in_forward)
    counted_ns = length_ns * (is_place | ~is_place.any())
    places = grouped(zip(sites, names, strict=True)).values()
    top = max(places, key=lambda place: int(counted_ns[place].sum()))[0]
    return [
        case.candidate(
            where(
                sites[top],
                count=len(rows),
                activity=names[top],
                captured_at=context.origins_of(rows[[top]])[0] or None,
            ),
            values,
            evidence=context.evidence(rows),
            lost=lost,
            limit_ns=limit_ns,
            remedy=remedy,
        )
    ]


def _are_slow(timeline: Timeline) -> BoolArray:
    # Not all that a CUDA graph launches; what indexes, since its line is the place.
    is_slow = _named(lambda name: any(is_named(name) for is_named in USUAL_KERNELS))(timeline)
    return is_slow | launched_by(timeline, {"aten::index", "aten::_fft_c2c"}.__contains__)


_float32_attention = _work_of_remedies("TL401", "float32_attention", counts=_are_slow)


def _products_without_tf32(context: Context) -> list[Candidate]:
    timeline = context.timeline
    chosen = products_without_tf32(timeline)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return []
    is_convolution = are_convolutions(timeline, rows)
    switches = [] if is_convolution.all() else [_TF32_SWITCH]
    switches += [_CUDNN_SWITCH] if is_convolution.any() else []
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    max_saved = np.zeros(len(chosen))
    max_saved[rows] = 1 - left_in_tf32(timeline, rows, length_ns)[:, 0]
    is_mostly = 2 * int(length_ns[is_convolution].sum()) > int(length_ns.sum())
    what = "Convolutions run" if is_mostly else "Matrix products run"
    return _candidate(
        context,
        chosen,
        PRODUCTS.cases["float32_products"],
        {"what": what, "switches": " and ".join(switches)},
        max_saved=max_saved,
    )


def _double_precision(context: Context) -> list[Candidate]:
    is_double = _named(is_float64)(context.timeline)
    return _candidate(context, is_double, DOUBLE.cases["float64"])


def _table_gradients(context: Context) -> list[Candidate]:
    left = left_of_table_gradients(context.timeline)[:, 1]
    return _candidate(context, left < 1, TABLES.cases["table_gradients"], max_saved=1 - left)


def _long_chains(context: Context) -> list[Candidate]:
    """Find the elementwise kernels of one function and its backward pass, if they are a quarter."""
    min_ns = _MIN_CHAIN_WINDOW_SHARE * context.window.length_ns
    found = _chains(context)
    return [replace(x, role=GENERIC) for x in found if max(x.limit_ns.values()) >= min_ns]


_chains = _work_of_remedies("TL408", "elementwise_chains", counts=_named(is_elementwise))

PRODUCTS = load_rule("TL401", lambda x: [*_products_without_tf32(x), *_float32_attention(x)])
DOUBLE = load_rule("TL403", _double_precision)
TABLES = load_rule("TL407", _table_gradients)
RULES = (
    PRODUCTS,
    _rule_of_remedies("TL402", "layout", counts=_named(is_layout_change), in_forward=False),
    DOUBLE,
    _rule_of_remedies("TL404", "untrained", in_forward=False),
    _rule_of_remedies("TL405", "recomputation", in_forward=False),
    _rule_of_remedies(
        "TL406", "attention_scores", counts=lambda x: ~launched_by(x, is_batched_product)
    ),
    TABLES,
    load_rule("TL408", _long_chains),
    _rule_of_remedies("TL409", "unprepared", at_events=True),
    _rule_of_remedies("TL410", "uncompiled", counts=_named(is_elementwise), at_events=True),
    _rule_of_remedies("TL411", "slow_kernels", counts=_are_slow),
)
