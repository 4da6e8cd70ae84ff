"""Compare the verdicts on the recorded programs with what their fixes win.

    python tests/benchmarks/judgement/judge.py [--fixed | --advised] [NAME ...]

``README.md`` beside this file explains the table. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from marks import functions_with, marked_lines, source_of
from packed import unpack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LOUD = ("critical", "warning")

HEAD = (
    "| program | defect | first finding | main cause | measured, ms | fixed | rounds | "
    "predicted step | holds | error |"
)
FIXED_HEAD = "| fixed program | loud findings | still named | the first of them |"
ADVISED_HEAD = "| program | measured, ms | with the first advice | rounds |"
HEALTHY_HEAD = "| program | step, ms | loud findings | the first of them |"


@dataclass(frozen=True)
class Price:
    """What a finding promises of a step.

    Attributes:
        step_ms: the step that it is of: that of the recorded process without the profiler.
        fixed_ms: the likeliest step with the fix.
        low_ms, high_ms: the interval.
    """

    step_ms: float
    fixed_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class Verdict:
    """One program: the findings on it, and the measured worth of its fix.

    Attributes:
        program: its record in ``programs.toml``.
        findings: those about the program, in the order of the screen.
        main: index of the first finding that names the main cause; None without one.
        step_ms: measured median of a step.
        fixed_ms: likewise with the fix; None for a healthy program.
        shares: of a step that remains with the fix, by round.
        fixed_rounds_ms: a step with the fix, by round.
        price: of the finding that names the main cause; None without a price.
    """

    program: dict[str, Any]
    findings: list[dict[str, Any]]
    main: int | None
    step_ms: float
    fixed_ms: float | None
    shares: list[float]
    fixed_rounds_ms: list[float]
    price: Price | None

    @property
    def is_judged(self) -> bool:
        """True if the program has a defect whose fix wins."""
        return not self.program.get("healthy") and self.program.get("wins", True)

    @property
    def holds(self) -> bool | None:
        """True if the interval holds the measured median, as a share of the step or in ms."""
        if self.price is None or self.fixed_ms is None:
            return None
        share = self.fixed_ms / self.step_ms
        return self._overlaps(share, share, self.fixed_ms, self.fixed_ms)

    @property
    def holds_a_round(self) -> bool | None:
        """True if the interval overlaps what the rounds measured, as a share or in ms."""
        if self.price is None or not self.shares:
            return None
        fixed_ms = self.fixed_rounds_ms
        return self._overlaps(min(self.shares), max(self.shares), min(fixed_ms), max(fixed_ms))

    def _overlaps(self, low: float, high: float, low_ms: float, high_ms: float) -> bool:
        price = self.price
        assert price is not None
        of_step = price.low_ms / price.step_ms <= high and low <= price.high_ms / price.step_ms
        return of_step or (price.low_ms <= high_ms and low_ms <= price.high_ms)

    @property
    def error(self) -> float | None:
        """How far the prediction is off, as a share of the step."""
        if self.price is None or self.fixed_ms is None:
            return None
        return abs(self.price.fixed_ms / self.price.step_ms - self.fixed_ms / self.step_ms)

    @property
    def loud(self) -> list[dict[str, Any]]:
        """The findings that are a warning or critical."""
        return [finding for finding in self.findings if finding["severity"] in LOUD]


def judge(program: dict[str, Any], report: dict[str, Any], times: dict[str, Any]) -> Verdict:
    """Compare the findings of a report with what is known of the program."""
    findings = [x for x in report["findings"] if x["about"] == "program" and x["role"] != "aside"]
    naming = [index for index, finding in enumerate(findings) if names(finding, program)]
    main = naming[0] if naming else None
    before, after = times["as-it-is"], times.get("fixed")
    return Verdict(
        program,
        findings,
        main,
        _median(before),
        _median(after) if after else None,
        _shares(before, after or ()),
        [median(x) for x in after or ()],
        None if main is None else _price(findings[main], report),
    )


def names(finding: dict[str, Any], program: dict[str, Any]) -> bool:
    """True if a finding names the program's main cause, by its rule or remedy and its place."""
    if program.get("healthy") or finding["role"] != program.get("role", "specific"):
        return False
    if finding["remedy"] in program.get("remedies", ()):
        return True
    return finding["rule"] in program.get("rules", ()) and _is_at_place(finding["where"], program)


def _is_at_place(where: dict[str, Any], program: dict[str, Any]) -> bool:
    if not {"places", "functions"} & program.keys():
        return True  # a setting of the whole program
    source = source_of(program)
    if where["file"] is None or Path(where["file"]).name != source.name:
        return False
    if where["line"] is None:
        return where["function"] in functions_with(marked_lines(program), source)
    return where["line"] in marked_lines(program)


def _price(finding: dict[str, Any], report: dict[str, Any]) -> Price | None:
    steps_ns = [x["step_ns"] for x in report["savings"] if x["rank"] == finding["rank"]]
    if finding["saves_ns"] is None or not steps_ns or not steps_ns[0]:
        return None
    step_ms = steps_ns[0] / 1e6
    names_of = ("saves_ns", "saves_high_ns", "saves_low_ns")
    return Price(step_ms, *(step_ms - finding[name] / 1e6 for name in names_of))


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return median(ms for blocks in rounds for ms in blocks)


def analyze(name: str, traces: Path) -> dict[str, Any]:
    """The report on a trace, as the command writes it.

    Args:
        name: of the program and its variant, such as ``dcgan-fixed``.
        traces: folder of packed traces.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = _unpacked(name, traces, Path(folder))
        command = [sys.executable, "-m", "tracelab", "analyze", str(path), "--json", "-"]
        done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def _unpacked(name: str, traces: Path, folder: Path) -> Path:
    path = folder / f"{name.rpartition('-')[0]}.pt.trace.json"
    path.write_text(unpack((traces / f"{name}.packed").read_bytes()))
    return path


def row(verdict: Verdict) -> str:
    """The row of a program with a defect."""
    program, price = verdict.program, verdict.price
    assert verdict.fixed_ms is not None
    first = _told(verdict.findings[0]) if verdict.findings else "none"
    place = "no" if verdict.main is None else ("yes" if verdict.main == 0 else "")
    predicted = "-"
    if price is not None:
        predicted = (
            f"{_interval(price)} of {price.step_ms:.2f}, {price.fixed_ms / price.step_ms:.0%}"
        )
    cells = (
        program["name"],
        program["defect"],
        first,
        place or f"finding {verdict.main + 1}",
        f"{verdict.step_ms:.2f}",
        f"{verdict.fixed_ms:.2f} ({verdict.fixed_ms / verdict.step_ms:.0%})",
        f"{min(verdict.shares):.0%} to {max(verdict.shares):.0%}",
        predicted,
        "-" if price is None else _held(verdict),
        "-" if verdict.error is None else f"{verdict.error:.0%}",
    )
    return f"| {' | '.join(cells)} |"


def _interval(price: Price) -> str:
    return f"{price.fixed_ms:.2f} ({price.low_ms:.2f} to {price.high_ms:.2f})"


def _held(verdict: Verdict) -> str:
    if verdict.holds:
        return "yes"
    return "a round" if verdict.holds_a_round else "no"


def _told(finding: dict[str, Any]) -> str:
    where = finding["where"]
    line = "" if where["line"] is None else f":{where['line']}"
    place = where["call"] or where["operator"] or "-"
    function = "" if where["function"] is None else f" in {where['function']}{line}"
    told = finding["remedy"] or finding["edit"] or finding["cause"]
    return f"{finding['rule']} {told}, `{place}`{function}"


def healthy_row(verdict: Verdict) -> str:
    """The row of a healthy program, or of one whose fix wins nothing."""
    first = _told(verdict.loud[0]) if verdict.loud else ""
    cells = (verdict.program["name"], f"{verdict.step_ms:.2f}", str(len(verdict.loud)), first)
    return f"| {' | '.join(cells)} |"


def fixed_row(program: dict[str, Any], report: dict[str, Any]) -> str:
    """The row of a program that was fixed: its defect must not be named."""
    findings = [x for x in report["findings"] if x["about"] == "program" and x["role"] != "aside"]
    loud = [finding for finding in findings if finding["severity"] in LOUD]
    named = any(names(finding, program) for finding in loud)
    first = _told(loud[0]) if loud else ""
    cells = (program["name"], str(len(loud)), "yes" if named else "no", first)
    return f"| {' | '.join(cells)} |"


def advised_row(name: str, times: dict[str, Any]) -> str:
    """The row of a program whose first advice was carried out word for word."""
    before_ms = _median(times["as-it-is"])
    if not times["advised"]:
        return f"| {name} | {before_ms:.2f} | cannot be carried out | - |"
    after_ms, shares = _median(times["advised"]), _shares(times["as-it-is"], times["advised"])
    took = f"{after_ms:.2f} ({after_ms / before_ms:.0%})"
    return f"| {name} | {before_ms:.2f} | {took} | {min(shares):.0%} to {max(shares):.0%} |"


def _shares(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> list[float]:
    """What is left of a step, round by round."""
    return [median(y) / median(x) for x, y in zip(before, after, strict=False)]


def summary(verdicts: Sequence[Verdict]) -> list[str]:
    """The sums that the goals are about, one a line."""
    judged = [x for x in verdicts if x.is_judged]
    priced = [x for x in judged if x.holds is not None]
    quiet = [x for x in verdicts if x.program.get("healthy")]
    errors = [x.error for x in priced if x.error is not None]
    return [
        f"- main cause first: {sum(x.main == 0 for x in judged)} of {len(judged)}",
        f"- main cause named: {sum(x.main is not None for x in judged)} of {len(judged)}",
        f"- truth in the interval: {sum(x.holds is True for x in priced)} of {len(priced)} priced; "
        f"with the spread of the rounds {sum(x.holds_a_round is True for x in priced)}",
        f"- mean error of the predicted step: {mean(errors):.1%} of a step" if errors else "- none",
        f"- healthy programs without a loud finding: {sum(not x.loud for x in quiet)} of "
        f"{len(quiet)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs; all without")
    parser.add_argument("--set", help="such as third; all without")
    parser.add_argument("--fixed", action="store_true", help="judge the fixed variants instead")
    parser.add_argument("--advised", action="store_true", help="print what the advice won instead")
    parser.add_argument("--traces", type=Path, default=HERE / "traces")
    parser.add_argument("--reports", type=Path, help="folder of reports, NAME-VARIANT.json each")
    options = parser.parse_args()

    def report_on(name: str) -> dict[str, Any]:
        if options.reports is None:
            return analyze(name, options.traces)
        report: dict[str, Any] = json.loads((options.reports / f"{name}.json").read_text())
        return report

    programs = tomllib.loads((HERE / "programs.toml").read_text())["program"]
    chosen = [
        x
        for x in programs
        if (not options.names or x["name"] in options.names)
        and options.set in (None, x.get("set", "first"))
    ]
    if options.fixed:
        broken = [x for x in chosen if not x.get("healthy") and x.get("wins", True)]
        rows = [fixed_row(x, report_on(f"{x['name']}-fixed")) for x in broken]
        print_table(FIXED_HEAD, rows)
        return
    measured = json.loads((HERE / "measured.json").read_text())
    if options.advised:
        print_table(ADVISED_HEAD, [advised_row(*pair) for pair in measured["advised"].items()])
        return
    times = measured["programs"]
    verdicts = [
        judge(program, report_on(f"{program['name']}-as-it-is"), times[program["name"]])
        for program in chosen
    ]
    print_table(HEAD, [row(x) for x in verdicts if x.is_judged])
    print_table(HEALTHY_HEAD, [healthy_row(x) for x in verdicts if not x.is_judged])
    print("\n".join(summary(verdicts)))


def print_table(head: str, rows: Sequence[str]) -> None:
    """Print a table in Markdown."""
    print("\n".join([head, "|---" * (head.count("|") - 1) + "|", *rows]), "\n")


if __name__ == "__main__":
    main()
