"""What a step would take without a part of it: hand-made steps, answers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

from tests.build import rows
from tests.build.random_rows import random_rows
from tests.build.rows import US
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import StepBasis, find_baseline
from tracelab.simulate.causal_profile import causal_profile, critical_cycle, host_pieces
from tracelab.simulate.recorded import record_program
from tracelab.simulate.replay import replay, weights_ns
from tracelab.simulate.sites import Sites

GAP = 1_600  # ns, between two kernels of a stream, as in the captures


def steps(count=5, *, gemm_us=2, step_us=100):
    """Per step the host launches a `gemm` in a linear layer, and a kernel of 2 us in a function."""
    some, free_ns = [], 0
    for number in range(count):
        begin = number * step_us * US

        def at(start_us, end_us, begin=begin):
            return begin + start_us * US, begin + end_us * US

        first, second = 2 * number + 1, 2 * number + 2
        some += [
            rows.step(number, *at(0, step_us)),
            rows.python("train.py(10): forward", *at(8, 45)),
            rows.operator("aten::linear", *at(10, 40)),
            rows.operator("aten::addmm", *at(15, 38)),
            rows.launch(*at(20, 25), first),
            rows.python("train.py(20): activate", *at(48, 62)),
            rows.operator("aten::relu", *at(50, 60)),
            rows.launch(*at(52, 55), second),
        ]
        for correlation, launched_us, name, length_us in (
            (first, 25, "gemm", gemm_us),
            (second, 55, "relu", 2),
        ):
            start = max(free_ns + GAP, begin + launched_us * US + 2_112)
            free_ns = start + length_us * US
            some.append(rows.kernel(start, free_ns, name, correlation=correlation))
    return rows.graph(*some)


def waiting_steps(count=5):
    """Per step a kernel of 100 us, for which the host waits after 70 us, and then 30 us of work."""
    some, begin = [], 0
    for number in range(count):
        start = begin + 25 * US + 2_112
        call = (begin + 70 * US, start + 103 * US)
        end = call[1] + 30 * US
        some += [
            rows.step(number, begin, end),
            rows.python("train.py(10): forward", begin + 8 * US, begin + 45 * US),
            rows.launch(begin + 20 * US, begin + 25 * US, 2 * number + 1),
            rows.python("train.py(30): check", begin + 69 * US, call[1] + US),
            rows.call("cudaDeviceSynchronize", *call, correlation=2 * number + 2),
            rows.kernel(start, start + 100 * US, correlation=2 * number + 1),
        ]
        begin = end
    return rows.graph(*some)


def profile_of(graph, by, findings=()):
    baseline = find_baseline(graph)
    assert baseline.program is not None, baseline.not_replayed
    return causal_profile(baseline, Sites(graph, None, baseline.program), by, findings)


def figures(some, *names):
    return {row.name: tuple(getattr(row, name) for name in names) for row in some}


def test_host_decides_and_kernels_could_be_free():
    host, gpu, *kernels = profile_of(steps(), "kernel")
    assert (host.by, host.name, gpu.by, gpu.name) == ("all", "host", "all", "GPU")
    # Without host work the two kernels follow each other.
    assert (host.step_ns, host.free_ns, host.critical_ns) == (
        100 * US,
        2 * (2 * US + GAP),
        100 * US,
    )
    assert (gpu.free_ns, gpu.gpu_ns, gpu.critical_ns) == (100 * US, 4 * US, 0)
    assert figures(kernels, "saves_ns", "half_ns", "count", "critical_ns") == {
        "gemm": (0, 100 * US, 1.0, 0),
        "relu": (0, 100 * US, 1.0, 0),
    }


def test_what_decides_is_a_part_of_the_step_that_was_measured():
    # GIVEN steps of 100 us by their replay, of which 80 were measured
    graph = steps()
    baseline = replace(find_baseline(graph), printed=StepBasis(80 * US, 80 * US))
    host, gpu, *operators = causal_profile(
        baseline, Sites(graph, None, baseline.program), "operator"
    )

    # THEN what the host decides is not more than the step
    assert (host.step_ns, host.critical_ns, gpu.critical_ns) == (80 * US, 80 * US, 0)
    assert sum(row.critical_ns for row in operators) == 80 * US


def test_operator_has_what_it_calls_inside_and_nothing_is_counted_twice():
    *_, first, second, third = profile_of(steps(), "operator")
    assert [row.name for row in (first, second, third)] == [
        "outside any operator",
        "aten::linear",
        "aten::relu",
    ]
    assert figures((first, second, third), "free_ns", "half_ns", "no_wait_ns", "host_ns") == {
        "outside any operator": (40 * US, 70 * US, None, 60 * US),
        "aten::linear": (70 * US, 85 * US, None, 30 * US),
        "aten::relu": (90 * US, 95 * US, None, 10 * US),
    }
    assert sum(row.critical_ns for row in (first, second, third)) == 100 * US


def test_line_has_the_host_work_of_its_function_and_the_kernels_launched_there():
    *_, outside, forward, activate = profile_of(steps(), "line")
    assert figures((outside, forward, activate), "where", "free_ns", "host_ns", "gpu_ns") == {
        "outside any function": (None, 51 * US, 49 * US, 0),
        "forward": ("train.py", 63 * US, 37 * US, 2 * US),
        "activate": ("train.py", 86 * US, 14 * US, 2 * US),
    }


def test_gpu_decides_until_the_host_does():
    graph = steps(gemm_us=150)
    host, gpu, gemm, relu = profile_of(graph, "kernel")
    step_ns = 152 * US + 2 * GAP
    assert (host.free_ns, host.critical_ns, gpu.critical_ns) == (gpu.step_ns, 0, step_ns)
    # The step is measured from the host's annotations, which are of 100 us.
    assert gemm.saves_ns == step_ns - 100 * US
    assert (gemm.critical_ns, relu.saves_ns) == (150 * US, 2 * US)


def test_half_of_a_wait_means_nothing():
    host, _, *lines = profile_of(waiting_steps(), "line")
    check = next(row for row in lines if row.name == "check")
    # Without the wait the kernels follow each other: 100 us and the gap are more than 100 us.
    replayed = 25 * US + 2_112 + 100 * US + 30 * US
    assert check.half_ns is None
    assert check.no_wait_ns is not None
    saved_ns = check.step_ns - check.no_wait_ns
    assert replayed - (100 * US + GAP) <= saved_ns <= replayed - (100 * US + GAP) + 6 * US
    assert host.no_wait_ns == check.no_wait_ns == check.free_ns
    forward = next(row for row in lines if row.name == "forward")
    assert forward.half_ns is not None
    assert forward.no_wait_ns is None


def test_findings_are_what_their_prices_say():
    findings = [
        ("TL101", "unblock:train.py:40", 20 * US),
        ("TL301", None, None),
        ("TL102", "pin", 30 * US),
    ]
    assert [
        (row.name, row.where, row.free_ns, row.half_ns)
        for row in profile_of(steps(), "finding", findings)
    ] == [("TL102", "pin", 70 * US, None), ("TL101", "unblock:train.py:40", 80 * US, None)]


def test_more_items_than_are_listed_are_one_row_of_all_others():
    some, count = [], 70
    for number in range(4):
        begin = number * 10 * count * US
        some.append(rows.step(number, begin, begin + 10 * count * US))
        for i in range(count):
            call = begin + 10 * i * US
            correlation = number * count + i + 1
            some.append(rows.launch(call, call + 5 * US, correlation))
            start = call + 5 * US + 2_112
            length = (1 if i < 10 else 2) * US
            some.append(rows.kernel(start, start + length, f"k{i}", correlation=correlation))
    *_, others = profile_of(rows.graph(*some), "kernel")
    assert (others.name, others.names, others.count, others.gpu_ns) == ("others", 10, 10.0, 10 * US)


def test_without_a_replay_there_is_no_profile():
    graph = rows.graph(rows.kernel(0, 10), rows.kernel(20, 30))
    assert causal_profile(find_baseline(graph), None, "line") == ()


@pytest.mark.parametrize("graph", [steps(), steps(gemm_us=150), waiting_steps()])
def test_critical_cycle_tiles_the_replayed_step(graph):
    program = find_baseline(graph).program
    replayed = replay([program])
    step_ns = int(replayed.step_ns[0])
    cycle = critical_cycle(program, replayed.time_ns[:, 0], step_ns)
    assert weights_ns(program)[cycle.edge].sum() == step_ns * cycle.steps
    assert 0 < cycle.host_ns + cycle.gpu_ns <= step_ns


@given(random_rows())
def test_shares_of_an_edge_add_up_to_its_work(some):
    graph = rows.graph(*some)
    assume((graph.host.timeline.launch_id != ABSENT).any())
    program = record_program(graph).program
    pieces = host_pieces(graph.host.timeline.trace, program)
    sums = np.bincount(pieces.edge_index, pieces.share, len(program.via))
    assert np.all((np.abs(sums - 1) < 1e-9) | (sums == 0))
