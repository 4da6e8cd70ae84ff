"""What stragglers cost, beside their twins: ``python tests/benchmarks/stragglers.py``.

For each bundled job with a late rank: how long a step is, how long in its twin without one, their
difference, the same without the profiler, what TL304 says that the job would gain, and what if work
were shared out; in the columns of the table in ``tracelab/docs/evidence/findings.md``.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from tracelab import Report, analyze

TRACES = Path(__file__).parents[2] / "traces"
TWINS = {
    "straggler_more_work": "straggler_even",
    "straggler_slow_loader": "straggler_even",
    "straggler_slow_loader_hidden": "straggler_even",
    "waiting_rank_uneven": "waiting_rank_even",
    "late_launch_checksum": "late_launch_even",
    "backward_delay_logs_gradient": "backward_delay_even",
    "uneven_lengths_drawn": "uneven_lengths_bucketed",
    "two_groups_one_late": "two_groups_even",
    "tensor_parallel_uneven": "tensor_parallel_even",
}


def main() -> None:
    print("| job | a step | of its twin | less | less without the profiler | TL304 | shared out |")
    print("|---|---|---|---|---|---|---|")
    for name, twin in TWINS.items():
        report, of_twin = (
            analyze([TRACES / f"{one}_rank{rank}.pt.trace.json.gz" for rank in range(2)])
            for one in (name, twin)
        )
        (step, plain), (twin_step, twin_plain) = map(_steps_ns, (report, of_twin))
        assert report.job is not None
        found = report.job.stragglers[0] if report.job.stragglers else None
        shared_out_ns = None if found is None else found.shared_out_ns
        cells = (step, twin_step, step - twin_step, plain - twin_plain)
        costs = (None if found is None else found.cost_ns, shared_out_ns)
        print(f"| `{name}` | {' | '.join(map(_ms, (*cells, *costs)))} |")


def _steps_ns(report: Report) -> tuple[float, float]:
    """How long a step takes on the slowest rank, with the profiler and without, ns."""
    return (
        max(row.step_ns for row in report.steady),
        median(row.unprofiled_step_ns or row.step_ns for row in report.steady),
    )


def _ms(length_ns: float | None) -> str:
    return "-" if length_ns is None else f"{length_ns / 1e6:.1f} ms"


if __name__ == "__main__":
    main()
