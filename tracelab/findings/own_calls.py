"""What the edit of a finding changes: the calls and activities of that finding alone."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.context import Context
from tracelab.findings.finding import Finding, call_site_of
from tracelab.findings.places import places_of
from tracelab.findings.rules import tl201_copy_overlap, tl202_comm_overlap
from tracelab.model.frames import is_source_function, parse_frame
from tracelab.model.kernel_kinds import Kind
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT
from tracelab.simulate.edits import Edit
from tracelab.simulate.program import NodeKind, Program, Via
from tracelab.simulate.sites import Selection, Sites


class NoPlace(StrEnum):
    """Why a replay says nothing about the edit of a finding."""

    NOT_IN_STEPS = "not_in_steps"
    NO_PLACE = "no_place"
    LAUNCHES = "launches"


MIN_COST_SHARE = 0.1  # of the host work that an edit takes away
# Their findings are of one kernel or kind of copy at a call site.
_BY_ACTIVITY = (tl201_copy_overlap.RULE.id, tl202_comm_overlap.RULE.id)


def own_place(finding: Finding, edit: Edit, sites: Sites, context: Context) -> str | NoPlace:
    """Name what is a finding's own, by the most exact place that is nothing else.

    Where each of its places holds more, it gets a name of its own, as of `Sites.name_events`.
    """
    if edit.kind == "python":
        return _place_on_host(finding, sites, context)
    first, *others = places_of(finding.where)
    program = sites.program
    there = _changed(edit.kind, sites.select(first), sites)
    if not there.any():
        return NoPlace.NOT_IN_STEPS
    own = there.copy()
    own[there] = _are_own(finding, program, np.flatnonzero(there), context)
    if not own.any():
        return NoPlace.NO_PLACE
    for place in (first, *others):
        if np.array_equal(_changed(edit.kind, sites.select(place), sites), own):
            return place
    return sites.name_events(first, finding.remedy or finding.rule, program.event_id[own])


def _are_own(
    finding: Finding, program: Program, nodes: NDArray[np.intp], context: Context
) -> NDArray[np.bool_]:
    """bool[k], which calls or activities (nodes) at a finding's place are the finding's."""
    where, row = finding.where, program.row[nodes]
    call_id = program.event_id[np.where(row == ABSENT, nodes, program.launch_node[nodes])]
    sites = context.call_sites(call_id)
    if where.api and not (where.function or where.operator):
        at_site = [not (site.function or site.operator) for site in sites]
    else:
        at_site = [site == call_site_of(where) for site in sites]
    own = np.array(at_site, dtype=np.bool_)
    if finding.rule in _BY_ACTIVITY:
        own &= np.array([context.kernel_name(x) == where.activity for x in row.tolist()])
    remedies = context.recognized.remedies(call_id, finding.rule)
    of_remedy = own & [(remedy and remedy.id) == finding.remedy for remedy in remedies]
    # A gap may be the remedy's where the launch behind it is not.
    return of_remedy if of_remedy.any() else own


def _changed(kind: str, selection: Selection, sites: Sites) -> NDArray[np.bool_]:
    """bool[n], the calls or activities that an edit of a place changes."""
    changed: NDArray[np.bool_]
    if kind == "unblock":
        changed = selection.calls & (sites.blocking != ABSENT)
    elif kind == "remove":
        changed = selection.calls & (sites.program.kind == NodeKind.CALL)
    else:
        changed = selection.activities & _is_changed(kind, sites.program)
    return changed


def _is_changed(kind: str, program: Program) -> NDArray[np.bool_]:
    """bool[n], the activities that an edit of a kind can change."""
    changed: NDArray[np.bool_] = program.launch_node != ABSENT
    if kind in ("prefetch", "pin"):
        changed &= program.activity_kind == Kind.COPY
    if kind == "no-wait":
        waits = np.zeros(len(program.kind), dtype=np.bool_)
        waits[program.target[program.via == Via.EVENT]] = True
        changed &= waits
    return changed


def _place_on_host(finding: Finding, sites: Sites, context: Context) -> str | NoPlace:
    """Name work of the program's own on the host: launching stays where it is.

    What a function does for one that launches nothing either is part of that one's work.
    """
    cost_ns = finding.cost_ns / max(1, len(context.typical_steps))
    first, *others = places_of(finding.where)
    pauses = sites.name_pauses(first)
    places = (*_done_for(first, sites), first, *others)
    host_work = [place for place in places if sites.select(place).host_share.any()][:1]
    for place in (*host_work, pauses):
        work_ns = _python_ns(sites.select(place), sites.program)
        # Where the GPU waited for next to nothing of it, another finding is about that work; and
        # where that is next to nothing of what it waited for, the rest is PyTorch's.
        if work_ns and MIN_COST_SHARE * work_ns <= cost_ns <= work_ns / MIN_COST_SHARE:
            return place
    return NoPlace.LAUNCHES if host_work else NoPlace.NOT_IN_STEPS


def _python_ns(selection: Selection, program: Program) -> float:
    """What Python and other libraries do at a place in a step, ns."""
    share = selection.python_share
    return float((share * program.latency_ns[: len(share)])[share > 0].sum()) / program.steps


def _done_for(place: str, sites: Sites) -> list[str]:
    """The functions that a place works for and that launch nothing, the outermost first."""
    regions = sites.select(place).regions()
    if not regions or sites.select(place).calls.any():
        return []
    thread, region = next(iter(regions.items()))
    frames = python_frames(sites.timeline)
    trace, names = sites.timeline.trace, list[str]()
    index = frames.innermost_at(thread, region.starts[:1])
    while index[0] != ABSENT:
        name = trace.strings[trace.name_index[frames.event_id[index[0]]]]
        frame = parse_frame(name)
        if frame is not None and is_source_function(name) and frame.function != place:
            if sites.select(frame.function).calls.any():
                break
            names.insert(0, frame.function)
        index = frames.parent_index[index]
    return names
