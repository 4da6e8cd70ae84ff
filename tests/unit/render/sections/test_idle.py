"""Idle time by cause, and its culprits."""

from dataclasses import replace

from tests.build.report_rows import MS, make_device, make_report, make_window, section_of
from tracelab.report.schema import (
    CulpritMetrics,
)


class TestIdle:
    def test_causes_by_size_with_shares_and_meaning(self):
        device = make_device(
            idle_ns=10 * MS,
            bubbles={"launch": 2 * MS, "host_busy": 0, "input": 8 * MS, "of_tomorrow": 1},
        )
        section = section_of(make_report(make_window(device)), "Idle by cause")
        assert section.rows[0] == (
            "data loading",
            "8.00 ms",
            "80.0 %",
            "40.0 %",
            "the CPU waited for the data loader",
        )
        assert [row[0] for row in section.rows] == ["data loading", "launch latency", "of_tomorrow"]
        assert section.rows[2][4] == "of_tomorrow"

    def test_one_reason_of_the_unknown_stands_beside_it(self, snapshot):
        device = make_device(
            idle_ns=5, bubbles={"unknown": 5}, unknown_reasons={"launch_not_in_file": 5}
        )
        section = section_of(make_report(make_window(device)), "Idle by cause")
        assert [(row[0], row[4]) for row in section.rows] == snapshot

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

    def test_culprits_by_size(self):
        culprit = CulpritMetrics(
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
        tiny = replace(culprit, idle_ns=5, longest_ns=5)
        section = section_of(make_report(holders=(tiny, culprit)), "Idle by culprit")
        assert section.rows == (
            ("blocking call", "3.00 ms", "12", "1.00 ms", "cudaFree · train train.py:7"),
        )
        assert section.notes == ("… and 1 row more (all of them in --json).",)
