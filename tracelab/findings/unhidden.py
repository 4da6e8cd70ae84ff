"""Claims of exposed communication and copies, by obstacle and place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.claims import MOST_EVIDENCE, grouped, most_expensive, where
from tracelab.findings.facts import Context
from tracelab.findings.finding import INFO
from tracelab.findings.rule import Candidate
from tracelab.findings.wording import describe, short_name
from tracelab.measures.exposed import Side, side_of_independent_work
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind

# What runs where, its name on the GPU, its obstacle, what that means -> title, fix.
Wording = Callable[[str, str, OverlapBlocker, str], tuple[str, str]]
_ONCE = 1.5  # a step, give or take one that the recording cut
_HOLDS = (OverlapBlocker.SAME_STREAM, OverlapBlocker.EVENT_WAIT, OverlapBlocker.HARDWARE_QUEUE)


def claims_of_exposed(
    facts: Context, chosen: NDArray[np.bool_], wording: Wording
) -> list[Candidate]:
    """One claim for each place and obstacle of some exposed stretches."""
    found, timeline = facts.exposed, facts.timeline
    inside = (found.start_ns < facts.window.end_ns) & (found.end_ns > facts.window.start_ns)
    pieces = np.flatnonzero(chosen & inside)
    rows = found.row[pieces].tolist()
    places = facts.call_sites(timeline.launch_id[rows].tolist())
    keys = [
        (OverlapBlocker(int(found.blocker[piece])), place, facts.name(row))
        for piece, place, row in zip(pieces.tolist(), places, rows, strict=True)
    ]
    claims = []
    for (obstacle, place, name), group in grouped(keys).items():
        mine = pieces[group]
        devices = timeline.device_number[found.row[mine]]
        bound = found.bound_ns[mine]
        behind = _behind(facts, mine)
        what = describe(place, "")
        title, fix = wording(f"{what}: {name}" if what else name, name, obstacle, behind)
        length = found.end_ns[mine] - found.start_ns[mine]
        claims.append(
            Candidate(
                title=title,
                cause=obstacle.name.lower(),
                where=where(place, count=len(set(found.row[mine].tolist())), activity=name),
                evidence=(
                    *most_expensive(timeline.event_id[found.row[mine]].tolist(), length.tolist()),
                    *_held(facts, mine),
                ),
                fix=fix,
                lost=facts.by_device(devices, found.start_ns[mine], found.end_ns[mine]),
                limit_ns={
                    device: int(bound[devices == device].sum())
                    for device in np.unique(devices).tolist()
                },
                # A slow host is TL301's to tell; what ran unhidden meanwhile may have needed it.
                severity_override=INFO
                if obstacle == OverlapBlocker.LATE_LAUNCH or _feeds_the_next_layer(facts, mine)
                else None,
            )
        )
    return claims


def _feeds_the_next_layer(facts: Context, pieces: NDArray[np.intp]) -> bool:
    """Whether these are collectives between the layers of a model, as tensor parallelism has them.

    That is taken of all that run several times a step outside the backward pass and are no
    all-gather: what follows most likely needs them.
    """
    timeline = facts.timeline
    unique = np.unique(facts.exposed.row[pieces])
    steps = 1 if facts.window.step is not None else max(1, len(timeline.steps))
    after = side_of_independent_work(timeline, unique) == Side.AFTER
    return (
        bool((timeline.kind[unique] == Kind.COMM).all())
        and bool(after.all())
        and not facts.in_backward[unique].any()
        and len(unique) > _ONCE * steps
    )


def _behind(facts: Context, pieces: NDArray[np.intp]) -> str:
    """The blocking call behind most of these stretches, or the kernel that waited; "" without."""
    calls = [x for x in facts.exposed.blocking_call_id[pieces].tolist() if x >= 0]
    if calls:
        [(call, _)] = Counter(calls).most_common(1)
        [place] = facts.call_sites([call])
        return f", because {describe(place, facts.trace.name_of(call))} blocks"
    names = Counter(facts.trace.name_of(event) for event in _held(facts, pieces))
    return "".join(f"; {short_name(name)} waits for it" for name, _ in names.most_common(1))


def _held(facts: Context, pieces: NDArray[np.intp]) -> tuple[int, ...]:
    """Event ids of the work that could not run beside these stretches."""
    found = facts.exposed
    holds = pieces[np.isin(found.blocker[pieces], _HOLDS)]
    held = found.blocked_row[holds][found.blocked_row[holds] != found.row[holds]]
    return tuple(dict.fromkeys(facts.timeline.event_id[held[held >= 0]].tolist()))[:MOST_EVIDENCE]
