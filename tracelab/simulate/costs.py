"""Edits of what things take: the host's work, calls, activities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import is_free
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import match_names
from tracelab.model.trace import ABSENT
from tracelab.simulate.edited import Edited, times, with_cost
from tracelab.simulate.program import Program
from tracelab.simulate.sites import Selection
from tracelab.simulate.waits import with_less_host_work, without_host_work

_MIN_SHARE = 0.5  # of the time between two calls that is work of a place


def remove(program: Program, selection: Selection) -> Edited:
    """The call site costs no host time and launches nothing.

    Without any call that frees memory, as of ``empty_cache``, none has to be allocated again.
    """
    calls = selection.calls | _allocated_again(selection)
    changed = without_host_work(program, selection.sites, calls, selection.host_share)
    return Edited.exactly(changed, _count(selection))


def _allocated_again(selection: Selection) -> NDArray[np.bool_]:
    """bool[n], the calls that allocate, if a place has all those that free; else none."""
    sites = selection.sites
    allocates = sites.blocking == Blocking.ALLOCATION
    frees = allocates.copy()
    frees[frees] = match_names(sites.timeline.trace, sites.program.event_id[frees], is_free)
    if not frees.any() or not selection.calls[frees].all():
        return np.zeros(len(frees), dtype=np.bool_)
    return np.asarray(allocates & ~frees)


def host(program: Program, selection: Selection, value: float) -> Edited:
    """Its host time, with all that it calls, takes `value` times as long; the GPU's stays."""
    changed = with_cost(program, selection.calls, times(program.cost_ns, value))
    changed = with_less_host_work(changed, selection.host_share, value)
    return Edited.exactly(changed, _count(selection))


def on_gpu(program: Program, selection: Selection) -> Edited:
    """The GPU computes what the host does there, whose time goes with the copies next to it.

    Its input may have to be copied instead: at worst these copies stay.
    """
    sites, share = selection.sites, selection.host_share
    on_host = host(program, selection, 0)
    recorded = sites.program
    edges = np.flatnonzero(share >= _MIN_SHARE)
    is_next = np.zeros(len(recorded.kind), dtype=np.bool_)
    is_next[recorded.source[edges]] = is_next[recorded.target[edges]] = True
    calls = np.isin(recorded.event_id, recorded.event_id[is_next])
    calls &= sites.blocking == Blocking.COPY
    gone = without_host_work(on_host.program, sites, calls, np.zeros(len(share)))
    return Edited(gone, gone, on_host.program, on_host.count)


def python(program: Program, selection: Selection, value: float) -> Edited:
    """What the host does there beside PyTorch takes `value` times as long: Python, numpy.

    Operators and functions of PyTorch's stay as they are. But if nothing is left of work between a
    copy from the GPU and one to it, that may be done there, and these two go.
    """
    share = selection.python_share
    changed = with_less_host_work(program, share, value)
    count = int((share > 0).sum())
    if value:
        return Edited.exactly(changed, count)
    sites = selection.sites
    copies = selection.calls & (sites.blocking == Blocking.COPY)
    launch = program.launch_node
    directions = sites.copy_direction[(launch != ABSENT) & copies[launch]]
    if not {"d2h", "h2d"} <= {*directions.tolist()}:
        return Edited.exactly(changed, count)
    on_gpu = without_host_work(changed, sites, copies, np.zeros(len(share)))
    return Edited(on_gpu, on_gpu, changed, count)


def load(program: Program, selection: Selection, value: float) -> Edited:
    """Data loading in the threads that launch takes `value` times as long."""
    sites = selection.sites
    share = sites.loading_share * selection.host_share
    changed = with_less_host_work(program, share, value)
    return Edited.exactly(changed, int((share > 0).sum()))


def workers(program: Program, selection: Selection, value: float) -> Edited:
    """So many times as many processes load the data, one step ahead.

    As long as they have a processor each, the thread that launches waits for none of it, or for
    its share of what is left; where they share one, for twice that share.
    """
    shares = (1 / max(value, 1), 0.0, min(1.0, 2 / max(value, 1)))
    middle, low, high = (load(program, selection, share) for share in shares)
    return Edited(middle.program, low.program, high.program, middle.count)


def scale(program: Program, selection: Selection, value: float) -> Edited:
    """Its GPU activities take `value` times as long."""
    return _scaled(program, selection.activities, value)


def comm(program: Program, selection: Selection, value: float) -> Edited:
    """Its communication takes `value` times as long."""
    is_comm = program.activity_kind == Kind.COMM
    return _scaled(program, selection.activities & is_comm, value)


def _scaled(program: Program, nodes: NDArray[np.bool_], factor: float) -> Edited:
    changed = with_cost(program, nodes, times(program.cost_ns, factor))
    return Edited.exactly(changed, int(nodes.sum()))


def _count(selection: Selection) -> int:
    return int(selection.calls.sum()) or int((selection.host_share > 0).sum())
