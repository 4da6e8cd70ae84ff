"""The first screen as a JSON object of at most 4,096 bytes, for programs and agents.

``make documents`` makes ``tracelab/report/brief.schema.json`` of the classes below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Annotated, Any, TypeVar

from tracelab.base.arrays import Record
from tracelab.base.safe_text import clean, json_bytes
from tracelab.findings.finding import CRITICAL, INFO, WARNING
from tracelab.render.document import document_of
from tracelab.render.first_screen import RANKS, FirstScreen, Item
from tracelab.render.recordings import Recording, Recordings
from tracelab.render.text.hints import BRIEF, analyze_command
from tracelab.render.text.savings import AT_MOST, SAVES, TAKES
from tracelab.report.headline import PERCENTS, Headline
from tracelab.report.schema import Report, constrained

SCHEMA = "tracelab.brief/1"
# Of the whole output, with the end of its line.
MAX_BYTES = 4096
_MAX_FILES, _MAX_EVENTS, _MAX_LINES, _MAX_CAUSES, _MAX_ROWS = 3, 3, 5, 9, 16
# By key, in JSON; one finding, note and command together always fit.
_MAX_TEXT_BYTES = {
    **dict.fromkeys(("file", "files", "place", "function", "code", "edit", "kernel"), 160),
    **dict.fromkeys(("verdict", "job", "title", "notes", "next"), 240),
    "fix": 640,
}
_MAX_NAME_BYTES = 60
_PATHS = ("file", "files")
_TYPED = ("edit", "next")
_ELLIPSIS = "…"
_QUOTE_BYTES = 3

_Value = TypeVar("_Value")


class BriefSaving(Record):
    """A predicted saving of the step.

    Attributes:
        percent: share of the step in `headline`, in percent.
        low, high: interval in which it lies, in percent; null without one.
        ms: that share of the step, in ms.
    """

    percent: float
    low: float | None
    high: float | None
    ms: float | None


class BriefHeadline(Record):
    """The figures of one step, as they are printed.

    Attributes:
        rank: rank whose step it is.
        step: number of the only step; null for the steady steps.
        step_ms: length of a step without the profiler if that was timed, else the median of the
            steady steps, else the length of the whole trace, in ms.
        while_profiled_ms: length of the same with the profiler, in ms.
        gpu: number of the GPU that decides; null if none worked.
        busy_percent: share of the time in which that GPU is busy, in percent.
        idle_percent: share of the time in which it is idle; the two add up to 100.
        idle_causes_percent: causes of idle time, each with its share (``tracelab explain CAUSE``);
            they add up to `idle_percent`.
        predicted_ms: length of a step with all fixes, in ms; null if nothing is predicted.
        saves: saving of all fixes together; null if nothing is predicted.
    """

    rank: Annotated[int, constrained(minimum=-(2**63))]
    step: int | None
    step_ms: float
    while_profiled_ms: float
    gpu: int | None
    busy_percent: float
    idle_percent: float
    idle_causes_percent: Mapping[str, float]
    predicted_ms: float | None
    saves: BriefSaving | None


class BriefPlace(Record):
    """A place in the user's program; null for what the file does not say.

    Attributes:
        file: file as the trace names it; a long path begins with "…" instead of its first folders.
        line: number of the line.
        lines: numbers of the lines of which it is one, if `line` is null; at most 5.
        function: name of the function.
        function_line: line at which that function is entered; the place to look if `line` is null
            and `lines` is empty.
        code: text of the line in the source that ran.
    """

    file: str | None
    line: int | None
    lines: tuple[int, ...]
    function: str | None
    function_line: int | None
    code: str | None


class BriefEvidence(Record):
    """Evidence of a finding in the trace.

    Attributes:
        events: ids of events of the trace (their places among its complete events), the most
            expensive first, at most 3.
        count: number of calls or activities that the finding is about.
        api: call of the CUDA or HIP runtime; null if it is about none.
        operator: operator of PyTorch; null if it is about none.
        kernel: activity of the GPU; null if it is about none.
    """

    events: tuple[int, ...]
    count: int
    api: str | None
    operator: str | None
    kernel: str | None


class BriefFinding(Record):
    """One thing to change.

    Attributes:
        number: number in all outputs, from 1 on; ``tracelab whatif FILE --fix NUMBER``.
        rule: id of the rule; ``tracelab explain RULE``.
        remedy: id of the remedy, ``tracelab explain REMEDY``; null if none is recognized.
        severity: severity by cost: "critical", "warning" or "info".
        ranks: ranks of a job that have it, in words; "" for a single file.
        saves: predicted saving of its fix; null if that is not predicted.
        at_most_percent: bound of the saving if no more is known, in percent of the step; else null.
        takes_percent: time lost there if no fix is known, in percent of the step; else null.
        title: sentence that says what happens.
        place: place in the program that the fix is about.
        fix: code to write instead, in one or two sentences.
        edit: change as ``tracelab whatif FILE --edit EDIT`` takes it, to be quoted in a shell; null
            if there is none, or if it is too long for this form (`--fix NUMBER` makes it as well).
        evidence: events of the trace that show it.
    """

    number: int
    rule: str
    remedy: str | None
    severity: Annotated[str, constrained(enum=[CRITICAL, WARNING, INFO])]
    ranks: str
    saves: BriefSaving | None
    at_most_percent: float | None
    takes_percent: float | None
    title: str
    place: BriefPlace
    fix: str
    edit: str | None
    evidence: BriefEvidence


class BriefRecording(Record):
    """One of several files that are not one job, or a job among them.

    Attributes:
        file: path of the file; of a job that of its first rank.
        ranks: number of files.
        step_ms: length of a step, in ms; null if it has no steps.
        busy_percent: share of the time in which its GPU is busy, in percent.
        saves_percent: saving of all fixes, or time that the first finding is about, in percent of
            the step; null without a finding.
        title: title of the first finding; null without one.
        place: place of the first finding, in words; "" if the file does not say.
    """

    file: str
    ranks: int
    step_ms: float | None
    busy_percent: float
    saves_percent: float | None
    title: str | None
    place: str


class BriefRest(Record):
    """Number of things left out, because they are minor or there was no room.

    Attributes:
        findings: number of findings that are worth showing and are not listed.
        minor_findings: number of findings that save too little to be listed.
        notes: number of notes that change no figure.
        recordings: number of recordings that are not listed.
    """

    findings: int
    minor_findings: int
    notes: int
    recordings: int


class Brief(Record):
    """First screen of a file, a job, or files that are not one job.

    Attributes:
        schema: name and version of this form, "tracelab.brief/1"; the number grows if a key
            changes its meaning or leaves.
        version: version of tracelab.
        files: paths of the files, at most 3.
        file_count: number of files.
        about: GPUs, versions and the number of steps, in words.
        verdict: sentence that says all of it.
        headline: figures of a step; null for files that are not one job.
        job: sentences that say which rank makes others wait and why; empty unless it is one job.
        findings: changes to make, the first to try first, at most 3.
        recordings: files that are not one job, the most expensive first; else empty.
        more: number of things left out.
        notes: warnings about the trace that make figures wrong or not what they seem.
        next: commands to type next, complete; FILE stands for long paths.
    """

    schema: Annotated[str, constrained(const=SCHEMA)]
    version: str
    files: tuple[str, ...]
    file_count: int
    about: tuple[str, ...]
    verdict: str
    headline: BriefHeadline | None
    job: tuple[str, ...]
    findings: tuple[BriefFinding, ...]
    recordings: tuple[BriefRecording, ...]
    more: BriefRest
    notes: tuple[str, ...]
    next: tuple[str, ...]


# Dropped from the end, in this order, for room.
_DROPPED = (
    ("recordings", 3),
    ("notes", 1),
    ("findings", 1),
    ("recordings", 1),
    ("job", 1),
    ("next", 1),
    ("about", 0),
    ("notes", 0),
    ("files", 1),
    ("job", 0),
)


def render_brief(report: Report, *, recordings: Sequence[Report] = ()) -> bytes:
    """Return the first screen as one line of JSON of at most `MAX_BYTES`."""
    document = document_of(report, recordings)
    said = document.said
    if isinstance(said, Recordings):
        brief = _brief_of_recordings(document.version, said)
    else:
        brief = _brief_of_screen(document.version, said)
    brief = _fitted("", brief)
    while len(written := json_bytes(brief, is_indented=False)) > MAX_BYTES:
        brief = _smaller(brief)
    return written


def _smaller(brief: Brief) -> Brief:
    name, _ = next((name, least) for name, least in _DROPPED if len(getattr(brief, name)) > least)
    smaller = replace(brief, **{name: getattr(brief, name)[:-1]})
    if not hasattr(brief.more, name):
        return smaller
    more = replace(brief.more, **{name: getattr(brief.more, name) + 1})
    return replace(smaller, more=more)


def _brief_of_screen(version: str, said: FirstScreen) -> Brief:
    warnings = [note for note in said.notes if note.is_warning]
    return Brief(
        schema=SCHEMA,
        version=version,
        files=said.paths[:_MAX_FILES],
        file_count=len(said.paths),
        about=said.about,
        verdict=said.verdict,
        headline=_headline(said.headline),
        job=tuple(fact.text for fact in said.facts if fact.label == RANKS),
        findings=tuple(map(_finding, said.items)),
        recordings=(),
        more=BriefRest(said.more, said.minor, len(said.notes) - len(warnings), 0),
        notes=tuple(note.full for note in warnings),
        next=said.commands,
    )


def _brief_of_recordings(version: str, said: Recordings) -> Brief:
    paths = tuple(path for row in said.rows for path in row.paths)
    first = said.rows[0].paths if said.rows else ()
    rows = said.rows[:_MAX_ROWS]
    return Brief(
        schema=SCHEMA,
        version=version,
        files=paths[:_MAX_FILES],
        file_count=len(paths),
        about=said.about,
        verdict=said.why or f"{said.about[0]}, each on its own.",
        headline=None,
        job=(),
        findings=(),
        recordings=tuple(map(_recording, rows)),
        more=BriefRest(0, 0, 0, len(said.rows) - len(rows)),
        notes=tuple(note.text for note in said.notes),
        next=(f"{analyze_command(first)} {BRIEF}",),
    )


def _headline(figures: Headline) -> BriefHeadline:
    causes = [*figures.causes.items()][:_MAX_CAUSES]
    low, high = figures.saves_low_share, figures.saves_high_share
    return BriefHeadline(
        rank=figures.rank,
        step=figures.step,
        step_ms=_ms(figures.step_ns),
        while_profiled_ms=_ms(figures.profiled_step_ns),
        gpu=figures.device,
        busy_percent=_percent(figures.busy_share),
        idle_percent=_percent(figures.idle_share),
        idle_causes_percent={x: _percent(share) for x, share in causes},
        predicted_ms=_known(_ms, figures.predicted_step_ns),
        saves=_saving(figures.saves_share, low, high, figures.saves_ns),
    )


def _finding(item: Item) -> BriefFinding:
    finding, figures, where = item.finding, item.figures, item.finding.where
    shares = {figures.how: _percent(figures.share)}
    saved = figures.share if figures.how == SAVES else None
    return BriefFinding(
        number=item.number,
        rule=finding.rule,
        remedy=finding.remedy,
        severity=finding.severity,
        ranks=item.on,
        saves=_saving(saved, figures.low_share, figures.high_share, figures.time_ns),
        at_most_percent=shares.get(AT_MOST),
        takes_percent=shares.get(TAKES),
        title=item.title,
        place=BriefPlace(
            file=where.file,
            line=where.line,
            lines=where.lines[:_MAX_LINES],
            function=where.function,
            function_line=where.function_line,
            code=where.code,
        ),
        fix=item.fix,
        edit=finding.edit,
        evidence=BriefEvidence(
            finding.evidence[:_MAX_EVENTS], where.count, where.api, where.operator, where.activity
        ),
    )


def _saving(
    share: float | None, low: float | None, high: float | None, time_ns: int | None
) -> BriefSaving | None:
    if share is None:
        return None
    return BriefSaving(
        _percent(share), _known(_percent, low), _known(_percent, high), _known(_ms, time_ns)
    )


def _recording(row: Recording) -> BriefRecording:
    return BriefRecording(
        file=row.paths[0],
        ranks=len(row.paths),
        step_ms=_known(_ms, row.step_ns),
        busy_percent=_percent(row.busy_share),
        saves_percent=_percent(row.saves_share) if row.has_finding else None,
        title=row.title if row.has_finding else None,
        place=row.place,
    )


def _ms(time_ns: int) -> float:
    return time_ns / 1e6


def _percent(share: float) -> float:
    """Return a share in percent: whole where it is printed whole, else with three digits."""
    percent = PERCENTS * share
    is_whole = 1 <= percent <= PERCENTS - 1 or percent in (0, PERCENTS)
    return round(percent) if is_whole else float(f"{percent:.3g}")


def _known(convert: Callable[[_Value], float], value: _Value | None) -> float | None:
    return None if value is None else convert(value)


def _fitted(key: str, value: Any) -> Any:
    if isinstance(value, Record):
        names = value.__struct_fields__
        return replace(value, **{name: _fitted(name, getattr(value, name)) for name in names})
    if isinstance(value, tuple):
        return tuple(x for item in value if (x := _fitted(key, item)) is not None)
    if isinstance(value, Mapping):
        return {_fitted("", name): item for name, item in value.items()}
    if not isinstance(value, str):
        return value
    text, max_bytes = clean(value), _MAX_TEXT_BYTES.get(key, _MAX_NAME_BYTES)
    letters = text[::-1] if key in _PATHS else text
    sizes = [len(json_bytes(letter, is_indented=False)) - _QUOTE_BYTES for letter in letters]
    is_whole = sum(sizes) <= max_bytes
    if is_whole or key in _TYPED:
        return text if is_whole else None
    room = max_bytes - len(_ELLIPSIS.encode())
    kept = letters[: sum(size <= room for size in accumulate(sizes))]
    return _ELLIPSIS + kept[::-1] if key in _PATHS else kept + _ELLIPSIS
