"""TL306: a stall of the host in one of several steps of 10 ms."""

import pytest

from tests.build.files import US, kernel, launch, python, step
from tracelab.findings.finding import INFO

MS = 1_000 * US


def program(*stalls_us, moves=False):
    """Steps in each of which the GPU idles for so many us at its start, and works for the rest.

    Meanwhile the host is in the function `get`, of another file in each step if it moves.
    """
    rows = []
    for i, stall_us in enumerate(stalls_us):
        at = 10 * MS * i
        ready = at + stall_us * US
        rows += [
            step(i, at, at + 10 * MS),
            python(f"part{i if moves else 0}.py(3): get", at, max(ready - 5 * US, at + US)),
            launch(ready - 4 * US, ready - 2 * US, i + 1),
            kernel(ready, at + 10 * MS, correlation=i + 1),
        ]
    return rows


def found(findings, *stalls_us, **how):
    return [
        (x.severity, x.cost_ns / US, x.steps_seen, x.where.function)
        for x in findings(*program(*stalls_us, **how))
        if x.rule == "TL306"
    ]


def test_a_stall_in_one_of_four_steps(findings):
    [finding] = [x for x in findings(*program(5, 5, 1_100, 5)) if x.bound_ns > 20 * US]
    assert (finding.rule, finding.severity, finding.cause) == ("TL306", INFO, "irregular")
    assert (finding.bound_ns, finding.steps_seen) == (1_100 * US, 1)
    assert finding.title == "The CPU stalls once, in `get()`"
    assert "Record more steps" in finding.fix
    assert finding.where.function == "get"


def test_workers_that_start_with_an_epoch(findings):
    """GIVEN the stall is the loader's, which starts processes THEN the fix is to keep them."""
    begin, end = 20 * MS + 5 * US, 20 * MS + 1_000 * US
    loader = python("torch/utils/data/dataloader.py(487): __iter__", begin, end)
    started = python("multiprocessing/popen_fork.py(62): _launch", begin + US, end - US)
    [finding] = [x for x in findings(*program(5, 5, 1_100, 5), loader, started) if x.remedy]
    assert (finding.rule, finding.remedy) == ("TL306", "workers-started-again")
    assert (finding.bound_ns, finding.steps_seen) == (1_100 * US, 1)


@pytest.mark.parametrize(
    ("stalls_us", "expected"),
    [
        ((5, 5, 1_100), [(INFO, 1_100, 1, "get")]),
        ((5, 1_100), []),  # of two steps nobody knows which one is typical
        ((5, 1_100, 5, 1_100), []),  # every other step
        ((5, 1_100, 5, 1_100, 5, 5, 5, 5), [(INFO, 2_200, 2, "get")]),  # two of eight
        ((5, 1_100, 5, 550, 5), []),  # half as long
        ((5, 1_100, 5, 549, 5), [(INFO, 1_100, 1, "get")]),  # that one has the like of itself
        ((5, 199, 5, 5), []),  # below 2 % of a step
        ((5, 200, 5, 5), [(INFO, 200, 1, "get")]),
        ((5, 5, 5, 5), []),
    ],
)
def test_what_few_steps_have_is_irregular(findings, stalls_us, expected):
    assert found(findings, *stalls_us) == expected


def test_idle_time_that_moves_about_is_typical(findings):
    # Each step idles as long, each at another place.
    assert found(findings, 5, 1_100, 1_100, 1_100, moves=True) == []


# --- the start of a recording ---


def run_ahead(*launched_us, works_us=100):
    """Steps of one kernel of so many us, launched by `replay` at these times, in 2 us."""
    rows, free_us, begun_us = [], 0, launched_us[0] - 1
    for i, at_us in enumerate(launched_us):
        starts_us = max(free_us, at_us + 2)
        free_us = starts_us + works_us
        rows += [
            step(i, begun_us * US, (at_us + 3) * US),
            python("train.py(3): replay", begun_us * US, (at_us + 2) * US),
            launch(at_us * US, (at_us + 2) * US, i + 1),
            kernel(starts_us * US, free_us * US, correlation=i + 1),
        ]
        begun_us = at_us + 3
    return rows


def test_a_host_that_has_not_run_ahead_yet_does_not_stall(findings):
    # GIVEN kernels of 100 us, launched every 80 us but for the second one, which comes 150 us after
    # the first: the GPU is idle from 112 to 162, and then never again
    rows = run_ahead(10, 160, 240, 320, 400, 480)

    # THEN
    assert findings(*rows) == []


@pytest.mark.parametrize("stalled", [1, 3])
def test_a_stall_is_found_before_the_host_runs_ahead_and_afterwards(findings, stalled):
    # GIVEN the same program, in which the second launch, or the fourth, comes after 600 us
    launched_us = [10, 90, 170, 250, 330, 410]
    rows = run_ahead(*launched_us[:stalled], *(at + 520 for at in launched_us[stalled:]))

    # THEN from 112, or 312, until 612 or 772
    [finding] = findings(*rows)
    expected_us = {1: 612 - 112, 3: 772 - 312}
    assert (finding.rule, finding.cost_ns) == ("TL306", expected_us[stalled] * US)


def test_a_slow_first_step_of_a_launch_bound_program_is_no_stall(findings):
    # GIVEN kernels of 50 us, launched after 190 us at first, and then every 80 us: the GPU is idle
    # for 140 us, and then for 30 in each step
    rows = run_ahead(10, 200, 280, 360, 440, works_us=50)

    # THEN the host is slow in each step, and at the start nobody knows
    [finding] = findings(*rows)
    assert (finding.rule, finding.cost_ns, finding.bound_ns) == ("TL301", 230 * US, 90 * US)
