"""Savings of a job's findings of the job's step, by a replay of all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tracelab.findings.finding import REST, Finding, add_saving, mark_rest, sort_findings
from tracelab.findings.places import ALL_SPECIFIC, JOINT, TOGETHER
from tracelab.findings.prices import changes_in, joint_changes
from tracelab.findings.savings import Savings
from tracelab.job.lateness import MORE_WORK
from tracelab.job.replay import Change, JobPrediction, JobReplay, balanced, leveled, predict_job
from tracelab.simulate.edits import Edit
from tracelab.simulate.predict import Prediction, describe, margin_of
from tracelab.simulate.program import Program

_LEVEL, _BALANCE = "level", "balance"
_RANK = "rank:"


def price_in_job(
    findings: Sequence[Finding], savings: Sequence[Savings], ranks: Sequence[int], job: JobReplay
) -> tuple[tuple[Finding, ...], tuple[Savings, ...]]:
    """The findings with what they save of the job's step, and what all of them save together.

    A change is made on all ranks that have a finding with it, as their programs are alike. Of what
    it saves a rank where it hardly matters has only what it adds to the others.

    Args:
        findings: those of the job, judged by the share that is attributed to them.
        savings: a row of each rank, of its own step.
        ranks: the ranks, in the order in which they are replayed.
        job: how they are replayed; a job that is.
    """
    basis = job.baseline.printed
    assert basis is not None  # it is replayed
    step_ns = basis.step_ns
    by_edit = {
        finding.edit: finding
        for finding in findings
        if finding.edit is not None and finding.saves_reason is None
    }
    by_text = {text: finding.cause for text, finding in by_edit.items()}
    changes = [
        _change(text, changes_in(text), cause, ranks, job) for text, cause in by_text.items()
    ]
    main = {text: _main_ranks(text, findings) for text in by_text}
    of_main = [
        _change(text, changes_in(text), cause, ranks, job, main[text])
        for text, cause in by_text.items()
    ]
    together = _change(TOGETHER, joint_changes(map(changes_in, by_text)), "", ranks, job)
    texts = [text for text, x in by_edit.items() if not x.is_generic]
    specific = _change(ALL_SPECIFIC, joint_changes(map(changes_in, texts)), "", ranks, job)
    *alone, predicted_specific, predicted_together = predict_job(
        job, [*changes, *of_main, specific, together]
    )
    saved = [_saved_ns(predicted, step_ns) for predicted in alone]
    on_all = dict(zip(by_text, saved, strict=False))
    on_main = dict(zip(by_text, saved[len(by_text) :], strict=True))
    priced = tuple(
        add_saving(
            finding,
            step_ns,
            on_all[finding.edit]
            if finding.rank in main[finding.edit]
            else _added_ns(on_all[finding.edit], on_main[finding.edit]),
        )
        if finding.edit in by_text and finding.saves_reason is None
        else finding
        for finding in findings
    )
    specific_saved, together_saved = (
        _saved_ns(x, step_ns) for x in (predicted_specific, predicted_together)
    )
    if any(x.is_generic and x.saves_ns is not None for x in priced):
        priced = mark_rest(priced, specific_saved[0], together_saved[0])
    rest = _added_ns(together_saved, specific_saved)
    priced = tuple(
        add_saving(x, step_ns, rest) if x.role == REST and x.saves_ns else x for x in priced
    )
    saves_ns, low_ns, high_ns = together_saved
    rows = tuple(
        replace(
            row,
            step_ns=step_ns,
            basis=basis.name,
            is_of_job=True,
            saves_ns=saves_ns if by_text else None,
            saves_low_ns=low_ns if by_text else None,
            saves_high_ns=high_ns if by_text else None,
            edits=tuple(map(describe, joint_changes(map(changes_in, by_text)))),
        )
        for row in savings
    )
    steps = len(job.baseline.steps)
    return tuple(
        finding
        for rank in sorted({x.rank for x in priced})
        for finding in sort_findings((x for x in priced if x.rank == rank), steps, step_ns)
    ), rows


def predict_in_job(
    edits: Sequence[str | Callable[[Any], Any]], ranks: Sequence[int], job: JobReplay
) -> tuple[Prediction, ...]:
    """Predict the job's step with each edit, made on all ranks, and with all of them last.

    Args:
        edits: as `Options.edits`.
        ranks: the ranks, in the order in which they are replayed.
        job: how they are replayed; a job that is.
    """
    basis = job.baseline.printed
    assert basis is not None  # it is replayed
    step_ns = basis.step_ns
    by_text = {JOINT.join(map(describe, changes)): changes for changes in map(changes_in, edits)}
    if len(by_text) > 1:
        by_text[TOGETHER] = joint_changes(by_text.values())
    changes = [_change(text, some, "", ranks, job) for text, some in by_text.items()]
    return tuple(
        Prediction(
            name=text,
            edits=tuple(map(describe, some)),
            findings=(),
            step_ns=step_ns,
            predicted_ns=predicted.predicted_ns,
            low_ns=predicted.low_ns,
            high_ns=predicted.high_ns,
            reason=_reason(text, some, job),
        )
        for (text, some), predicted in zip(by_text.items(), predict_job(job, changes), strict=True)
    )


def _reason(
    name: str, edits: Sequence[Edit | Callable[[Program], Program]], job: JobReplay
) -> str | None:
    """Return the reason for no saving, from ranks where the edit changes something if any."""
    if any(isinstance(edit, Edit) and edit.kind in (_LEVEL, _BALANCE) for edit in edits):
        return None
    of_ranks = [rank.changes[name] for rank in job.ranks if name in rank.changes]
    changed = [edited for edited in of_ranks if edited.count] or of_ranks
    return next((edited.reason for edited in changed if edited.reason is not None), None)


def _change(
    name: str,
    changes: Sequence[Edit | Callable[[Program], Program]],
    cause: str,
    ranks: Sequence[int],
    job: JobReplay,
    at: Container[int] | None = None,
) -> Change:
    """The programs of a job's ranks with some changes, those of a finding for one.

    Args:
        name: what the changes are called.
        changes: the changes.
        cause: of the finding.
        ranks: the ranks, in the order in which they are replayed.
        job: how they are replayed.
        at: the ranks on which they are made; None for all that have them.
    """
    edits = [edit for edit in changes if isinstance(edit, Edit)]
    of_ranks = {
        index: rank.changes[name]
        for index, rank in enumerate(job.ranks)
        if name in rank.changes and (at is None or ranks[index] in at)
    }
    return Change(
        programs=_compared({i: of.program for i, of in of_ranks.items()}, edits, ranks, job),
        low=_compared({i: of.low for i, of in of_ranks.items()}, edits, ranks, job),
        high=(
            # Larger work, not more of it, may have to be done by another rank.
            balanced(job, {})
            if cause == MORE_WORK and _is_larger(edits, ranks, job)
            else _compared({i: of.high for i, of in of_ranks.items()}, edits, ranks, job)
        ),
        margin=margin_of(changes),
    )


def _is_larger(edits: Sequence[Edit], ranks: Sequence[int], job: JobReplay) -> bool:
    """Return True if a rank that is made level launches as much as the others, and takes longer."""
    leveled_ranks = [edit.place for edit in edits if edit.kind == _LEVEL]
    return all(
        job.surplus_ns[ranks.index(int(place.removeprefix(_RANK)))] is None
        for place in leveled_ranks
        if place is not None
    )


def _compared(
    programs: dict[int, Program], edits: Iterable[Edit], ranks: Sequence[int], job: JobReplay
) -> dict[int, Program]:
    """Programs of some ranks with the edits that compare ranks."""
    for edit in edits:
        if edit.kind == _BALANCE:
            programs = balanced(job, programs)
        elif edit.kind == _LEVEL and edit.place is not None:
            programs = leveled(job, programs, ranks.index(int(edit.place.removeprefix(_RANK))))
    return programs


def _main_ranks(edit: str, findings: Iterable[Finding]) -> frozenset[int]:
    """The ranks of findings with an edit, without those where they cost less than half as much."""
    costs_ns = {x.rank: x.cost_ns for x in findings if x.edit == edit and x.saves_reason is None}
    most_ns = max(costs_ns.values())
    return frozenset(rank for rank, cost_ns in costs_ns.items() if 2 * cost_ns >= most_ns)


def _added_ns(on_all: tuple[int, int, int], on_main: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the saving of further ranks, its least and its most, ns; as of `_saved_ns`."""
    low_ns, saves_ns, high_ns = sorted(
        max(0, of_all - of_main) for of_all, of_main in zip(on_all, on_main, strict=True)
    )
    return saves_ns, low_ns, high_ns


def _saved_ns(prediction: JobPrediction, step_ns: int) -> tuple[int, int, int]:
    """Return the saving, its least and its most, ns."""
    saves_ns, low_ns, high_ns = (
        max(0, step_ns - ns)
        for ns in (prediction.predicted_ns, prediction.high_ns, prediction.low_ns)
    )
    return saves_ns, low_ns, high_ns
