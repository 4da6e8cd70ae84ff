"""Compare the verdicts on the recorded programs with what their fixes win.

    python tests/benchmarks/judgement/judge.py [--traces FOLDER] [NAME ...]

``README.md`` beside this file explains the table. Needs no GPU.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from packed import unpack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TRACES = HERE / "traces"
LOUD = ("critical", "warning")

HEAD = (
    "| program | defect | first finding | main cause | measured, ms | fixed | rounds | "
    "predicted fixed | holds | error |"
)
HEALTHY_HEAD = "| program | step, ms | loud findings | the first of them |"


@dataclass(frozen=True)
class Price:
    """Shares of a step that remain with a fix.

    Attributes:
        share: the likeliest one.
        low, high: the interval.
    """

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """One program: the findings on it, and the measured worth of its fix.

    Attributes:
        program: its record in ``programs.toml``.
        findings: those about the program, in the order of the screen.
        main: index of the first finding that names the main cause; None without one.
        step_ms: measured median of a step.
        fixed_ms: likewise with the fix; None for a healthy program.
        rounds: the share of a step that remains with the fix, by round.
        price: the predicted share, of the finding that names the main cause; None without a price.
    """

    program: dict[str, Any]
    findings: list[dict[str, Any]]
    main: int | None
    step_ms: float
    fixed_ms: float | None
    rounds: list[float]
    price: Price | None

    @property
    def holds(self) -> bool | None:
        """True if the predicted interval holds the measured share."""
        if self.price is None or self.fixed_ms is None:
            return None
        return self.price.low <= self.fixed_ms / self.step_ms <= self.price.high

    @property
    def error(self) -> float | None:
        """How far the prediction is off, as a share of the measured step."""
        if self.price is None or self.fixed_ms is None:
            return None
        return abs(self.price.share - self.fixed_ms / self.step_ms)

    @property
    def is_judged(self) -> bool:
        """True if the program has a defect whose fix wins."""
        return not self.program.get("healthy") and self.program.get("wins", True)

    @property
    def loud(self) -> list[dict[str, Any]]:
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
        [median(y) / median(x) for x, y in zip(before, after or (), strict=False)],
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
    source = _source(program["name"])
    if where["file"] is None or Path(where["file"]).name != source.name:
        return False
    if where["line"] is None:
        return where["function"] in _functions(program, source)
    return where["line"] in _lines(program, source)


def _source(name: str) -> Path:
    return HERE / "programs" / f"{name}.py"


def _definitions(source: Path) -> Iterator[ast.FunctionDef]:
    return (x for x in ast.walk(ast.parse(source.read_text())) if isinstance(x, ast.FunctionDef))


def _lines(program: dict[str, Any], source: Path) -> set[int]:
    lines: set[int] = set()
    for function in _definitions(source):
        if function.name in program.get("functions", ()):
            lines |= {*range(function.lineno, (function.end_lineno or 0) + 1)}
    for number, line in enumerate(source.read_text().splitlines(), start=1):
        if any(place in line for place in program.get("places", ())):
            lines.add(number)
    return lines


def _functions(program: dict[str, Any], source: Path) -> set[str]:
    lines = _lines(program, source)
    return {
        function.name
        for function in _definitions(source)
        if not lines.isdisjoint(range(function.lineno, (function.end_lineno or 0) + 1))
    }


def _price(finding: dict[str, Any], report: dict[str, Any]) -> Price | None:
    steps_ns = [x["step_ns"] for x in report["savings"] if x["rank"] == finding["rank"]]
    if finding["saves_ns"] is None or not steps_ns or not steps_ns[0]:
        return None
    saves = (finding[name] for name in ("saves_ns", "saves_high_ns", "saves_low_ns"))
    return Price(*(1 - ns / steps_ns[0] for ns in saves))


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return median(ms for blocks in rounds for ms in blocks)


def analyze(name: str, traces: Path) -> dict[str, Any]:
    """The report on a program's trace, as the command writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = _unpacked(name, traces, Path(folder))
        command = [sys.executable, "-m", "tracelab", "analyze", str(path), "--json", "-"]
        done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def _unpacked(name: str, traces: Path, folder: Path) -> Path:
    for path in traces.glob(f"{name}-as-it-is/*.gz"):
        return path
    path = folder / f"{name}.pt.trace.json"
    path.write_text(unpack((traces / f"{name}-as-it-is.packed").read_bytes()))
    return path


def row(verdict: Verdict) -> str:
    """The row of a program with a defect."""
    program, price = verdict.program, verdict.price
    assert verdict.fixed_ms is not None
    first = _told(verdict.findings[0]) if verdict.findings else "none"
    place = "no" if verdict.main is None else ("yes" if verdict.main == 0 else "")
    predicted = "-"
    if price is not None:
        predicted = _interval(*(x * verdict.step_ms for x in (price.share, price.low, price.high)))
    cells = (
        program["name"],
        program["defect"],
        first,
        place or f"finding {verdict.main + 1}",
        f"{verdict.step_ms:.2f}",
        f"{verdict.fixed_ms:.2f} ({verdict.fixed_ms / verdict.step_ms:.0%})",
        f"{min(verdict.rounds):.0%} to {max(verdict.rounds):.0%}",
        predicted,
        {True: "yes", False: "no", None: "-"}[verdict.holds],
        "-" if verdict.error is None else f"{verdict.error:.0%}",
    )
    return f"| {' | '.join(cells)} |"


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


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


def summary(verdicts: Sequence[Verdict]) -> list[str]:
    """The sums that the goals are about, one a line."""
    judged = [x for x in verdicts if x.is_judged]
    priced = [x for x in judged if x.holds is not None]
    quiet = [x for x in verdicts if x.program.get("healthy")]
    errors = [x.error for x in priced if x.error is not None]
    return [
        f"- main cause first: {sum(x.main == 0 for x in judged)} of {len(judged)}",
        f"- main cause named: {sum(x.main is not None for x in judged)} of {len(judged)}",
        f"- truth in the interval: {sum(x.holds is True for x in priced)} of {len(priced)} priced",
        f"- mean error of the predicted step: {mean(errors):.1%} of a step" if errors else "- none",
        f"- healthy programs without a loud finding: {sum(not x.loud for x in quiet)} of "
        f"{len(quiet)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs; all without")
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--reports", type=Path, help="folder of reports that were made before")
    options = parser.parse_args()
    programs = tomllib.loads((HERE / "programs.toml").read_text())["program"]
    times = json.loads((HERE / "measured.json").read_text())["programs"]
    verdicts = []
    for program in programs:
        if not options.names or program["name"] in options.names:
            report = (
                json.loads((options.reports / f"{program['name']}.json").read_text())
                if options.reports
                else analyze(program["name"], options.traces)
            )
            verdicts.append(judge(program, report, times[program["name"]]))
    defects = [x for x in verdicts if x.is_judged]
    others = [x for x in verdicts if x not in defects]
    print("\n".join([HEAD, "|---" * (HEAD.count("|") - 1) + "|", *map(row, defects)]), "\n")
    head = [HEALTHY_HEAD, "|---" * (HEALTHY_HEAD.count("|") - 1) + "|"]
    print("\n".join([*head, *map(healthy_row, others)]), "\n")
    print("\n".join(summary(verdicts)))


if __name__ == "__main__":
    main()
