import re
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from rich.cells import cell_len

from tests.build.reports import report
from tests.real_traces import path_of
from tracelab.findings.finding import Finding, Where
from tracelab.findings.registry import about_of
from tracelab.measures.bubbles import Cause
from tracelab.measures.critical_path import PathKind
from tracelab.measures.overlap import StreamTime
from tracelab.render.text.cells import (
    CAUSE_MEANINGS,
    PATH_MEANINGS,
    clean,
    counted,
    listed,
    percent_text,
    time_text,
)
from tracelab.render.text.report import chapters, render_text
from tracelab.render.text.sections import Tone
from tracelab.render.text.terminal import shorten_middle, wrap
from tracelab.render.text.window_overlap import selection_name
from tracelab.report.schema import (
    BlockingCallMetrics,
    CriticalPathMetrics,
    CulpritMetrics,
    DeviceMetrics,
    EventLinks,
    KernelTotal,
    LaunchedOnly,
    OverlapMetrics,
    Provenance,
    TraceInfo,
    UnreadFile,
    WindowMetrics,
)
from tracelab.reports import analyze

MS = 1_000_000
WIDTHS = (80, 100, 160)
NASTY = "[red]a[/] \x1b[31mb\x1b[0m\nc\r\td\u202ee\u2066f\ud800g :smile: \x9b1m"


def make_device(device=0, *, idle_ns=0, **figures):
    """A device that was busy with compute on stream 7 for 10 ms, unless told otherwise."""
    defaults = {
        "device": device,
        "busy_ns": 10 * MS,
        "idle_ns": idle_ns,
        "compute_ns": 10 * MS,
        "comm_ns": 0,
        "copy_ns": 0,
        "memset_ns": 0,
        "exposed_comm_ns": 0,
        "exposed_copy_ns": 0,
        "blocking_comm_ns": 0,
        "blocking_copy_ns": 0,
        "comm_compute_overlap_ns": 0,
        "copy_compute_overlap_ns": 0,
        "streams": (StreamTime(7, 10 * MS, 3),),
        "bubbles": {},
        "unknown_reasons": {},
    }
    return DeviceMetrics(**defaults | figures)


def make_window(*devices, rank=0, step=None, start_ns=0):
    devices = devices or (make_device(),)
    length_ns = devices[0].busy_ns + devices[0].idle_ns
    return WindowMetrics(rank, step, start_ns, start_ns + length_ns, devices)


def make_trace(**facts):
    defaults = {
        "path": "run/trace.json.gz",
        "rank": 0,
        "rank_source": "metadata",
        "objects": 20,
        "events": 10,
        "gpu_activities": 3,
        "software": {},
        "gpus": {},
        "losses": {},
        "event_links": EventLinks(0, 0, 0),
        "unrecognised": (),
        "launched_only": None,
    }
    return TraceInfo(**defaults | facts)


def make_report(*windows, traces=None, provenance=None, **parts):
    return report(
        provenance=provenance,
        traces=traces or (make_trace(),),
        windows=windows or (make_window(),),
        **parts,
    )


def make_finding(rule="TL101", *, severity="critical", bound_ns=4 * MS, **figures):
    defaults = {
        "title": "`item` in train (train.py:84) makes the host wait for the GPU",
        "rank": 0,
        "step": None,
        "cause": "host_sync",
        "cost_ns": 5 * MS,
        "where": Where(count=3, annotation="backward"),
        "evidence": (1,),
        "fix": "Read it later.",
        "about": about_of(rule),
    }
    return Finding(rule=rule, severity=severity, bound_ns=bound_ns, **defaults | figures)


def make_sync(api="cudaStreamSynchronize", *, rank=0, step=None, **figures):
    defaults = {
        "kind": "stream",
        "count": 5,
        "blocked_ns": 9 * MS,
        "caused_idle_ns": 1 * MS,
        "idle_after_ns": 0,
        "waited_for": None,
        "operator": "aten::item",
        "annotation": None,
        "function": "train",
        "file": "src/train.py",
        "line": None,
    }
    return BlockingCallMetrics(rank, step, api, **defaults | figures)


def make_steps(lengths_ms, rank=0):
    whole = make_window(make_device(busy_ns=sum(lengths_ms) * MS), rank=rank)
    return (
        whole,
        *(
            make_window(make_device(busy_ns=length * MS), rank=rank, step=number)
            for number, length in enumerate(lengths_ms)
        ),
    )


def sections_of(report, **options):
    return [section for chapter in chapters(report, **options) for section in chapter.sections]


def section_of(report, title, **options):
    found = [x for x in sections_of(report, **options) if x.title == title]
    assert len(found) == 1, f"{title!r} is there {len(found)} times"
    return found[0]


def titles_of(report, **options):
    return [x.title for x in sections_of(report, **options) if x.title]


def headlines_of(report):
    return [x.lines for x in sections_of(report) if x.tone is Tone.STRONG]


def assert_fits(text, width):
    too_long = [line for line in text.split("\n") if cell_len(line) > width]
    assert not too_long
    harmful = {c for c in text if not c.isprintable() and c != "\n"}
    assert not harmful


class TestTimeText:
    @pytest.mark.parametrize(
        ("time_ns", "text"),
        [
            (0, "0"),
            (1, "1 ns"),
            (812, "812 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (1_640, "1.64 µs"),
            (99_994, "99.99 µs"),
            (99_996, "100.0 µs"),
            (999_949, "999.9 µs"),
            (999_951, "1.00 ms"),
            (999_999, "1.00 ms"),
            (16_680_000, "16.68 ms"),
            (123_400_000, "123.4 ms"),
            (999_999_999, "1.00 s"),
            (1_230_000_000, "1.23 s"),
            (123_400_000_000, "123.4 s"),
            (999_990_000_000, "1,000.0 s"),
            (86_400_000_000_000, "86,400.0 s"),
        ],
    )
    def test_unit_and_digits(self, time_ns, text):
        assert time_text(time_ns) == text

    @given(st.integers(1, 10**12 - 10**8))
    def test_is_within_half_a_last_digit(self, time_ns):
        value, unit = time_text(time_ns).split(" ")
        unit_ns = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}[unit]
        last_digit_ns = unit_ns / 10 ** len(value.partition(".")[2])
        assert abs(float(value) * unit_ns - time_ns) <= last_digit_ns * 0.501
        assert len(value) <= 5


class TestPercentText:
    @pytest.mark.parametrize(
        ("part", "whole", "text"),
        [
            (0, 5, "0 %"),
            (5, 5, "100 %"),
            (988, 1000, "98.8 %"),
            (1, 2, "50.0 %"),
            (1, 10**9, "<0.1 %"),
            (99, 100_000, "<0.1 %"),
            (100, 100_000, "0.1 %"),
            (99_900, 100_000, "99.9 %"),
            (99_901, 100_000, ">99.9 %"),
            (10**9 - 1, 10**9, ">99.9 %"),
            (3, 2, "150.0 %"),
            (0, 0, "-"),
            (5, 0, "-"),
        ],
    )
    def test_only_the_whole_is_100(self, part, whole, text):
        assert percent_text(part, whole) == text


class TestWords:
    def test_clean_leaves_nothing_that_a_terminal_acts_upon(self):
        assert clean(NASTY) == "[red]a[/] [31mb[0m c  def" + "g :smile: 1m"

    def test_clean_keeps_letters_of_any_script(self):
        assert clean("größe 模型 модель") == "größe 模型 модель"

    @pytest.mark.parametrize(
        ("count", "text"), [(0, "0 steps"), (1, "1 step"), (1234, "1,234 steps")]
    )
    def test_counted(self, count, text):
        assert counted(count, "step", "steps") == text

    @pytest.mark.parametrize(
        ("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
    )
    def test_listed(self, words, text):
        assert listed(words, "or") == text

    def test_every_cause_and_kind_has_a_meaning(self):
        assert set(CAUSE_MEANINGS) == {cause.name.lower() for cause in Cause}
        assert set(PATH_MEANINGS) == {kind.name.lower() for kind in PathKind}

    @pytest.mark.parametrize(
        ("selection", "one", "of_several"),
        [
            ("kind:0/comm", "comm", "GPU 0 comm"),
            ("stream:1/7", "stream 7", "GPU 1 stream 7"),
            ("device:1", "GPU 1", "GPU 1"),
        ],
    )
    def test_selections_are_named_as_people_do(self, selection, one, of_several):
        assert selection_name(selection, several=False) == one
        assert selection_name(selection, several=True) == of_several


class TestFitting:
    @pytest.mark.parametrize(
        ("text", "room", "shortened"),
        [
            ("abcdefghij", 10, "abcdefghij"),
            ("abcdefghij", 7, "abc…hij"),
            ("abcdefghij", 6, "abc…ij"),
            ("abcdefghij", 1, "…"),
            ("模型模型模型", 8, "模型…型"),
            ("", 5, ""),
        ],
    )
    def test_shorten_middle(self, text, room, shortened):
        assert shorten_middle(text, room) == shortened

    def test_wrap_keeps_a_number_with_its_unit(self):
        # GIVEN a sentence that would be cut before "ms", "%" and "0"
        text = "It was busy 98.8 % of 16.68 ms (and GPU 0 of 12.3 %)."
        # WHEN it is wrapped at any width
        # THEN no line begins with the second half of a pair
        for room in range(10, 60):
            lines = wrap(text, room)
            assert " ".join(lines) == text
            assert not [x for x in lines if x.startswith(("%", "ms", "0"))]
            assert all(cell_len(line) <= room for line in lines)

    def test_wrap_cuts_what_is_longer_than_a_line(self):
        assert wrap("a bbbbbbbb c", 5) == ["a", "bbbbb", "bbb c"]

    def test_wrap_of_nothing_is_nothing(self):
        assert wrap("", 10) == []


class TestHeader:
    def test_says_what_the_file_is(self):
        # GIVEN a file with two equal GPUs, whose name gives the rank
        trace = make_trace(
            rank=3,
            rank_source="filename",
            events=12_345,
            gpus={"0": "NVIDIA H200", "1": "NVIDIA H200"},
            software={"torch": "2.11", "cuda": "13.0", "other": "1"},
        )
        window = make_window(make_device(0), make_device(1), rank=3)
        # WHEN it is reported
        report = make_report(
            window, replace(window, step=4), replace(window, step=5), traces=(trace,)
        )
        # THEN the header tells all of it
        assert chapters(report)[1].title == "run/trace.json.gz"
        assert sections_of(report)[0].lines == ("tracelab 1.2.3 · 1 file",)
        assert sections_of(report)[1].lines == (
            "rank 3 (from the file's name)",
            "GPU 0, 1 NVIDIA H200 · PyTorch 2.11 · CUDA 13.0 · other 1",
            "12,345 events · 3 GPU activities · 2 steps (4 to 5)",
        )

    def test_a_rank_that_the_file_gives_needs_no_remark(self):
        assert sections_of(make_report())[1].lines[0] == "rank 0"

    def test_losses_stand_before_the_first_number(self):
        # GIVEN a damaged file
        losses = {"truncated": 1, "activities_without_launch": 1968, "of_tomorrow": 2}
        report = make_report(traces=(make_trace(losses=losses, event_links=EventLinks(0, 7, 0)),))
        # WHEN the report is made
        section = section_of(report, "Losses")
        # THEN every loss is a warning with its count and its sentence
        assert section.tone is Tone.WARNING
        assert [row[0] for row in section.rows] == ["", "1,968", "2", "7"]
        assert section.rows[0][1].startswith("the file breaks off")
        assert section.rows[1][1].startswith("GPU activities whose launch is not in the file")
        assert section.rows[2][1] == "of_tomorrow"
        assert section.rows[3][1].startswith("stream waits whose event record was inferred")
        assert titles_of(report).index("Losses") < titles_of(report).index("Whole trace")

    def test_a_file_without_loss_has_no_such_section(self):
        assert "Losses" not in titles_of(make_report())

    def test_names_files_that_could_not_be_used(self):
        # GIVEN one reason that names its file and one that does not
        unread = (UnreadFile("a.json", "a.json: no trace"), UnreadFile("b.json", "no GPU"))
        report = make_report(provenance=Provenance(("run",), ("^my_",), "", unread))
        # WHEN / THEN
        section = section_of(report, "Files that could not be used")
        assert section.lines == ("a.json: no trace", "b.json: no GPU")
        assert "kernels that match ^my_" in sections_of(report)[0].lines[1]


class TestHeadline:
    def test_says_how_busy_and_why_not(self):
        # GIVEN idle of four causes
        bubbles = {"launch": 41, "host_busy": 30, "input": 20, "edge": 9, "unknown": 0}
        device = make_device(
            busy_ns=15 * MS, idle_ns=5 * MS, bubbles={x: n * 50_000 for x, n in bubbles.items()}
        )
        # WHEN / THEN the three largest are named, the rest is summed up
        assert [lines[1:] for lines in headlines_of(make_report(make_window(device)))] == [
            (
                "GPU 0 was busy 75.0 % of 20.00 ms; the 5.00 ms idle: launch 41.0 %, "
                "host_busy 30.0 %, input 20.0 %, other causes 9.0 %.",
            )
        ]

    def test_a_device_that_was_never_idle(self):
        [(verdict, *lines)] = headlines_of(make_report())
        assert verdict.startswith("0 % of the trace is lost on GPU 0")
        assert lines == ["GPU 0 was busy 100 % of 10.00 ms."]

    def test_exposed_work_is_news_even_where_the_gpu_is_busy(self):
        device = make_device(
            comm_ns=6 * MS, exposed_comm_ns=4 * MS, copy_ns=MS, exposed_copy_ns=MS // 20
        )
        assert [lines[1:] for lines in headlines_of(make_report(make_window(device)))] == [
            (
                "GPU 0 was busy 100 % of 10.00 ms. "
                "4.00 ms (40.0 %) was communication that no compute hid.",
            )
        ]

    def test_every_device_has_its_sentence(self):
        lines = headlines_of(make_report(make_window(make_device(0), make_device(3))))[0]
        assert [line[:5] for line in lines[1:]] == ["GPU 0", "GPU 3"]


class TestFindings:
    def test_verdict_names_what_can_win_most(self):
        device = make_device(idle_ns=10 * MS, bubbles={"launch": 10 * MS})
        info = make_finding("TL301", severity="info", bound_ns=0, title="something else")
        report = make_report(make_window(device), findings=(make_finding(), info))
        assert headlines_of(report)[0][0] == (
            "50.0 % of the trace is lost on GPU 0: idle, or copies and communication that nothing "
            "hid. The most to win, up to 20.0 %: `item` in train (train.py:84) makes the host wait "
            "for the GPU."
        )

    def test_verdict_on_what_the_profiler_cost(self):
        # GIVEN 10 ms busy and 10 idle; without the profiler it would be 12 ms, so 2 of them idle
        device = make_device(idle_ns=10 * MS, bubbles={"launch": 10 * MS})
        window = replace(make_window(device), unprofiled_ns=12 * MS)
        report = make_report(window, findings=(make_finding(bound_ns=MS),))
        assert headlines_of(report)[0][0] == (
            "50.0 % of the trace is lost on GPU 0: idle, or copies and communication that nothing "
            "hid. But much of it is the profiler's own: without it, this takes 12.00 ms, of which "
            "16.7 % is lost. The most to win, up to 8.3 % of that: `item` in train (train.py:84) "
            "makes the host wait for the GPU."
        )
        assert any("wins up to 1.00 ms (8.3 %)" in x.title for x in sections_of(report))

    def test_verdict_without_alarms(self):
        info = make_finding("TL301", severity="info", bound_ns=0, cost_ns=MS // 2)
        assert headlines_of(make_report(findings=(info,)))[0][0].endswith(
            "No single change would win 2 % of it."
        )

    def test_verdict_on_much_that_nothing_can_hide(self):
        info = make_finding("TL202", severity="info", bound_ns=0, title="it runs alone")
        assert headlines_of(make_report(findings=(info,)))[0][0].endswith(
            "win 2 % of it. The most, 50.0 %: it runs alone. Read it later."
        )

    def test_alarms_stand_in_full_with_their_fix(self):
        report = make_report(findings=(make_finding(),))
        section = section_of(
            report, "1. critical · wins up to 4.00 ms (40.0 %) of 5.00 ms lost · TL101"
        )
        assert section.lines == (
            "`item` in train (train.py:84) makes the host wait for the GPU. "
            "(cause host_sync, 3 times, in backward)",
            "Fix: Read it later.",
        )

    def test_what_is_small_or_too_much_stands_in_a_table(self):
        alarms = [make_finding(title=f"number {i}") for i in range(7)]
        infos = [make_finding(severity="info", title=f"small {i}") for i in range(9)]
        section = section_of(
            make_report(findings=(*alarms, *infos)), "Smaller, or nothing to be done"
        )
        assert [row[-1] for row in section.rows] == [
            "number 5",
            "number 6",
            *(f"small {i}" for i in range(4)),
        ]
        assert section.notes == ("… and 5 more (all of them in --json).",)

    def test_what_the_trace_lacks_is_told_apart(self):
        lack = make_finding("TL903", severity="info", bound_ns=0, cost_ns=0, title="No stacks")
        report = make_report(findings=(lack,))
        section = section_of(report, "About the trace")
        assert section.lines == ("TL903  No stacks.",)
        assert section.notes == ("What each does to the numbers: tracelab explain TL903",)
        assert "Smaller, or nothing to be done" not in titles_of(report)

    def test_what_held_the_gpu_up(self):
        holder = CulpritMetrics(
            rank=0,
            step=None,
            device=0,
            cause="host_blocked",
            name="cudaFree",
            operator=None,
            function="train",
            file="train.py",
            line=7,
            count=12,
            idle_ns=3 * MS,
            longest_start_ns=0,
            longest_ns=MS,
            event=4,
        )
        tiny = replace(holder, idle_ns=5, longest_ns=5)
        section = section_of(make_report(holders=(tiny, holder)), "Idle by what held it")
        assert section.rows == (
            ("host_blocked", "3.00 ms", "12", "1.00 ms", "cudaFree · train train.py:7"),
        )
        assert section.notes == ("… and 1 row more (all of them in --json).",)


class TestTimes:
    def test_exposed_time_stands_below_its_kind(self):
        # GIVEN communication and copies, partly hidden
        device = make_device(
            idle_ns=10 * MS,
            comm_ns=4 * MS,
            exposed_comm_ns=MS,
            copy_ns=2 * MS,
            exposed_copy_ns=2 * MS,
            memset_ns=1_000,
            bubbles={"launch": 10 * MS},
        )
        # WHEN / THEN
        section = section_of(make_report(make_window(device)), "Whole trace")
        assert section.rows == (
            ("window", "20.00 ms", "100 %", ""),
            ("busy", "10.00 ms", "50.0 %", "at least one activity ran"),
            ("idle", "10.00 ms", "50.0 %", "none ran"),
            ("compute", "10.00 ms", "50.0 %", ""),
            ("comm", "4.00 ms", "20.0 %", ""),
            ("  exposed", "1.00 ms", "5.0 %", "25.0 % of comm: no compute hid it"),
            ("copy", "2.00 ms", "10.0 %", ""),
            ("  exposed", "2.00 ms", "10.0 %", "100 % of copy: no compute or comm hid it"),
            ("memset", "1.00 µs", "<0.1 %", ""),
        )
        assert section.notes == (
            "The kinds add up to more than busy because some of them ran at the same time.",
        )

    def test_absent_kinds_are_said_in_words(self):
        section = section_of(make_report(), "Whole trace")
        assert [row[0] for row in section.rows] == ["window", "busy", "idle", "compute"]
        assert section.notes == ("There were no communication kernels and no copies.",)

    def test_every_device_has_its_table(self):
        report = make_report(make_window(make_device(0), make_device(1)))
        assert "Whole trace · GPU 0" in titles_of(report)
        assert "Whole trace · GPU 1" in titles_of(report)


class TestIdle:
    def test_causes_by_size_with_shares_and_meaning(self):
        device = make_device(
            idle_ns=10 * MS,
            bubbles={"launch": 2 * MS, "host_busy": 0, "input": 8 * MS, "of_tomorrow": 1},
        )
        section = section_of(make_report(make_window(device)), "Idle by cause")
        assert section.rows[0] == (
            "input",
            "8.00 ms",
            "80.0 %",
            "40.0 %",
            "the host waited for the data loader",
        )
        assert [row[0] for row in section.rows] == ["input", "launch", "of_tomorrow"]
        assert section.rows[2][4] == "of_tomorrow"

    def test_one_reason_of_the_unknown_stands_beside_it(self):
        device = make_device(
            idle_ns=5, bubbles={"unknown": 5}, unknown_reasons={"launch_not_in_file": 5}
        )
        section = section_of(make_report(make_window(device)), "Idle by cause")
        assert [(row[0], row[4]) for row in section.rows] == [
            ("unknown", "the launch of the next activity is not in the file")
        ]

    def test_several_reasons_stand_below_it(self):
        device = make_device(
            idle_ns=5,
            bubbles={"unknown": 5},
            unknown_reasons={"launch_not_in_file": 2, "host_not_recorded": 3},
        )
        section = section_of(make_report(make_window(device)), "Idle by cause")
        assert [row[:3] for row in section.rows] == [
            ("unknown", "5 ns", "100 %"),
            ("  of it", "3 ns", "60.0 %"),
            ("  of it", "2 ns", "40.0 %"),
        ]

    def test_no_idle_is_said_in_words(self):
        section = section_of(make_report(), "Idle by cause")
        assert section.lines == ("GPU 0 was never idle.",)
        assert section.rows == ()


class TestStreams:
    def test_one_stream_cannot_overlap(self):
        section = section_of(make_report(), "Streams")
        assert section.rows == (("7", "10.00 ms", "100 %", "3"),)
        assert section.notes == ("All work is on one stream: none of it can overlap.",)

    def test_of_many_the_busiest_are_shown_in_order(self):
        # GIVEN 12 streams that worked and one that did not, the first two of them the least busy
        streams = tuple(StreamTime(i, (i + 1) * 1000, 1234) for i in range(12))
        device = make_device(streams=(*streams, StreamTime(99, 0, 0)))
        # WHEN / THEN
        section = section_of(make_report(make_window(device)), "Streams")
        assert [row[0] for row in section.rows] == [str(i) for i in range(2, 12)]
        assert section.rows[0][3] == "1,234"
        assert section.notes == (
            "… and 2 streams more, none busy longer than 2.00 µs (all of them in --json).",
        )

    def test_of_several_devices_each_stream_has_its_device(self):
        report = make_report(make_window(make_device(0), make_device(1)))
        section = section_of(report, "Streams")
        assert [row[:2] for row in section.rows] == [("0", "7"), ("1", "7")]

    def test_a_window_without_work_has_no_streams(self):
        device = make_device(streams=(StreamTime(7, 0, 0),))
        assert "Streams" not in titles_of(make_report(make_window(device)))


class TestOverlap:
    def test_kinds_then_streams_and_the_missing_overlap_is_a_word(self):
        # GIVEN a pair of kinds that overlaps, a pair of streams that does not, and one that is tiny
        overlaps = (
            OverlapMetrics(0, None, "kind:0/compute", "kind:0/comm", 8 * MS, 4 * MS, 2 * MS),
            OverlapMetrics(0, None, "kind:0/compute", "kind:0/memset", 8 * MS, 9_999, 0),
            OverlapMetrics(0, None, "stream:0/7", "stream:0/9", 8 * MS, 1 * MS, 0),
            OverlapMetrics(0, None, "stream:0/7", "stream:0/8", 8 * MS, 4 * MS, MS),
        )
        # WHEN / THEN
        section = section_of(make_report(overlaps=overlaps), "Overlap")
        assert section.rows == (
            ("compute", "8.00 ms", "comm", "4.00 ms", "2.00 ms", "25.0 %", "50.0 %"),
            ("",) * 7,
            ("stream 7", "8.00 ms", "stream 8", "4.00 ms", "1.00 ms", "12.5 %", "25.0 %"),
            ("stream 7", "8.00 ms", "stream 9", "1.00 ms", "none", "0 %", "0 %"),
        )
        assert section.notes == ("… and 1 pair more (all of them in --json).",)

    def test_ten_pairs_are_enough(self):
        overlaps = tuple(
            OverlapMetrics(0, None, "stream:0/1", f"stream:0/{i}", MS, i * 10_000, 0)
            for i in range(2, 30)
        )
        section = section_of(make_report(overlaps=overlaps), "Overlap")
        assert [row[2] for row in section.rows] == [f"stream {i}" for i in range(29, 19, -1)]
        assert section.notes == ("… and 18 pairs more (all of them in --json).",)

    def test_only_tiny_pairs_are_said_in_words(self):
        overlaps = (OverlapMetrics(0, None, "kind:0/compute", "kind:0/copy", MS, 1, 0),)
        section = section_of(make_report(overlaps=overlaps), "Overlap")
        assert section.rows == ()
        assert section.lines[0].startswith("Nothing to overlap: 1 pair, and one side of it is")

    def test_nothing_that_could_overlap_is_said_in_words(self):
        section = section_of(make_report(), "Overlap")
        assert section.lines == ("One kind of work on one stream: nothing can overlap.",)

    def test_no_work_is_said_in_words(self):
        device = make_device(busy_ns=0, idle_ns=MS, bubbles={"edge": MS})
        section = section_of(make_report(make_window(device)), "Overlap")
        assert section.lines == ("There was no GPU work.",)

    def test_of_several_devices_each_side_has_its_device(self):
        overlaps = (OverlapMetrics(0, None, "device:0", "device:1", MS, MS, MS),)
        report = make_report(make_window(make_device(0), make_device(1)), overlaps=overlaps)
        row = section_of(report, "Overlap").rows[0]
        assert row == ("GPU 0", "1.00 ms", "GPU 1", "1.00 ms", "1.00 ms", "100 %", "100 %")


class TestBlocking:
    def test_none_is_said_in_words(self):
        assert section_of(make_report(), "Blocking calls").lines == ("No blocking calls.",)

    def test_a_call_with_its_place_and_price(self):
        device = make_device(idle_ns=2 * MS, bubbles={"host_blocked": 2 * MS})
        report = make_report(make_window(device), syncs=(make_sync(line=12),))
        section = section_of(report, "Blocking calls")
        assert section.rows == (
            (
                "cudaStreamSynchronize · stream",
                "5",
                "9.00 ms",
                "1.00 ms",
                "aten::item · train · src/train.py:12",
            ),
        )
        assert section.lines[1] == "All together: 1.00 ms, 50.0 % of the idle time."
        assert section.notes == ()

    def test_without_a_place_it_says_so_and_how_to_get_one(self):
        sync = make_sync(operator=None, function=None, file=None, caused_idle_ns=0)
        section = section_of(make_report(syncs=(sync,)), "Blocking calls")
        assert section.rows[0][4] == "the file does not say"
        assert section.lines[1] == "None of them caused any."
        assert "with_stack=True" in section.notes[0]

    def test_idle_beyond_the_window_is_no_share_of_it(self):
        section = section_of(make_report(syncs=(make_sync(),)), "Blocking calls")
        assert section.lines[1] == "All together: 1.00 ms."

    def test_the_dearest_ten_are_enough(self):
        syncs = tuple(make_sync(function=str(i), caused_idle_ns=1000) for i in range(12))
        section = section_of(make_report(syncs=syncs), "Blocking calls")
        assert len(section.rows) == 10
        assert section.notes == (
            "… and 2 places more that caused 2.00 µs idle (all of them in --json).",
        )


class TestCriticalPath:
    def test_kinds_by_size(self):
        path = CriticalPathMetrics(0, None, 10 * MS, {"compute": 4 * MS, "comm": 6 * MS, "copy": 0})
        section = section_of(make_report(critical_path=(path,)), "Critical path")
        assert section.rows == (
            ("comm", "6.00 ms", "60.0 %", "communication kernels"),
            ("compute", "4.00 ms", "40.0 %", "kernels"),
        )

    def test_is_left_out_where_there_is_none(self):
        path = CriticalPathMetrics(0, None, 0, {"compute": 0})
        assert "Critical path" not in titles_of(make_report(critical_path=(path,)))
        assert "Critical path" not in titles_of(make_report())


class TestFileSections:
    def test_unrecognised_kernels(self):
        trace = make_trace(unrecognised=(KernelTotal("my kernel", 1234, 5 * MS),))
        section = section_of(make_report(traces=(trace,)), "Unrecognised kernels")
        assert section.rows == (("5.00 ms", "1,234", "my kernel"),)
        assert "--comm-pattern" in section.lines[0]

    def test_launched_only_beside_everything(self):
        # GIVEN a file half of whose work has no launch
        again = make_device(busy_ns=4 * MS, idle_ns=4 * MS, compute_ns=4 * MS)
        trace = make_trace(
            gpu_activities=10, launched_only=LaunchedOnly(100, 8 * MS + 100, 3, (again,))
        )
        # WHEN / THEN each side has its own window
        report = make_report(traces=(trace,))
        section = section_of(report, "Without activities of unknown launch")
        assert section.rows == (
            ("window", "10.00 ms", "", "8.00 ms", ""),
            ("busy", "10.00 ms", "100 %", "4.00 ms", "50.0 %"),
            ("idle", "0", "0 %", "4.00 ms", "50.0 %"),
            ("compute", "10.00 ms", "100 %", "4.00 ms", "50.0 %"),
        )
        assert section.lines[0].startswith("3 of 10 GPU activities")

    def test_launched_only_where_a_device_has_nothing_left(self):
        trace = make_trace(launched_only=LaunchedOnly(0, 10 * MS, 3, (make_device(0),)))
        report = make_report(make_window(make_device(0), make_device(1)), traces=(trace,))
        rows = section_of(report, "Without activities of unknown launch").rows
        assert ("GPU 0 busy", "10.00 ms", "100 %", "10.00 ms", "100 %") in rows
        assert ("GPU 1 busy", "10.00 ms", "100 %", "0", "0 %") in rows

    def test_launched_only_is_about_the_whole_trace(self):
        trace = make_trace(launched_only=LaunchedOnly(0, 10 * MS, 3, (make_device(0),)))
        report = make_report(make_window(step=3), traces=(trace,))
        assert "Without activities of unknown launch" not in titles_of(report)


class TestSteps:
    def test_a_row_per_step(self):
        # GIVEN two steps, one of which blocks and communicates
        comm = make_device(
            idle_ns=10 * MS,
            comm_ns=2 * MS,
            exposed_comm_ns=MS,
            bubbles={"host_busy": 9 * MS, "edge": MS},
        )
        windows = (make_window(), make_window(step=1), make_window(comm, step=2))
        report = make_report(*windows, syncs=(make_sync(step=2), make_sync(step=2)))
        # WHEN / THEN
        section = section_of(report, "Steps")
        titles = ["step", "length", "busy", "idle", "exposed\ncomm", "idle by\nblocking"]
        assert [column.title for column in section.columns[:-1]] == titles
        assert section.rows == (
            ("1", "10.00 ms", "100 %", "0", "0", "0", ""),
            ("2", "20.00 ms", "50.0 %", "10.00 ms", "1.00 ms", "2.00 ms", "host_busy · 90.0 %"),
        )
        assert section.notes == ("Length: median 15.00 ms, shortest 10.00 ms, longest 20.00 ms.",)

    def test_a_row_per_device_but_blocking_once(self):
        window = make_window(make_device(0), make_device(1), step=1)
        report = make_report(make_window(), window, syncs=(make_sync(step=1),))
        section = section_of(report, "Steps")
        assert [row[1] for row in section.rows] == ["0", "1"]
        assert [row[5] for row in section.rows] == ["1.00 ms", ""]
        assert section.notes == ()

    def test_copies_have_their_column(self):
        device = make_device(copy_ns=5, exposed_copy_ns=4)
        report = make_report(make_window(), make_window(device, step=1))
        assert section_of(report, "Steps").rows[0][4] == "4 ns"

    def test_twenty_steps_are_all_shown(self):
        assert len(section_of(make_report(*make_steps([1] * 20)), "Steps").rows) == 20

    def test_of_many_the_first_the_slowest_and_the_last(self):
        # GIVEN 30 steps with slow ones in the middle, at the beginning and at the end
        lengths = [1] * 30
        for slow in (2, 13, 14, 15, 29):
            lengths[slow] = 5
        # WHEN / THEN
        section = section_of(make_report(*make_steps(lengths)), "Steps")
        assert [int(row[0]) for row in section.rows] == [
            *(0, 1, 2, 3, 4),
            *(13, 14, 15),
            *(25, 26, 27, 28, 29),
        ]
        assert section.notes == (
            "These are the first 5, the slowest 5 and the last 5 of 30 steps; 17 are left out.",
            "Length: median 1.00 ms, shortest 1.00 ms, longest 5.00 ms.",
        )

    def test_no_steps_are_said_in_words(self):
        lines = section_of(make_report(), "Steps").lines
        assert lines == (r"No step in the file: nothing is named like ^Step#\d+$",)

    def test_every_step_has_the_details_on_request(self):
        # GIVEN two steps
        report = make_report(*make_steps([1, 2]))
        # WHEN asked for, THEN each has a chapter with the sections of the whole trace
        more = chapters(report, every_step=True)
        assert [x.title for x in more] == ["", "run/trace.json.gz", "Step 0", "Step 1"]
        titles = [x.title for x in more[2].sections]
        expected = ["", "Step 0", "Idle by cause", "Streams", "Overlap", "Blocking calls"]
        assert titles == expected
        assert more[2].sections[0].lines[0].startswith("In step 0, GPU 0 was busy")
        # AND not otherwise
        assert len(chapters(report)) == 2

    def test_a_report_of_one_step(self):
        # GIVEN a report that was made for step 7 alone
        report = make_report(make_window(step=7))
        # WHEN / THEN the step takes the place of the whole trace
        assert titles_of(report, every_step=True)[0] == "Step 7"
        assert "Steps" not in titles_of(report)
        assert sections_of(report)[1].lines[2].endswith("step 7 only")
        [(verdict, *lines)] = headlines_of(report)
        assert verdict.startswith("0 % of step 7 is lost on GPU 0")
        assert lines == ["In step 7, GPU 0 was busy 100 % of 10.00 ms."]


class TestRanks:
    def make_job(self, ranks, **device):
        return make_report(
            *(x for rank in ranks for x in make_steps([10, 20], rank=rank)),
            make_window(make_device(**device), rank=ranks[-1], step=99),
            traces=tuple(
                make_trace(path=f"rank{rank}.json", rank=rank, losses={"repairs": 2})
                for rank in ranks
            ),
            syncs=(make_sync(rank=ranks[-1]),),
        )

    def test_the_summary_comes_first_then_every_rank(self):
        report = self.make_job([0, 1])
        assert titles_of(report)[0] == "Ranks"
        assert section_of(report, "Ranks").rows == (
            ("0", "30.00 ms", "100 %", "0", ""),
            ("1", "30.00 ms", "100 %", "0", ""),
        )
        assert [x.title for x in chapters(report)] == [
            "",
            "Rank 0 · rank0.json",
            "Rank 1 · rank1.json",
        ]

    def test_a_rank_shows_only_its_own(self):
        of_rank = chapters(self.make_job([0, 1]))[1:]
        blocking = [[x for x in one.sections if x.title == "Blocking calls"] for one in of_rank]
        assert [found[0].lines[0] for found in blocking][:1] == ["No blocking calls."]
        assert blocking[1][0].rows

    def test_columns_of_what_occurs(self):
        device = make_device(comm_ns=4, exposed_comm_ns=3, copy_ns=2, bubbles={"edge": 1})
        windows = (make_window(device, rank=0), make_window(rank=1))
        report = make_report(*windows, traces=(make_trace(), make_trace(rank=1)))
        section = section_of(report, "Ranks")
        assert [x.title for x in section.columns][4:] == [
            "comm",
            "exposed\ncomm",
            "copy",
            "biggest\nidle cause",
        ]
        assert section.rows[0][4:7] == ("4 ns", "3 ns", "2 ns")

    def test_of_more_than_four_only_the_summary(self):
        # GIVEN five ranks
        report = self.make_job([0, 1, 2, 3, 5])
        # WHEN / THEN there is one row for each, the losses, and what to do for more
        assert titles_of(report, every_step=True) == ["Ranks", "Losses"]
        assert len(section_of(report, "Ranks").rows) == 5
        losses = section_of(report, "Losses")
        assert [(row[0], row[2]) for row in losses.rows] == [("10", "in 5 of 5 files")]
        assert "analyze its file alone" in sections_of(report)[-1].lines[0]

    def test_of_more_than_four_without_losses(self):
        windows = [make_window(rank=rank) for rank in range(5)]
        report = make_report(*windows, traces=tuple(make_trace(rank=rank) for rank in range(5)))
        assert titles_of(report) == ["Ranks"]

    def test_ranks_that_were_given_by_position_are_told(self):
        windows = [make_window(rank=rank) for rank in range(5)]
        traces = [make_trace(rank=rank) for rank in range(4)]
        traces.append(make_trace(rank=4, path="last.json", rank_source="position"))
        report = make_report(*windows, traces=tuple(traces))
        assert section_of(report, "Ranks by position").rows == (("4", "last.json"),)

    def test_files_of_the_same_rank_are_not_mixed(self):
        report = make_report(make_window(), make_window(), traces=(make_trace(), make_trace()))
        assert titles_of(report) == ["Ranks"]
        assert sections_of(report)[-1].tone is Tone.WARNING

    def test_one_step_of_several_ranks(self):
        windows = (make_window(step=3), make_window(rank=1, step=3))
        report = make_report(*windows, traces=(make_trace(), make_trace(rank=1)))
        assert len(section_of(report, "Ranks").rows) == 2


def make_full_report(name="a_name", *, several=True):
    """A report in which everything occurs, with names as long as one likes."""
    bubbles = dict.fromkeys(CAUSE_MEANINGS, 99 * MS // 8)
    reasons = {"launch_not_in_file": 99 * MS // 16, name: 99 * MS // 16}
    device = make_device(
        busy_ns=999_900_000,
        idle_ns=99 * MS,
        compute_ns=999_900_000,
        comm_ns=999_900_000,
        exposed_comm_ns=999_800_000,
        copy_ns=999_900_000,
        exposed_copy_ns=999_800_000,
        memset_ns=999_900_000,
        streams=(StreamTime(123_456, 999_900_000, 1_000_000), StreamTime(8, 999_000, 1)),
        bubbles=bubbles | {name: 1},
        unknown_reasons=reasons,
    )
    devices = (device, replace(device, device=15)) if several else (device,)
    windows = [make_window(*devices, step=None)]
    windows += [make_window(*devices, step=12_000 + i) for i in range(22)]
    keys = [window.step for window in windows]
    pairs = (("kind:0/compute", "kind:0/comm"), ("stream:0/123456", "stream:15/123456"))
    pairs = (*pairs, ("device:0", "device:15"), (f"kind:0/{name}", f"stream:0/{name}"))
    trace = make_trace(
        path=f"/some/folder/{name}.json.gz",
        rank_source="position",
        gpus={"0": name, "15": name},
        software={name: name},
        losses={"truncated": 1, "activities_without_launch": 968, name: 1},
        unrecognised=(KernelTotal(name, 1_000_000, 999_900_000),),
        launched_only=LaunchedOnly(0, 999_900_000, 968, devices),
    )
    return make_report(
        *windows,
        traces=(trace,),
        provenance=Provenance((name,), (name,), name, (UnreadFile(name, f"{name}: {name}"),)),
        overlaps=tuple(
            OverlapMetrics(0, step, a, b, 999_900_000, 999_800_000, 0)
            for step in keys
            for a, b in pairs
        ),
        syncs=tuple(
            make_sync(api, step=step, kind=kind, count=100_000, operator=name, function=name)
            for step in keys
            for api, kind in (("cudaStreamSynchronize", "allocation"), (name, name))
        ),
        critical_path=tuple(
            CriticalPathMetrics(0, step, 999_900_000, dict.fromkeys(PATH_MEANINGS, 111_000_000))
            for step in keys
        ),
    )


class TestRenderText:
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("several", [False, True])
    def test_everything_fits_and_no_number_is_cut(self, width, several):
        # GIVEN a report in which everything occurs
        report = make_full_report("void some::very::long<kernel, name>(int) " * 9, several=several)
        # WHEN it is rendered
        text = render_text(report, width=width, color=False, every_step=True)
        # THEN it fits, and every number of every table is there with its unit
        assert_fits(text, width)
        for number in ("999.9 ms", "999.8 ms", "1,000,000", "100,000", "99.00 ms", "91.0 %"):
            assert number in text

    def test_names_of_calls_are_not_cut_at_80_columns(self):
        text = render_text(make_full_report(), width=80, color=False)
        assert "cudaStreamSynchronize" in text

    def test_lines_have_no_spaces_at_their_ends(self):
        text = render_text(make_full_report(), width=100, color=False)
        assert text == "".join(f"{line.rstrip()}\n" for line in text.splitlines())

    def test_a_narrow_terminal_gets_80_columns(self):
        report = make_full_report()
        wide = render_text(report, width=80, color=False)
        assert render_text(report, width=20, color=False) == wide

    @pytest.mark.parametrize("width", WIDTHS)
    def test_names_of_a_file_are_harmless(self, width):
        # GIVEN names with markup, escape characters, line ends and direction marks
        report = make_full_report(NASTY)
        # WHEN it is rendered
        text = render_text(report, width=width, color=False)
        # THEN nothing of it acts, and the markup is there to read
        assert_fits(text, width)
        assert "[red]a[/]" in text

    def test_names_of_a_file_are_harmless_in_colour(self):
        # GIVEN a name that would turn the terminal red
        report = make_full_report("\x1b[31mX\x1b[5m[blink]Y[/]")
        # WHEN it is rendered in colour
        text = render_text(report, width=160, color=True)
        # THEN the only escapes are rich's own, which are closed on each line
        assert "\x1b[" in text
        assert "\x1b[31m" not in text
        assert "[31mX[5m[blink]Y[/]" in text
        assert all(x.count("\x1b[") == 2 * x.count("\x1b[0m") for x in text.splitlines())

    @settings(max_examples=25, deadline=None)
    @given(st.text(min_size=1, max_size=200))
    def test_any_name_fits(self, name):
        assert_fits(render_text(make_full_report(name), width=80, color=False), 80)

    def test_without_colour_there_is_none(self, monkeypatch):
        # GIVEN an environment that asks for colour
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "33")
        # WHEN / THEN the arguments decide
        report = make_full_report()
        text = render_text(report, width=100, color=False)
        assert "\x1b" not in text
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb")
        assert "\x1b" in render_text(report, width=100, color=True)
        assert render_text(report, width=100, color=False) == text

    def test_losses_and_missing_overlap_are_yellow(self):
        lines = render_text(make_full_report(), width=160, color=True).splitlines()
        assert [x for x in lines if "968" in x and "\x1b[33m" in x]
        assert [x for x in lines if re.search(r"\x1b\[33m *none\x1b\[0m", x)]

    def test_prints_nothing(self, capsys):
        render_text(make_full_report(), width=80, color=True)
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize(
        "report",
        [
            pytest.param(make_report(make_window(make_device(busy_ns=0))), id="no length"),
            pytest.param(make_report(WindowMetrics(0, None, 5, 5, ())), id="no device"),
            pytest.param(replace(make_report(), tables={"windows": ()}), id="no window"),
            pytest.param(
                make_report(
                    make_window(make_device(busy_ns=0)),
                    overlaps=(OverlapMetrics(0, None, "device:0", "device:1", 0, 0, 0),),
                    syncs=(make_sync(blocked_ns=0, caused_idle_ns=0, count=0),),
                    critical_path=(CriticalPathMetrics(0, None, 0, {}),),
                    traces=(make_trace(launched_only=LaunchedOnly(5, 5, 0, ())),),
                ),
                id="all zero",
            ),
        ],
    )
    def test_nothing_is_divided_by_zero(self, report):
        text = render_text(report, width=80, color=False, every_step=True)
        assert_fits(text, 80)
        assert "run/trace.json.gz" in text

    def test_a_window_without_length_says_so(self):
        text = render_text(make_report(make_window(make_device(busy_ns=0))), width=80, color=False)
        assert "GPU 0: the window has no length." in text

    @pytest.mark.parametrize("width", [80, 160])
    @pytest.mark.parametrize("every_step", [False, True])
    def test_a_real_trace(self, width, every_step):
        # GIVEN a real trace of an MI300
        report = analyze(path_of("tracelens_mi300_resnet_ddp8"))
        # WHEN it is rendered
        text = render_text(report, width=width, color=False, every_step=every_step)
        # THEN it fits and says what is known of it
        assert_fits(text, width)
        assert "GPU 2 AMD Instinct MI300X" in text
        assert "3,653 GPU activities · 3 steps (15 to 17)" in text
        assert "comm       71.52 ms     82.6 %" in text
