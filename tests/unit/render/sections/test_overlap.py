"""Overlap of kinds and of streams."""

import pytest

from tests.build.report_rows import MS, make_device, make_report, make_window, section_of
from tests.figures import figures
from tracelab.render.sections.times import selection_name
from tracelab.report.schema import (
    OverlapMetrics,
)


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

    def test_only_tiny_pairs_are_said_in_words(self, snapshot):
        overlaps = (OverlapMetrics(0, None, "kind:0/compute", "kind:0/copy", MS, 1, 0),)
        section = section_of(make_report(overlaps=overlaps), "Overlap")
        assert section.rows == ()
        assert {"1"} <= {*figures(section.lines[0])}
        assert section.lines[0] == snapshot

    def test_nothing_that_could_overlap_is_said_in_words(self, snapshot):
        section = section_of(make_report(), "Overlap")
        assert section.lines == snapshot

    def test_no_work_is_said_in_words(self):
        device = make_device(busy_ns=0, idle_ns=MS, bubbles={"edge": MS})
        section = section_of(make_report(make_window(device)), "Overlap")
        assert section.lines == ("There was no GPU work.",)

    def test_of_several_devices_each_side_has_its_device(self):
        overlaps = (OverlapMetrics(0, None, "device:0", "device:1", MS, MS, MS),)
        report = make_report(make_window(make_device(0), make_device(1)), overlaps=overlaps)
        row = section_of(report, "Overlap").rows[0]
        assert row == ("GPU 0", "1.00 ms", "GPU 1", "1.00 ms", "1.00 ms", "100 %", "100 %")


class TestSelectionName:
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
