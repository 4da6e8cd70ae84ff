"""The words of the causal profile."""

from dataclasses import replace

from tests.figures import figures
from tracelab.findings.finding import Savings
from tracelab.measures.what_ran import OUTSIDE_FUNCTIONS
from tracelab.measures.window_times import PROFILED, UNPROFILED
from tracelab.render.sections.findings import causal_section
from tracelab.simulate.causal_profile import CausalMetrics

US = 1_000


def row(
    by, name, free_us, *, where=None, half_us=None, no_wait_us=None, host_us=5, gpu_us=3, **more
):
    return CausalMetrics(
        rank=0,
        by=by,
        name=name,
        where=where,
        names=more.pop("names", 1),
        step_ns=100 * US,
        free_ns=free_us * US,
        half_ns=None if half_us is None else half_us * US,
        no_wait_ns=None if no_wait_us is None else no_wait_us * US,
        count=2.0,
        host_ns=host_us * US,
        gpu_ns=gpu_us * US,
        critical_ns=more.pop("critical_us", 0) * US,
        **more,
    )


def savings(**values):
    unchanged = Savings(0, None, 100 * US, PROFILED, False, None, None, None, (), None)
    return replace(unchanged, **values)


HOST = row("all", "host", 20, half_us=60, critical_us=90)
GPU = row("all", "GPU", 100, half_us=100, critical_us=5)
LINE = row("line", "train", 60, where="train.py:40", half_us=80, no_wait_us=70)


def test_says_what_decides_then_what_each_line_saves(snapshot):
    section = causal_section([HOST, GPU, LINE], savings())
    assert section.title == "Causal profile by line"
    assert figures(section.lines) == [
        "100.0 µs",
        "90.00 µs",
        "5.00 µs",
        "5.00 µs",
        "100.0 µs",
        "20.00 µs",
    ]
    assert section.lines == snapshot
    assert [column.title for column in section.columns] == [
        "line",
        "CPU",
        "GPU",
        "a step\nwithout it",
        "saves",
        "of\na step",
        "saves\nif half",
        "saves if it\ndid not wait",
    ]
    cells = ("5.00 µs", "3.00 µs", "60.00 µs", "40.00 µs", "40.0 %", "20.00 µs", "30.00 µs")
    assert section.rows == (("train.py:40 · train", *cells),)


def test_gpu_comes_first_where_it_decides_most(snapshot):
    whole = [replace(HOST, critical_ns=1 * US), replace(GPU, critical_ns=99 * US)]
    section = causal_section([*whole, LINE], savings(basis=UNPROFILED))
    assert {"100.0 µs", "99.00 µs", "1.00 µs"} <= {*figures(section.lines[0])}
    assert section.lines[0] == snapshot


def test_kernels_that_could_be_free_say_so_and_only_the_largest_are_listed(snapshot):
    free = [row("kernel", f"k{i}", 100, half_us=100) for i in range(8)]
    others = row("kernel", "others", 100, names=10)
    section = causal_section([HOST, GPU, row("kernel", "gemm", 90), *free, others], savings())
    assert [cells[0] for cells in section.rows] == ["gemm", "k0", "k1", "k2", "k3", "k4"]
    assert "CPU" not in [column.title for column in section.columns]
    assert figures(section.notes[:2]) == ["4", "18", "19"]
    assert section.notes[:2] == snapshot


def test_findings_have_no_times_of_their_own():
    finding = replace(
        row("finding", "TL101", 80, where="unblock:train.py:40"),
        host_ns=None,
        gpu_ns=None,
        count=None,
        critical_ns=None,
    )
    section = causal_section([finding], savings(is_of_trace=True))
    assert section.lines == ("Of the trace of 100.0 µs.",)
    assert section.rows == (("TL101 · unblock:train.py:40", "80.00 µs", "20.00 µs", "20.0 %"),)


def test_what_makes_the_step_longer_has_a_sign():
    [cells] = causal_section([HOST, GPU, row("operator", "aten::mm", 110)], None).rows
    assert cells[3:6] == ("110.0 µs", "-10.00 µs", "-10.0 %")


def test_several_items_in_a_row_say_how_many():
    [cells] = causal_section([HOST, GPU, row("operator", "others", 90, names=12)], None).rows
    assert cells[0] == "12 others"


def test_a_trace_without_python_functions_says_how_to_get_them(snapshot):
    section = causal_section([HOST, GPU, row("line", OUTSIDE_FUNCTIONS, 10)], None)
    assert section.notes[0] == snapshot


def test_without_a_profile_it_says_why(snapshot):
    why = savings(not_replayed="The file has no steady steps.")
    assert causal_section([], why).lines == snapshot
    assert causal_section([], None).lines == snapshot
