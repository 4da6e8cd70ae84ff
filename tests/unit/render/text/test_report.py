"""A whole report: its chapters, and as text that fits."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from tests.build.report_rows import (
    MS,
    NASTY,
    headlines_of,
    make_device,
    make_report,
    make_steps,
    make_sync,
    make_trace,
    make_window,
    section_of,
    sections_of,
    titles_of,
)
from tests.examples import examples
from tests.figures import figures
from tests.shared_traces import path_of
from tracelab import analyze
from tracelab.measures.overlap import StreamTime
from tracelab.render.document import detailed
from tracelab.render.section import Tone
from tracelab.render.text.report import render_text
from tracelab.report.glossary import CAUSES, PATH_KINDS
from tracelab.report.schema import (
    CriticalPathMetrics,
    Job,
    JobDecision,
    KernelTotal,
    OverlapMetrics,
    Provenance,
    UnreadFile,
    WindowMetrics,
)

WIDTHS = (80, 100, 160)


def assert_fits(text, width):
    too_long = [line for line in text.split("\n") if cell_len(line) > width]
    assert not too_long
    harmful = {c for c in text if not c.isprintable() and c != "\n"}
    assert not harmful


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
            job=Job(tuple(ranks)),
        )

    def test_the_summary_comes_first_then_every_rank(self):
        report = self.make_job([0, 1])
        assert titles_of(report)[0] == "Ranks"
        assert section_of(report, "Ranks").rows == (
            ("0", "rank0", "30.00 ms", "100 %", "0", ""),
            ("1", "rank1", "30.00 ms", "100 %", "0", ""),
        )
        assert [x.title for x in detailed(report).chapters] == [
            "",
            "Rank 0 · rank0.json",
            "Rank 1 · rank1.json",
        ]

    def test_a_rank_shows_only_its_own(self):
        of_rank = detailed(self.make_job([0, 1])).chapters[1:]
        blocking = [[x for x in one.sections if x.title == "Blocking calls"] for one in of_rank]
        assert [found[0].lines[0] for found in blocking][:1] == ["No blocking calls."]
        assert blocking[1][0].rows

    def test_columns_of_what_occurs(self):
        device = make_device(comm_ns=4, exposed_comm_ns=3, copy_ns=2, bubbles={"edge": 1})
        windows = (make_window(device, rank=0), make_window(rank=1))
        traces = (make_trace(), make_trace(rank=1))
        report = make_report(*windows, traces=traces, job=Job((0, 1)))
        section = section_of(report, "Ranks")
        assert [x.title for x in section.columns][5:] == [
            "comm",
            "exposed\ncomm",
            "copy",
            "biggest\nidle cause",
        ]
        assert section.rows[0][5:8] == ("4 ns", "3 ns", "2 ns")

    def test_of_files_that_are_no_job_only_what_room_is_for(self, snapshot):
        device = make_device(comm_ns=4, exposed_comm_ns=3, copy_ns=2)
        windows = (make_window(device, rank=0), make_window(rank=1))
        traces = (make_trace(path="a.json"), make_trace(rank=1, path="b.json"))
        decision = JobDecision(False, "they are not", ((0,), (1,)))
        provenance = Provenance(("run",), (), "", (), decision)
        report = make_report(*windows, traces=traces, provenance=provenance)
        section = section_of(report, "Files")
        titles = ["file", "window", "busy", "idle", "biggest\nidle cause"]
        assert [x.title for x in section.columns] == titles
        assert [row[0] for row in section.rows] == ["a", "b"]
        assert section.notes == snapshot
        assert [x.title for x in detailed(report).chapters] == ["", "a.json", "b.json"]

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
        traces = tuple(make_trace(rank=rank) for rank in range(5))
        report = make_report(*windows, traces=traces, job=Job((0, 1, 2, 3, 4)))
        assert titles_of(report) == ["Ranks"]

    def test_files_of_the_same_rank_are_not_mixed(self):
        report = make_report(make_window(), make_window(), traces=(make_trace(), make_trace()))
        assert titles_of(report) == ["Files"]
        assert sections_of(report)[-1].tone is Tone.WARNING

    def test_one_step_of_several_ranks(self):
        windows = (make_window(step=3), make_window(rank=1, step=3))
        report = make_report(*windows, traces=(make_trace(), make_trace(rank=1)))
        assert len(section_of(report, "Files").rows) == 2


def make_full_report(name="a_name", *, several=True):
    """A report in which everything occurs, with names as long as one likes."""
    bubbles = dict.fromkeys(CAUSES.meanings, 99 * MS // 8)
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
    )
    by_kind = dict.fromkeys(PATH_KINDS.meanings, 111_000_000)
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
        critical_path=tuple(CriticalPathMetrics(0, step, 999_900_000, by_kind) for step in keys),
    )


class TestRenderText:
    @pytest.mark.parametrize(
        "width", [80, *(pytest.param(x, marks=pytest.mark.slow) for x in WIDTHS[1:])]
    )
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
        text = render_text(make_full_report(), width=80, color=False, full=True)
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

    @examples(25)
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
        lines = render_text(make_full_report(), width=160, color=True, full=True).splitlines()
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
                ),
                id="all zero",
            ),
        ],
    )
    def test_nothing_is_divided_by_zero(self, report):
        text = render_text(report, width=80, color=False, every_step=True)
        assert_fits(text, 80)
        assert "run/trace.json.gz" in text

    @pytest.mark.parametrize("width", [80, 160])
    @pytest.mark.parametrize("every_step", [False, True])
    def test_a_real_trace(self, width, every_step):
        # GIVEN a real trace of an MI300
        report = analyze(path_of("tracelens_mi300_resnet_ddp8"))
        # WHEN it is rendered
        text = render_text(report, width=width, color=False, full=True, every_step=every_step)
        # THEN it fits and says what is known of it
        assert_fits(text, width)
        assert "GPU 2 AMD Instinct MI300X" in text
        assert "3,653 GPU activities · 3 steps (15 to 17)" in text
        assert "comm        71.52 ms     82.6 %" in text


class TestChapters:
    def test_every_step_has_the_details_on_request(self):
        # GIVEN two steps
        report = make_report(*make_steps([1, 2]))
        # WHEN asked for, THEN each has a chapter with the sections of the whole trace
        more = detailed(report, every_step=True).chapters
        assert [x.title for x in more] == ["", "run/trace.json.gz", "Step 0", "Step 1"]
        titles = [x.title for x in more[2].sections]
        expected = ["", "Step 0", "Idle by cause", "Streams", "Overlap", "Blocking calls"]
        assert titles == expected
        assert more[2].sections[0].lines == (
            "Step 0: 1.00 ms while profiled",
            "GPU 0: busy 100 %, idle 0 %",
        )
        # AND not otherwise
        assert len(detailed(report).chapters) == 2

    def test_a_report_of_one_step(self):
        # GIVEN a report that was made for step 7 alone
        report = make_report(make_window(step=7))
        # WHEN / THEN the step takes the place of the whole trace
        assert titles_of(report, every_step=True)[0] == "Step 7"
        assert "Steps" not in titles_of(report)
        assert sections_of(report)[1].lines[2].endswith("step 7 only")
        [(verdict, *lines)] = headlines_of(report)
        assert verdict.startswith("Step 7: 10.0 ms")
        assert figures(lines[0]) == ["0", "100 %", "0 %"]
