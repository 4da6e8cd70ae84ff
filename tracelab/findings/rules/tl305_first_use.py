"""TL305: costs of a first use that sit in the recording."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.allocations import (
    allocations,
    candidate_of_allocations,
    counted,
    fills_for_the_first_time,
    names_of,
    those_that_cost,
)
from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.rule import Rule
from tracelab.intervals import Intervals, intersect, measure_within, union
from tracelab.measures.bubbles import Cause
from tracelab.model.call_sites import CallSite
from tracelab.model.driver_api import is_kernel_launch, loads_module
from tracelab.model.lookup import calls_of_name, match_names
from tracelab.model.steady import FEWEST_STEPS
from tracelab.model.trace import ABSENT, Category
from tracelab.model.wording import describe

_BY_HOST = (Cause.HOST_BLOCKED, Cause.HOST_BUSY, Cause.LAUNCH)
# A launch takes 2 to 10 us, one that loads the kernel's code first 0.3 to 300 ms.
_SLOW_LAUNCH_NS = 200_000
# An operator of cuDNN that has its plan takes below 0.2 ms of the host, one that makes it 10 to 80.
_PLANNING_NS = 2_000_000
_PLANS = re.compile(r"cudnn_(?:attention|convolution|rnn)|miopen_(?:convolution|rnn)")
_FIX_OF_LOADING = (
    "Nothing in the loop: the code of a kernel is loaded once. Record after a few more steps "
    "(`torch.profiler.schedule(wait=..., warmup=...)`); where the first step counts, set "
    "`CUDA_MODULE_LOADING=EAGER`."
)
_FIX_OF_GROWTH = (
    "Nothing in the loop, if it ends: the allocator keeps the memory that it got. Record after a "
    "few more steps. If later steps allocate too, their shapes differ: pad or bucket them."
)
_FIX_OF_ATTENTION = (
    "cuDNN plans attention for each new length. Use another backend "
    "(`torch.backends.cuda.enable_cudnn_sdp(False)`), or keep to a few lengths: pad, or use a "
    "cache of fixed size."
)
_FIX_OF_PLANNING = (
    "A plan is made for each new shape (`torch.backends.cudnn.benchmark` tries several). Record "
    "after a few more steps; if later steps plan too, keep to a few shapes."
)


def find(context: Context) -> list[Candidate]:
    """Kernels whose code was loaded, plans that were made, memory that the allocator got."""
    return [*_of_loading(context), *_of_planning(context), *_of_growth(context)]


def _of_loading(context: Context) -> list[Candidate]:
    """The first launches of kernels that took long, and the calls that load modules."""
    trace = context.trace
    first_id = _first_launches(context)
    slow_id = first_id[trace.duration_ns[first_id] >= _SLOW_LAUNCH_NS]
    call_id = np.union1d(slow_id, calls_of_name(trace, loads_module))
    lost, costly_id = _idle_during(context, call_id)
    if not lost:
        return []
    name, call_site = _most_of(context, costly_id)
    count = f"{len(costly_id)} call{'s' * (len(costly_id) > 1)}"
    title = f"Kernels' code is loaded at their first launch ({count}), most of all at "
    return [
        Candidate(
            title=title + describe(call_site, name),
            cause="first_use",
            where=where(call_site, count=len(costly_id), api=name),
            evidence=most_expensive(costly_id.tolist(), trace.duration_ns[costly_id].tolist()),
            fix=_FIX_OF_LOADING,
            lost=lost,
            severity_override=INFO,
        )
    ]


def _of_planning(context: Context) -> list[Candidate]:
    """Operators that plan before they launch, by call site: each new shape costs it again."""
    trace = context.trace
    operator_id = trace.of_category(Category.OPERATOR)
    operator_id = operator_id[trace.duration_ns[operator_id] >= _PLANNING_NS]
    operator_id = operator_id[match_names(trace, operator_id, _PLANS.search)]
    candidates = []
    for call_site, group in grouped(context.call_sites(operator_id)).items():
        planning_id = operator_id[group]
        lost, costly_id = _idle_during(context, planning_id)
        if not lost:
            continue
        name = trace.name_of(int(costly_id[0]))
        is_attention = "attention" in name
        is_often = is_attention and len(planning_id) >= FEWEST_STEPS
        goes_on = is_often or _goes_on(context, planning_id)
        candidates.append(
            Candidate(
                title=f"{describe(call_site, name)} creates a plan "
                + ("for each new shape" if goes_on else "at its first use"),
                cause="planning",
                where=where(call_site, count=len(costly_id)),
                evidence=most_expensive(costly_id.tolist(), trace.duration_ns[costly_id].tolist()),
                fix=_FIX_OF_ATTENTION if is_attention else _FIX_OF_PLANNING,
                lost=lost,
                severity_override=None if goes_on else INFO,
            )
        )
    return candidates


def _goes_on(context: Context, event_id: NDArray[np.integer[Any]]) -> bool:
    """Whether at least every other of several steady steps has one of these events."""
    start_ns, steps = context.trace.start_ns[event_id], context.steady_steps
    has_one = [((start_ns >= step.start_ns) & (start_ns < step.end_ns)).any() for step in steps]
    return len(steps) > 1 and 2 * sum(has_one) >= len(steps)


def _of_growth(context: Context) -> list[Candidate]:
    """The allocator's calls that do not go on in later steps."""
    own_index, _ = allocations(context)
    costly_index = those_that_cost(context, own_index)
    if not len(costly_index) or not fills_for_the_first_time(context, own_index):
        return []
    costs, names = context.blocking_calls, names_of(context, costly_index)
    top = int(np.argmax(costs.caused_idle_ns[costly_index]))
    call_site = costs.call_sites[costly_index[top]]
    title = f"The allocator grows: {counted(names)}, most of all at "
    return [
        candidate_of_allocations(
            context,
            costly_index,
            call_site,
            api=names[top],
            title=title + describe(call_site, names[top]),
            cause="first_use",
            fix=_FIX_OF_GROWTH,
            severity_override=INFO,
        )
    ]


def _first_launches(context: Context) -> NDArray[np.integer[Any]]:
    """The event id of the first call of the file that launched each kernel, by its name."""
    timeline, trace = context.timeline, context.trace
    launched = np.flatnonzero(timeline.launch_id != ABSENT)
    launch_id = timeline.launch_id[launched]
    is_kernel = match_names(trace, launch_id, is_kernel_launch)
    launched, launch_id = launched[is_kernel], launch_id[is_kernel]
    by_launch = np.argsort(trace.start_ns[launch_id], kind="stable")
    names = trace.name_index[timeline.event_id[launched[by_launch]]]
    _, first = np.unique(names, return_index=True)
    return launch_id[by_launch[first]]


def _idle_during(
    context: Context, event_id: NDArray[np.integer[Any]]
) -> tuple[dict[int, Intervals], NDArray[np.integer[Any]]]:
    """Device to its idle during some events of the host, and those events that cost any."""
    trace = context.trace
    start_ns, end_ns = trace.start_ns[event_id], trace.end_ns[event_id]
    during = union(start_ns, end_ns)
    idle = {
        device: intersect(context.idle(device, context.is_idle_by(*_BY_HOST)), during)
        for device in context.active_devices
    }
    is_costly = np.zeros(len(event_id), dtype=np.bool_)
    for time in idle.values():
        is_costly |= measure_within(time, start_ns, end_ns) > 0
    return {device: time for device, time in idle.items() if len(time)}, event_id[is_costly]


def _most_of(context: Context, call_id: NDArray[np.integer[Any]]) -> tuple[str, CallSite]:
    """The name and call site of the longest of some calls."""
    longest_id = call_id[[int(np.argmax(context.trace.duration_ns[call_id]))]]
    [call_site] = context.call_sites(longest_id)
    return context.trace.name_of(int(longest_id[0])), call_site


RULE = Rule(
    id="TL305",
    name="the cost of a first use, in the recorded steps",
    matters="The first launch of a kernel loads its code, cuDNN plans an operator for each new "
    "shape, and the allocator requests memory from CUDA that it then keeps. A warmed-up program "
    "does none of this, so such a recording does not show a typical step.",
    decides="It takes the idle time during three kinds of host work: the first launch of each "
    "kernel in the file if it takes more than 0.2 ms, and calls that load modules; operators of "
    "cuDNN and MIOpen that keep the host busy for more than 2 ms; and allocations in the first "
    "step only or, if nothing is freed, in fewer than half of the steady steps. Planning that "
    "continues in later steps counts like any other cost; the rest is for information.",
    before="with profile() as prof:\n    train_step()  # the very first one",
    after="for _ in range(3):\n    train_step()\nwith profile() as prof:\n    train_step()",
    find=find,
)
