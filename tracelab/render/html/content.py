"""What the page says, in order, before it is HTML."""

from __future__ import annotations

from dataclasses import dataclass

from tracelab.arrays import OneLine
from tracelab.render.html.finding_items import FindingItem, finding_items
from tracelab.render.html.summary import Summary, short_name, summary_of
from tracelab.render.text.files import hardware, recorded
from tracelab.render.text.report import chapters
from tracelab.render.text.sections import Chapter
from tracelab.report.schema import Report
from tracelab.report.views import ranks_of


@dataclass(frozen=True, slots=True, repr=False)
class Content(OneLine):
    """All that the page says.

    Attributes:
        version: of the package.
        name: of the file, or of all files together.
        facts: the ranks, GPUs, versions and steps.
        summaries: what is said first, of each file or of the job.
        findings: about the program.
        lacks: findings about what the files lack.
        chapters: the tables.
    """

    version: str
    name: str
    facts: tuple[str, ...]
    summaries: tuple[Summary, ...]
    findings: tuple[FindingItem, ...]
    lacks: tuple[FindingItem, ...]
    chapters: tuple[Chapter, ...]


def content_of(report: Report) -> Content:
    """What the page of a report says."""
    ranks = [rank for rank in ranks_of(report) if rank.views]
    return Content(
        version=report.version,
        name=short_name([trace.path for trace in report.traces]),
        facts=tuple(
            dict.fromkeys(
                part
                for rank in ranks
                for part in (*hardware(rank.trace, rank.views), recorded(rank.views))
            )
        ),
        summaries=tuple(
            summary_of(rank, rank.trace.path if len(ranks) > 1 else "") for rank in ranks
        ),
        findings=tuple(finding_items(report, ranks, about="program")),
        lacks=tuple(finding_items(report, ranks, about="trace")),
        chapters=tuple(chapters(report, top=30)),
    )
