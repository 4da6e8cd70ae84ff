"""Causal profiles of captures of H200s: what is known of their programs."""

from functools import cache
from pathlib import Path

import pytest

from tracelab import analyze
from tracelab.base.options import Options

TRACES = Path(__file__).parents[2] / "traces"


@cache
def profiled(name, by):
    """All work of the host, that of the GPU, and the items."""
    path = TRACES / f"{name}.pt.trace.json.gz"
    host, gpu, *items = analyze(path, options=Options(cache=False, profile_by=by)).causal
    return host, gpu, items


def test_no_kernel_of_a_launch_bound_step_saves_anything():
    host, gpu, kernels = profiled("two_streams_small", "kernel")
    assert gpu.critical_ns == 0
    assert host.critical_ns > 0.99 * host.step_ns
    assert host.free_ns < 0.2 * host.step_ns
    assert [row.saves_ns for row in (gpu, *kernels)] == [0] * (1 + len(kernels))


def test_host_of_a_copy_bound_step_saves_nothing():
    host, gpu, kernels = profiled("prefetch_one_stream_pinned", "kernel")
    assert (host.critical_ns, host.saves_ns) == (0, 0)
    copy = next(row for row in kernels if row.name.startswith("Memcpy HtoD"))
    # All is one stream: what is not copied is saved, and the gap of the copy stays.
    assert copy.saves_ns == pytest.approx(copy.gpu_ns, rel=0.01)
    assert gpu.critical_ns > 0.99 * gpu.step_ns


@pytest.mark.parametrize(
    ("defect", "place"),
    [
        ("events_item", "workloads/events.py:65"),
        ("events_stream_synchronize", "workloads/events.py:54"),
        ("events_device_synchronize", "workloads/events.py:59"),
        ("events_event_synchronize", "workloads/events.py:49"),
    ],
)
def test_without_the_wait_of_a_line_a_step_takes_what_the_fixed_one_does(defect, place):
    _, _, lines = profiled(defect, "line")
    line = next(row for row in lines if row.where == place)
    fixed = profiled("events_wait", "line")[0].step_ns
    assert line.half_ns is None
    assert line.no_wait_ns == pytest.approx(fixed, rel=0.01)
    assert line.free_ns == pytest.approx(fixed, rel=0.01)


@pytest.mark.parametrize("by", ["line", "operator", "kernel"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("train_step_sinful", marks=pytest.mark.slow),
        "train_step_clean",
        "inline_loader_numpy",
    ],
)
def test_nothing_is_counted_twice(name, by):
    host, gpu, items = profiled(name, by)
    rounding = len(items)
    assert abs(sum(row.gpu_ns for row in items) - gpu.gpu_ns) <= rounding
    if by != "kernel":
        assert (
            abs(sum(row.host_ns for row in items) - host.host_ns) <= rounding + 1e-4 * host.host_ns
        )
    # Gaps of streams and latencies are nobody's.
    decided_ns = sum(row.critical_ns for row in items)
    assert decided_ns <= (host.critical_ns + gpu.critical_ns) * 1.0001
    assert all(
        row.free_ns <= row.half_ns <= row.step_ns for row in items if row.half_ns is not None
    )
