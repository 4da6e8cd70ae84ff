"""Data of the page's timeline: all files on one clock, within the size of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.base.names import short_names
from tracelab.base.safe_text import visible
from tracelab.render.html.detail import MAX_NAMES, Cited, Fitted, Group, Name, fit, group_of
from tracelab.render.palette import page_kinds
from tracelab.render.ranks import rank_shares
from tracelab.render.scene import Scene, evidence_of
from tracelab.report.glossary import CAUSES, CONSTRAINTS, PATH_KINDS
from tracelab.report.schema import Report

VERSION = 1
_MAX_OPEN_GROUPS = 2
_MAX_GROUPS = 64
_MAX_ABSENT = 8
_MAX_WINDOWS = 5_000
# Around a cited place, which takes at least a ninth of the view.
_MARGIN_NS, _MAX_MARGIN_LENGTHS = 20_000, 4
# The same outside of steps.
_MARGIN_WITHOUT_STEP_NS, _MARGIN_LENGTHS_WITHOUT_STEP = 200_000, 10


class TimelineData(Record, eq=False):
    """Data of a page's timeline; columns are gzip of byte planes."""

    meta: dict[str, Any]
    columns: bytes


def timeline_data(report: Report, scenes: Sequence[Scene]) -> TimelineData:
    """Return the timeline of a report's files, by rank."""
    on_one_clock = all(scene.clock for scene in scenes)
    names, groups, findings, fitted = _fitting(report, scenes, on_one_clock=on_one_clock)
    start_ns = min(group.start_ns for group in groups)
    windows = _windows(groups, on_one_clock=on_one_clock)
    paths, paces = [scene.path for scene in scenes], _paces(report)
    file_of = dict(zip(paths, map(visible, short_names(paths)), strict=True))
    opened = _chosen(report, [group.scene for group in groups], _MAX_OPEN_GROUPS)
    # In other keys an underscore is a space.
    words = {key: kind.word for key, kind in page_kinds().items() if kind.word}
    meta = {
        "version": VERSION,
        "start": start_ns,
        "zero": start_ns if on_one_clock else 0,
        # A lone activity may have no length, which a page cannot draw.
        "end": max(start_ns + 1, *(group.end_ns for group in groups)),
        "names": [name.text for name in names],
        "short": [name.short for name in names],
        "words": {**PATH_KINDS.names, **CAUSES.names, **words},
        "causes": dict(CAUSES.meanings),
        "reasons": [CONSTRAINTS.meanings[key] for key in _reasons(groups)],
        "windows": windows[:_MAX_WINDOWS],
        "note": " ".join(_notes(scenes, groups, fitted, on_one_clock=on_one_clock)),
        "groups": [
            {
                "label": group.scene.label,
                "rank": group.scene.rank,
                "file": file_of[group.scene.path],
                "pace": paces.get(group.scene.rank, ""),
                "open": group.scene in opened,
                "detail": list(fitted.details[index]),
                "lanes": [dict(lane.meta) for lane in fitted.lanes[index]],
            }
            for index, group in enumerate(groups)
        ],
        "findings": [
            _shown(finding, fitted.details[finding.group_index], groups, windows)
            for finding in findings
        ],
    }
    return TimelineData(meta, fitted.columns)


def _fitting(
    report: Report, scenes: Sequence[Scene], *, on_one_clock: bool
) -> tuple[list[Name], list[Group], list[_Located], Fitted]:
    shown = _chosen(report, scenes, _MAX_GROUPS)
    while shown:
        names: dict[Name, int] = {}
        groups = [group_of(scene, names) for scene in shown]
        findings = _locate(groups)
        cited = [cited for finding in findings for cited in finding.cited]
        fitted = fit(groups, cited, on_one_clock=on_one_clock)
        if fitted is not None:
            return list(names)[:MAX_NAMES], groups, findings, fitted
        shown = _chosen(report, shown, len(shown) // 2)
    raise UsageError(
        f"{scenes[0].label} has too many lanes for a page: choose a step of it (`step`)",
        option="step",
    )


def _chosen(report: Report, scenes: Sequence[Scene], most: int) -> list[Scene]:
    waited_for = {x.rank for x in report.job.stragglers} if report.job else set()
    in_order = sorted(scenes, key=lambda scene: (scene.rank not in waited_for, scene.rank))
    return sorted(in_order[:most], key=lambda scene: scene.rank)


def _paces(report: Report) -> dict[int, str]:
    """Name three ranks of a job by their waits: the slowest waits least."""
    shares = sorted(rank_shares(report), key=lambda x: x.wait_ns)
    if not shares or shares[0].wait_ns == shares[-1].wait_ns:
        return {}
    middle, first, last = (shares[i].rank for i in (len(shares) // 2, 0, -1))
    return {middle: "median", first: "slowest", last: "fastest"}


def _notes(
    scenes: Sequence[Scene], shown: Sequence[Group], fitted: Fitted, *, on_one_clock: bool
) -> Iterator[str]:
    if len(shown) > 1 and not on_one_clock:
        yield "Each file has a clock of its own, which begins with its first event."
    if left_out := len(scenes) - len(shown):
        ranks = {group.scene.rank for group in shown}
        absent = [scene.label for scene in scenes if scene.rank not in ranks]
        some = ", ".join(absent[:_MAX_ABSENT]) + (" and others" if left_out > _MAX_ABSENT else "")
        yield f"Not shown: {left_out:,} of {len(scenes):,} files: {some}."
    if fitted.note:
        yield fitted.note


class _Located(Record):
    """A finding, and the places that it cites.

    Attributes:
        marks: lane index, start and end, ns; the worst first.
        since_ns: from the start of a mark until other ranks waited for it, ns.
    """

    number: int
    group_index: int
    marks: tuple[tuple[int, int, int], ...]
    since_ns: Mapping[int, int]

    @property
    def cited(self) -> Iterator[Cited]:
        """Cited evidence; the worst of the costliest findings weighs most."""
        for i, (_, start_ns, end_ns) in enumerate(self.marks):
            yield Cited(self.group_index, start_ns, end_ns, 1 / (self.number * (1 + i)))


def _reasons(groups: Sequence[Group]) -> tuple[str, ...]:
    lanes = (lane for group in groups for lane in group.lanes if lane.type == "stream")
    return next(lanes).terms["why"]


def _locate(groups: Sequence[Group]) -> list[_Located]:
    found = []
    for index, group in enumerate(groups):
        for mark in group.scene.marks:
            evidence = evidence_of(group.scene, mark)
            marks = tuple((group.lane_index(x.lane), x.start_ns, x.end_ns) for x in evidence)
            found.append(_Located(mark.number, index, marks, mark.since_ns))
    return sorted(found, key=lambda one: one.number)


def _shown(
    finding: _Located,
    detail: tuple[int, int],
    groups: Sequence[Group],
    windows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Show the step of the worst fully known evidence, its first mark."""
    group = groups[finding.group_index]
    view = place = [group.start_ns, group.end_ns]
    marks = sorted(finding.marks, key=lambda x: not detail[0] <= x[1] <= x[2] <= detail[1])
    if marks:
        _, start_ns, end_ns = marks[0]
        length_ns = end_ns - start_ns
        margin_ns = min(max(_MARGIN_NS, length_ns), max(1, _MAX_MARGIN_LENGTHS * length_ns))
        place = [start_ns - margin_ns, end_ns + margin_ns]
        since_ns = min(start_ns, finding.since_ns.get(start_ns, start_ns))
        view = _step_around(since_ns, end_ns, finding.group_index, group, windows)
    return {
        "number": finding.number,
        "group": finding.group_index,
        "view": view,
        "place": place,
        "marks": list(map(list, marks)),
    }


def _step_around(
    start_ns: int, end_ns: int, index: int, group: Group, windows: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Return the step with most of a stretch, and that part; or the time around it."""
    shared_ns = {
        number: min(end_ns + 1, step.end_ns) - max(start_ns, step.start_ns)
        for number, step in group.scene.steps.items()
    }
    most = max(shared_ns, key=lambda number: shared_ns[number], default=None)
    if most is None or shared_ns[most] <= 0:
        around_ns = max(_MARGIN_WITHOUT_STEP_NS, _MARGIN_LENGTHS_WITHOUT_STEP * (end_ns - start_ns))
        return [max(group.start_ns, start_ns - around_ns), min(group.end_ns, end_ns + around_ns)]
    [step] = [x for x in windows if x["number"] == most and x["group"] in {0, index}][-1:]
    if end_ns - start_ns > step["end"] - step["start"]:
        return [step["start"], step["end"]]
    return [min(step["start"], start_ns), max(step["end"], end_ns)]


def _windows(groups: Sequence[Group], *, on_one_clock: bool) -> list[dict[str, Any]]:
    """The steps to choose from, of a job each once."""
    clocks = [groups] if on_one_clock else [[group] for group in groups]
    windows = []
    for index, together in enumerate(clocks):
        file = f"{together[0].scene.label} " if len(clocks) > 1 else ""
        for number in sorted({number for group in together for number in group.scene.steps}):
            having = [group.scene for group in together if number in group.scene.steps]
            starts_ns, ends_ns = zip(*(scene.steps[number] for scene in having), strict=True)
            windows.append(
                {
                    "label": f"{file}step {number}",
                    "number": number,
                    "start": min(starts_ns),
                    "end": max(ends_ns),
                    "steady": all(number in scene.usual_steps for scene in having),
                    "group": index,
                }
            )
    return windows
