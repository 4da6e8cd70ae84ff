"""What is said of a file: its head, its losses, its steps, its kernels."""

from dataclasses import replace

import pytest

from tests.build.report_rows import (
    MS,
    make_device,
    make_report,
    make_steady,
    make_steps,
    make_trace,
    make_window,
    section_of,
    sections_of,
    titles_of,
)
from tests.figures import figures
from tracelab.model.timeline import LeftOut
from tracelab.render.document import detailed
from tracelab.render.section import Tone
from tracelab.report.schema import (
    EventLinks,
    KernelTotal,
    Provenance,
    UnreadFile,
)


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
        assert detailed(report).chapters[1].title == "run/trace.json.gz"
        assert sections_of(report)[0].lines == ("tracelab 1.2.3 · 1 file",)
        assert sections_of(report)[1].lines == (
            "rank 3 (from the file's name)",
            "GPU 0, 1 NVIDIA H200 · PyTorch 2.11 · CUDA 13.0 · other 1",
            "12,345 events · 3 GPU activities · 2 steps (4 to 5)",
        )

    @pytest.mark.parametrize(
        ("collector", "says"), [("", ""), ("kineto", ""), ("cuspy", " · recorded with Cuspy")]
    )
    def test_says_who_recorded_the_gpu_where_that_is_not_kineto(self, collector, says):
        trace = make_trace(software={"torch": "2.15"}, collector=collector)
        lines = sections_of(make_report(traces=(trace,)))[1].lines
        assert lines[1] == f"GPU 0 · PyTorch 2.15{says}"

    def test_a_rank_that_the_file_gives_needs_no_remark(self):
        assert sections_of(make_report())[1].lines[0] == "rank 0"

    def test_losses_stand_before_the_first_number(self, snapshot):
        # GIVEN a damaged file
        losses = {"truncated": 1, "activities_without_launch": 1968, "of_tomorrow": 2}
        report = make_report(traces=(make_trace(losses=losses, event_links=EventLinks(0, 7, 0)),))
        # WHEN the report is made
        section = section_of(report, "Losses")
        # THEN every loss is a warning with its count and its sentence
        assert section.tone is Tone.WARNING
        assert [row[0] for row in section.rows] == ["", "1,968", "2", "7"]
        assert section.rows[0][1].startswith("the file is truncated")
        assert section.rows[1][1] == snapshot
        assert section.rows[2][1] == "of_tomorrow"
        assert section.rows[3][1] == snapshot
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


class TestFileSections:
    def test_unrecognised_kernels(self):
        trace = make_trace(unrecognised=(KernelTotal("my kernel", 1234, 5 * MS),))
        section = section_of(make_report(traces=(trace,)), "Unrecognized kernels")
        assert section.rows == (("5.00 ms", "1,234", "my kernel"),)
        assert "--comm-pattern" in section.lines[0]


class TestSteps:
    def test_a_row_per_step(self):
        # GIVEN two steps, one of which blocks and communicates
        comm = make_device(
            idle_ns=10 * MS,
            comm_ns=2 * MS,
            exposed_comm_ns=MS,
            bubbles={"host_busy": 9 * MS, "edge": MS},
            idle_by_calls_ns=2 * MS,
        )
        windows = (make_window(), make_window(step=1), make_window(comm, step=2))
        report = make_report(*windows)
        # WHEN / THEN
        section = section_of(report, "Steps")
        titles = ["step", "length", "busy", "idle", "exposed\ncomm", "idle by\nblocking"]
        assert [column.title for column in section.columns[:-1]] == titles
        assert section.rows == (
            ("1", "10.00 ms", "100 %", "0", "0", "0", ""),
            ("2", "20.00 ms", "50.0 %", "10.00 ms", "1.00 ms", "2.00 ms", "CPU-bound · 90.0 %"),
        )
        assert section.notes == ("The shortest takes 10.00 ms, the longest 20.00 ms.",)

    def test_a_row_per_device_with_its_own_idle_by_blocking(self):
        devices = [make_device(i, idle_ns=2 * MS, idle_by_calls_ns=i * MS) for i in (0, 1)]
        report = make_report(make_window(), make_window(*devices, step=1))
        section = section_of(report, "Steps")
        assert [row[1] for row in section.rows] == ["0", "1"]
        assert [row[5] for row in section.rows] == ["0", "1.00 ms"]
        assert section.notes == ()

    def test_steps_that_are_not_steady_are_named(self):
        row = make_steady(steps=(1, 2), left_out=(LeftOut(0, "holds a backlog"),))
        section = section_of(make_report(*make_steps([9, 5, 5]), steady=(row,)), "Steps")
        assert section.notes[-1] == "Not steady: step 0 (holds a backlog)."

    def test_copies_have_their_column(self):
        device = make_device(copy_ns=5, exposed_copy_ns=4)
        report = make_report(make_window(), make_window(device, step=1))
        assert section_of(report, "Steps").rows[0][4] == "4 ns"

    def test_twenty_steps_are_all_shown(self):
        assert len(section_of(make_report(*make_steps([1] * 20)), "Steps").rows) == 20

    def test_of_many_the_slowest(self, snapshot):
        # GIVEN 30 steps with slow ones in the middle, at the beginning and at the end
        lengths = [1] * 30
        for slow in (2, 13, 14, 15, 29):
            lengths[slow] = 5
        # WHEN / THEN
        section = section_of(make_report(*make_steps(lengths)), "Steps")
        assert [int(row[0]) for row in section.rows] == [*range(19), 29]
        assert figures(section.notes) == ["20", "30", "1.00 ms", "5.00 ms"]
        assert section.notes == snapshot

    def test_no_steps_are_said_in_words(self, snapshot):
        lines = section_of(make_report(), "Steps").lines
        assert lines == snapshot
