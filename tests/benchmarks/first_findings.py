"""What the first screen says of each trace: ``python -m tests.benchmarks.first_findings``.

For each trace (arguments; by default the bundled ones, and those beside the repository where there
are any) how long a steady step takes, how much of it the GPU works, and the first finding, as the
rows of the table in ``tracelab/docs/evidence/first_findings.md``. A finding has what it saves
of a step, or, where that is not predicted, the share that is attributed to it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bundled_traces import report_of
from tracelab.findings.finding import Finding
from tracelab.findings.places import sentence_of
from tracelab.render.words import percent_text, time_text
from tracelab.report.views import Scope, ranks_of

ROOT = Path(__file__).parents[2]
BESIDE = ROOT.parent / "shared" / "real_traces"
HEAD = "| trace | steady step | GPU works | first finding |"
_LONGEST = 90  # letters of a title


def traces() -> list[Path]:
    """The bundled ones, and those beside the repository."""
    return [*sorted((ROOT / "traces").glob("*.json.gz")), *sorted(BESIDE.glob("**/*.json.gz"))]


def row(path: Path) -> str:
    """The row of one trace."""
    [rank] = ranks_of(report_of(path))
    scope = rank.main.scope
    about_time = (_cell(x, scope) for x in rank.main.findings if x.about == "program")
    step = time_text(scope.step_ns) + ("" if scope.steps else " (whole trace)")
    works = percent_text(scope.busy_ns, scope.busy_ns + scope.idle_ns)
    return f"| `{path.name.split('.')[0]}` | {step} | {works} | {next(about_time, '-')} |"


def _cell(finding: Finding, scope: Scope) -> str:
    title = sentence_of(finding.title, finding.where).replace("|", "\\|")
    title = title if len(title) <= _LONGEST else f"{title[: _LONGEST - 1]}…"
    share = percent_text(min(finding.bound_ns, scope.base_ns), scope.base_ns)
    if finding.saves_ns is not None:
        share = f"saves {time_text(finding.saves_ns)}"
    seen = ""
    if finding.steps_seen is not None and finding.steps_seen < scope.steps:
        seen = f", {finding.steps_seen} of {scope.steps} steps"
    return f"{finding.rule} {finding.severity} {share}{seen}: {title}"


def main(names: Sequence[str]) -> None:
    for path in [Path(name) for name in names] or traces():
        print(row(path))


if __name__ == "__main__":
    main(sys.argv[1:])
