"""Medians, spreads and matching, with numbers that can be checked by hand."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.build.report_rows import make_steady
from tests.build.reports import report as hand_made
from tests.build.rows import graph, kernel
from tests.figures import figures
from tracelab import analyze
from tracelab.base.errors import UsageError
from tracelab.comparison.compare import compare, match
from tracelab.comparison.diff import AFTER, BEFORE, NUMBER, ORDER, Doubt, Side
from tracelab.comparison.judge import common
from tracelab.comparison.recordings import change, change_between, median, spread
from tracelab.findings.finding import Finding, Where
from tracelab.findings.registry import about_of
from tracelab.measures.overlap import GraphStreamsTime, StreamTime
from tracelab.measures.work import kernel_times
from tracelab.model.graph import EventLinks
from tracelab.render.sections.diff import kernel_labels
from tracelab.render.sections.diff_words import headline, verdict
from tracelab.render.text.report import render_result
from tracelab.report.schema import (
    BlockingCallMetrics,
    DeviceMetrics,
    Provenance,
    TraceInfo,
    WindowMetrics,
)

STEP = 100_000
TRACES = Path(__file__).parents[3] / "traces"


def device(busy, idle, *, number=0, streams=None, graph_streams=None):
    busy_streams = {7: busy} if streams is None else streams
    zero = dict.fromkeys(
        (x for x in DeviceMetrics.__struct_fields__ if x.endswith("_ns")),
        0,
    )
    return DeviceMetrics(
        **zero
        | {
            "device": number,
            "busy_ns": busy,
            "idle_ns": idle,
            "compute_ns": busy,
            "streams": tuple(StreamTime(x, ns, 1) for x, ns in busy_streams.items()),
            "bubbles": {"launch": idle},
            "unknown_reasons": {},
            "graph_streams": graph_streams,
        }
    )


def report(steps, *, rank=0, idle=10_000, findings=(), syncs=(), **own):
    """A file whose steps have these lengths, each with the same idle time, on one device."""
    windows = [WindowMetrics(rank, None, 0, sum(steps), (device(sum(steps), 0, **own),))]
    for i, length in enumerate(steps):
        start = sum(steps[:i])
        figures = device(length - idle, idle, **own)
        windows.append(WindowMetrics(rank, i, start, start + length, (figures,)))
    links = EventLinks(0, 0, 0)
    trace = TraceInfo("x.json", rank, "metadata", 1, 1, 1, {}, {}, {}, links, (), None)
    return hand_made(
        provenance=Provenance(("x.json",), (), "^Step", ()),
        traces=(trace,),
        windows=windows,
        syncs=syncs,
        findings=findings,
    )


def finding(rule="TL101", bound=0, *, call="item", function="train", file="t.py", line=3):
    where = Where(count=1, call=call, function=function, file=file, line=line)
    return Finding(
        rule,
        "It waits",
        "warning",
        0,
        None,
        "host_sync",
        bound,
        bound,
        where,
        (),
        "",
        about_of(rule),
    )


def sync(step, blocked, caused, *, function="train", line=3):
    return BlockingCallMetrics(
        0, step, "cudaStreamSynchronize", "stream", 1, blocked, caused, 0, None, "aten::item", None,
        function, "t.py", line,
    )  # fmt: skip


def diff(before, after):
    return compare(Side(before, None), Side(after, None))


def only(before, after):
    (rank,) = diff(before, after).ranks
    return rank


@pytest.mark.parametrize(
    ("values", "expected"), [([], 0), ([5], 5), ([3, 1, 2], 2), ([1, 2, 4, 9], 3), ([1, 2], 1)]
)
def test_median(values, expected):
    assert median(values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], None), ([9], None), ([1, 9], 8), ([4, 2, 9], 7), ([1, 2, 3, 4, 100], 2)],
)
def test_spread_is_the_interquartile_range_of_five_values_or_more_else_the_full_range(
    values, expected
):
    assert spread(values) == expected


def test_change_counts_beyond_the_larger_spread():
    tight, wide = [100] * 5, [100, 110, 120, 130, 140]
    found = change(tight, wide, 0)
    assert (found.before_ns, found.after_ns, found.difference_ns) == (100, 120, 20)
    assert (found.before_spread_ns, found.after_spread_ns, found.noise_ns) == (0, 20, 20)
    assert not found.beyond_noise  # 20 is not more than 20
    assert change(wide, [141] * 4 + [99], 0).beyond_noise
    assert not change(wide, [100] * 5, 0).beyond_noise


def test_two_steps_a_side_decide_where_all_of_one_lie_beyond_all_of_the_other():
    assert change([100, 101], [90, 99], 100).beyond_noise
    assert change([90, 99], [100, 101], 100).beyond_noise
    assert not change([100, 101], [90, 100], 100).beyond_noise
    assert change([100, 101], [90, 100], 100).noise_ns == 10


def test_a_single_step_decides_only_beyond_a_quarter():
    assert not change([100], [76, 76], 100).beyond_noise
    assert change([100], [74], 100).beyond_noise
    assert change([74], [100], 100).beyond_noise
    assert change([888], [444], 888).beyond_noise


def test_recordings_decide_by_how_much_they_differ():
    """Means 102 and 132, squares 8 + 8 in 2 degrees of freedom: 4.3 * sqrt(8 * (1/2 + 1/2))."""
    found = change_between([100, 104], [130, 134], 0)
    assert (found.before_ns, found.after_ns, found.noise_ns) == (102, 132, 12)
    assert found.beyond_noise
    assert not change_between([100, 104], [110, 114], 0).beyond_noise
    assert change_between([100, 100, 100], [102], 100).beyond_noise
    assert not change_between([100, 108, 104], [110], 0).beyond_noise


def test_change_counts_beyond_one_percent_of_the_step():
    assert not change([100] * 3, [110] * 3, 1_000).beyond_noise
    assert change([100] * 3, [111] * 3, 1_000).beyond_noise
    assert change([111] * 3, [100] * 3, 1_000).beyond_noise


LENGTHS_NS = st.lists(st.sampled_from([0, 1, 10, 1_000_000]), min_size=1, max_size=3)


@given(before=LENGTHS_NS, after=LENGTHS_NS)
def test_any_number_of_recordings_and_any_lengths_have_a_change(before, after):
    compare_samples = change_between if len(before) + len(after) > 2 else change
    found = compare_samples(before, after, 100)
    back = compare_samples(after, before, 100)
    assert found.difference_ns == -back.difference_ns == median(after) - median(before)
    assert found.noise_ns == back.noise_ns >= 1


@pytest.mark.parametrize("recordings_before", [1, 2, 3])
@pytest.mark.parametrize("recordings_after", [1, 2, 3])
def test_what_one_side_lacks_took_no_time_there(recordings_before, recordings_after):
    """A kernel and a stream that are on one side only, however many recordings it has."""
    few = kernel_times(graph(kernel(0, 10, "a")))
    more = kernel_times(graph(kernel(0, 10, "a"), kernel(20, 120, "b")))
    before = [Side(report([]), (few,))] * recordings_before
    after = [Side(report([], streams={7: 0, 9: 5}), (more,))] * recordings_after
    for sides, state, sign in (((before, after), "new", 1), ((after, before), "gone", -1)):
        [rank] = compare(*sides).ranks
        assert rank.devices[0].streams[1].busy.difference_ns == 5 * sign
        [b] = [x for x in rank.kernels if x.name == "b"]
        assert (b.total.difference_ns, b.state) == (100 * sign, state)


def test_numbers_are_matched_then_the_others_by_their_order():
    assert match([13, 7, 20], [7, 9]) == ((7, 7, NUMBER), (13, 9, ORDER), (20, None, BEFORE))
    assert match([], [4]) == ((None, 4, AFTER),)


def test_step_is_longer_beyond_the_noise():
    rank = only(report([STEP] * 3), report([STEP + 5_000] * 3))
    assert rank.basis == "step"
    assert rank.length.difference_ns == 5_000
    assert rank.length.percent == 5
    assert rank.length.beyond_noise


def test_representative_step_has_the_median_length():
    rank = only(report([STEP, 3 * STEP, 2 * STEP]), report([STEP] * 4))
    assert (rank.before.shown, rank.before.end_ns - rank.before.start_ns) == (2, 2 * STEP)


def test_without_steps_on_one_side_the_whole_traces_are_compared():
    found = diff(report([STEP] * 3), report([]))
    [rank] = found.ranks
    assert (rank.basis, rank.verdict, rank.doubts) == ("trace", "cannot tell", (Doubt.NO_STEPS,))
    assert rank.before.shown is rank.after.shown is None
    assert rank.length.before_ns == 3 * STEP
    assert rank.length.before_spread_ns is None
    assert "Not every file has steady steps" in render_result(found, **PLAIN)


def test_steps_found_by_another_name_are_other_options():
    marked = report([100_000] * 3)
    found = replace(marked, traces=(replace(marked.traces[0], step_pattern="^execute_"),))
    same = replace(marked, traces=(replace(marked.traces[0], step_pattern="^Step"),))

    assert diff(marked, same).same_options
    assert not diff(marked, found).same_options


@pytest.mark.parametrize(("after", "verdict"), [(90_000, "cannot tell"), (50_000, "shorter")])
def test_a_single_steady_step_tells_only_what_is_large(after, verdict):
    found = diff(report([STEP]), report([after]))
    assert found.verdict == verdict
    assert "single steady step" in render_result(found, **PLAIN)


def test_few_steps_that_lie_apart_cannot_be_told(snapshot):
    found = diff(report([STEP, 2 * STEP]), report([STEP * 3 // 2] * 2))
    assert found.ranks[0].doubts == (Doubt.SPREAD,)
    assert headline(found) == snapshot
    assert found.regressed(0) == ()


def test_several_recordings_make_the_noise():
    """Steps of each recording are all alike, but the recordings differ by 10 %."""
    before = [Side(report([STEP + i * 10_000] * 3), None) for i in range(3)]
    after = [Side(report([STEP - 8_000 + i * 10_000] * 3), None) for i in range(3)]
    found = compare(before, after)
    [rank] = found.ranks
    assert (rank.verdict, rank.length.difference_ns) == ("cannot tell", -8_000)
    assert rank.length.noise_ns == 22_698  # 2.78 * sqrt(10_000**2 * (1/3 + 1/3))
    assert len(rank.before_recordings) == len(rank.after_recordings) == 3
    assert compare(before[:1], after[:1]).verdict == "shorter"
    assert "Medians of the recordings." in render_result(found, **PLAIN)


def test_recordings_of_several_ranks_are_put_together_by_rank():
    sides = [Side(report([STEP] * 3, rank=rank), None) for rank in (0, 1, 0, 1)]
    found = compare(sides, sides[:2])
    assert [x.after.rank for x in found.ranks] == [0, 1]
    assert [len(x.before_recordings) for x in found.ranks] == [2, 2]


def test_ranks_that_contradict_each_other_cannot_be_told():
    before = [Side(report([STEP] * 3, rank=rank), None) for rank in (0, 1)]
    after = [Side(report([STEP + x] * 3, rank=r), None) for r, x in ((0, -9_000), (1, 9_000))]
    found = compare(before, after)
    assert [x.verdict for x in found.ranks] == ["shorter", "longer"]
    assert found.verdict == "cannot tell"
    assert found.regressed(0) == ()
    assert "shorter on rank 0 and longer on rank 1" in headline(found)


def test_what_launch_sets_have_in_common():
    assert common({"a": 4, "b": 1}, {"a": 4, "c": 3}) == 0.5
    assert common({}, {}) == 1


PLAIN = {"width": 100, "color": False}


def test_streams_without_a_namesake_are_paired_by_how_busy_they_are():
    before = report([STEP] * 3, streams={7: 50_000, 13: 1_000, 20: 9_000})
    after = report([STEP] * 3, streams={7: 50_000, 30: 2_000, 31: 8_000, 32: 1_000})
    streams = only(before, after).devices[0].streams
    assert [(x.before, x.after, x.matched) for x in streams] == [
        (7, 7, NUMBER),
        (20, 31, ORDER),
        (13, 30, ORDER),
        (None, 32, AFTER),
    ]
    assert [x.busy.difference_ns for x in streams] == [0, -1_000, 1_000, 1_000]
    text = render_result(diff(before, after), **PLAIN)
    assert "stream 20 → 31" in text
    assert "stream 32 (new)" in text
    assert "no namesake" in text


def test_nearly_empty_streams_of_graphs_are_not_compared():
    # GIVEN 18 and 16 of them, whose numbers say nothing, and two other streams
    def with_graphs(numbers, alone):
        together = GraphStreamsTime(tuple(numbers), 20_000, len(numbers))
        streams = {7: 50_000, **dict.fromkeys(numbers, 2_000), alone: 3_000}
        return report([STEP] * 3, streams=streams, graph_streams=together)

    # THEN
    [found] = only(with_graphs(range(100, 118), 118), with_graphs(range(103, 119), 100)).devices
    assert [(x.before, x.after) for x in found.streams] == [(7, 7), (118, 100)]


def test_device_with_another_number_is_paired_and_named():
    rank = only(report([STEP] * 3), report([STEP] * 3, number=3))
    assert [(x.before, x.after, x.matched) for x in rank.devices] == [(0, 3, ORDER)]
    text = render_result(diff(report([STEP] * 3), report([STEP] * 3, number=3)), **PLAIN)
    assert "GPU 0 → 3" in text


def test_every_time_of_a_device_is_compared():
    before, after = report([STEP] * 3), report([STEP] * 3, idle=12_000)
    [found] = only(before, after).devices
    assert {name: x.difference_ns for name, x in found.figures.items()} == {
        "busy_ns": -2_000,
        "idle_ns": 2_000,
        "compute_ns": -2_000,
        "comm_ns": 0,
        "copy_ns": 0,
        "memset_ns": 0,
        "exposed_comm_ns": 0,
        "exposed_copy_ns": 0,
    }


def test_tables_of_the_package_are_not_compared_row_by_row():
    found = analyze(str(TRACES / "events_item.pt.trace.json.gz"))
    assert {"overlaps", "syncs", "holders", "critical_path"} <= set(found.tables)
    assert [rank.tables for rank in diff(found, found).ranks] == [{}]


def test_findings_are_gone_new_changed_or_the_same(snapshot):
    trace = 3 * STEP
    before = report(
        [STEP] * 3,
        findings=[
            finding(bound=trace // 10, call="gone"),
            finding(bound=trace // 10, call="changed", line=3),
            finding(bound=trace // 10, call="same", line=3),
        ],
    )
    after = report(
        [STEP] * 3,
        findings=[
            finding(bound=trace // 20, call="changed", line=9),
            finding(bound=trace // 10 + 3_000, call="same", line=9),
            finding(bound=trace // 200, call="new"),
        ],
    )
    found = {x.name: x for x in only(before, after).findings}
    assert {name: x.state for name, x in found.items()} == {
        name: name for name in ("gone", "changed", "same", "new")
    }
    assert found["gone"].before_share == 0.1
    assert found["gone"].beyond_noise
    assert found["changed"].beyond_noise
    assert not found["same"].beyond_noise  # 1 % is not more than 1 %
    assert not found["new"].beyond_noise
    assert {"10.0 %", "5.0 %"} <= {*figures(verdict(only(before, after)))}
    assert verdict(only(before, after)) == snapshot


def test_finding_about_the_trace_is_no_difference():
    after = report([STEP] * 3, findings=[finding("TL904", call=None, function=None)])
    found = diff(report([STEP] * 3), after)
    assert not found.different
    assert "TL904 after only" in render_result(found, **PLAIN)


def test_bounds_of_one_key_add_up():
    twice = report([STEP] * 3, findings=[finding(bound=5_000), finding(bound=7_000)])
    rank = only(twice, report([STEP] * 3))
    (found,) = rank.findings
    assert (found.before_ns, found.before_count, found.after_count) == (12_000, 2, 0)
    assert "2 findings: It waits" in render_result(diff(twice, report([STEP] * 3)), **PLAIN)


def test_shares_of_findings_are_those_of_the_report(snapshot):
    """27.3 % in `tracelab analyze`: of the steady steps without the profiler, not of the trace."""
    name = str(TRACES / "inline_loader_numpy.pt.trace.json.gz")
    [rank] = compare(name, name).ranks
    [loading] = [x for x in rank.findings if x.rule == "TL302"]
    assert round(100 * loading.before_share, 1) == 27.3
    assert loading.before_share == loading.after_share
    assert rank.before_scope == rank.after_scope == "the steady steps"
    changed = diff(report([STEP] * 3, findings=[finding(bound=90_000)]), report([STEP] * 3))
    assert render_result(changed, **PLAIN) == snapshot


def test_findings_that_would_look_alike_are_told_apart_by_their_cause(snapshot):
    busy = replace(finding(bound=90_000), cause="slow_host")
    found = diff(report([STEP] * 3, findings=[finding(bound=60_000), busy]), report([STEP] * 3))
    assert headline(found) == snapshot


def test_tables_use_the_names_of_the_report():
    before, after = (waiting([STEP] * 3, idle, cause="input") for idle in (20_000, 40_000))
    text = render_result(diff(before, after), **PLAIN)
    assert "idle: data loading" in text
    assert "idle: input" not in text
    assert diff(before, after).ranks[0].devices[0].bubbles.keys() == {"input"}


def waiting(steps, idle, *, cause="host_busy", findings=()):
    """A file that lost idle time to one cause in each step."""
    made = report(steps, idle=idle, findings=findings)
    windows = tuple(
        replace(x, devices=tuple(replace(y, bubbles={cause: y.idle_ns}) for y in x.devices))
        for x in made.windows
    )
    return replace(made, tables={**made.tables, "windows": windows})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # Both wait for the host for at least 60 µs, so stacks may have made 60 µs of difference.
        ((STEP, 80_000), (STEP - 20_000, 60_000), "cannot tell"),
        ((STEP - 20_000, 60_000), (STEP, 80_000), "cannot tell"),
        # 70 µs of difference, but only 10 µs that both have: stacks do not make that.
        ((STEP, 80_000), (STEP - 70_000, 10_000), "shorter"),
        # The GPU works for 20 µs less.
        ((STEP, 60_000), (STEP - 20_000, 60_000), "shorter"),
    ],
)
def test_idle_time_that_python_stacks_inflate_is_no_change_of_the_step(before, after, expected):
    sides = [waiting([length] * 3, idle) for length, idle in (before, after)]
    found = diff(*sides)
    assert found.verdict == expected
    assert found.regressed(0) == ()
    loading = diff(*[waiting([x] * 3, idle, cause="input") for x, idle in (before, after)])
    assert loading.verdict == ("shorter" if before > after else "longer")
    assert compare([Side(sides[0], None)] * 3, [Side(sides[1], None)] * 3).verdict == expected
    no_stacks = [replace(finding("TL903"), cause="no_Python_stacks")]
    bare = [waiting([x] * 3, idle, findings=no_stacks) for x, idle in (before, after)]
    assert diff(*bare).verdict == ("shorter" if before > after else "longer")
    if expected == "cannot tell":
        assert found.ranks[0].doubts == (Doubt.INFLATED,)
        assert "Python stacks inflate that" in headline(found)


def test_source_that_was_not_found_is_no_lack_of_stacks():
    no_source = [replace(finding("TL903"), cause="no_source")]
    found = diff(waiting([STEP] * 3, 80_000), waiting([80_000] * 3, 60_000, findings=no_source))
    assert found.ranks[0].doubts == (Doubt.INFLATED,)


def measured(length, unprofiled):
    """A file that knows what a step takes without the profiler."""
    made = report([length] * 3)
    row = make_steady(
        steps=(0, 1, 2),
        end_ns=3 * length,
        step_ns=length,
        lengths_ns=(length,) * 3,
        unprofiled_step_ns=unprofiled,
    )
    return replace(made, tables={**made.tables, "steady": (row,)})


@pytest.mark.parametrize(
    ("unprofiled", "expected", "reason"),
    [
        (95_000, "shorter", ""),
        (98_900, "shorter", ""),
        (99_500, "shorter", ""),
        (99_600, "cannot tell", "it changed by less than 0.5 %"),
        (107_000, "cannot tell", "it got 7.0 % longer"),
    ],
)
def test_step_without_the_profiler_has_to_move_the_same_way(unprofiled, expected, reason):
    before, after = measured(STEP, STEP), measured(90_000, unprofiled)
    found = diff(before, after)
    assert found.verdict == expected
    assert compare([Side(before, None)] * 2, [Side(after, None)]).verdict == expected
    if reason:
        assert found.ranks[0].doubts == (Doubt.PROFILER,)
        assert f"Without the profiler {reason}: record each side several times." in headline(found)


def test_calls_are_matched_by_place_whatever_their_line():
    before = report([STEP] * 3, syncs=[sync(i, 9_000, 4_000) for i in range(3)])
    moved = [sync(i, 9_000, 0, line=8) for i in range(3)] + [sync(0, 1, 0, function="other")]
    first, second = only(before, report([STEP] * 3, syncs=moved)).calls
    assert (first.line, first.before_count, first.after_count) == (8, 1, 1)
    assert first.blocked.difference_ns == 0
    assert (first.caused_idle.before_ns, first.caused_idle.after_ns) == (4_000, 0)
    assert first.caused_idle.beyond_noise
    assert (second.function, second.after_count) == ("other", 0)  # in one step of three


def test_without_functions_on_one_side_calls_are_matched_without_places():
    with_stacks = report([STEP] * 3, syncs=[sync(i, 9_000, 4_000) for i in range(3)])
    without = [replace(sync(i, 9_000, 4_000), function=None, file=None) for i in range(3)]
    found = diff(with_stacks, report([STEP] * 3, syncs=without))
    assert not found.ranks[0].places
    assert len(found.ranks[0].calls) == 1
    assert not found.different
    assert "without Python functions" in render_result(found, **PLAIN)


def test_ranks_are_matched_and_the_others_named():
    def job(lengths):
        parts = [report([length] * 3, rank=rank) for rank, length in lengths.items()]
        return replace(
            parts[0],
            traces=tuple(x.traces[0] for x in parts),
            tables={"windows": tuple(window for x in parts for window in x.windows)},
        )

    before, after = job({0: STEP, 1: STEP, 4: STEP}), job({0: STEP, 1: 2 * STEP, 7: STEP})
    found = diff(before, after)
    assert [(x.before.rank, x.after.rank) for x in found.ranks] == [(0, 0), (1, 1)]
    assert (found.only_before, found.only_after) == ((4,), (7,))
    assert headline(found).startswith("Rank 1, the slowest of 2: a step got 100.0 % longer: ")
    assert [x.after.rank for x in found.regressed(99)] == [1]
    assert found.regressed(100) == ()
    text = render_result(found, **PLAIN)
    assert "Rank 4: before only." in text
    assert "── Rank 1" in text
    with pytest.raises(UsageError, match="rank 0, 1, 4"):
        diff(before, job({5: STEP, 6: STEP}))


def test_one_file_is_compared_with_one_file_of_another_rank():
    found = diff(report([STEP] * 3), report([STEP] * 3, rank=5))
    assert (found.only_before, found.only_after) == ((), ())
    assert "Rank 0 is compared with rank 5." in render_result(found, **PLAIN)


def test_saved_reports_leave_out_kernels():
    found = diff(report([STEP] * 3), report([STEP] * 3))
    assert found.ranks[0].kernels is None
    assert "are saved reports" in render_result(found, **PLAIN)
    assert verdict(found.ranks[0]).startswith("No change beyond the noise of 1.0 %: ")
    assert found.same_program is None


def test_kernels_of_both_sides():
    same = [kernel(start, start + 10, "same") for start in (60_000, 61_000, 62_000)]
    before = kernel_times(graph(kernel(0, 50_000, "a"), *same))
    after = kernel_times(graph(kernel(0, 9_000, "b"), *same))
    one = report([])
    found = compare(Side(one, (before,)), Side(one, (after,)))
    kernels = found.ranks[0].kernels
    assert [(x.name, x.total.difference_ns) for x in kernels] == [
        ("a", -50_000),
        ("b", 9_000),
        ("same", 0),
    ]
    assert (kernels[0].before_count, kernels[0].after_count) == (1, 0)
    assert re.search(r"a +1 → 0 +50.00 µs +0 +-50.00 µs +gone", render_result(found, **PLAIN))
    assert "a 50.00 µs → 0" in headline(found)


def test_a_kernel_that_came_or_went_is_no_noise_however_short(snapshot):
    """10 ns in a trace of 100 µs."""
    long = [kernel(0, 50_000, "long"), kernel(50_000, 99_000, "long")]
    before = kernel_times(graph(*long, kernel(99_000, 99_010, "a")))
    after = kernel_times(graph(*long, kernel(99_000, 99_020, "b")))
    one = report([])
    one = replace(one, tables={"windows": (replace(one.windows[0], start_ns=0, end_ns=STEP),)})
    found = compare(Side(one, (before,)), Side(one, (after,)))
    assert [(x.name, x.state) for x in found.ranks[0].kernels] == [
        ("b", "new"),
        ("a", "gone"),
        ("long", ""),
    ]
    text = render_result(found, **PLAIN)
    assert text == snapshot
    assert re.search(r"a +1 → 0 +10 ns +0 +-10 ns +gone, below the noise", text)
    assert re.search(r"b +0 → 1 +0 +20 ns +\+20 ns +new, below the noise", text)


def test_kernel_names_that_look_alike_show_where_they_differ():
    names = ["void at::f<at::A<1>>(int)", "void at::f<at::A<2>>(int)", "void at::g<int>(int)"]
    assert kernel_labels(names) == ["f · …1>>(int)", "f · …2>>(int)", "g"]
