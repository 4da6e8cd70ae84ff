"""What activities waited for, how sure that is, and typical latencies, as text."""

from dataclasses import replace

from tests.build.report_rows import MS, make_report, section_of, titles_of
from tests.figures import figures
from tracelab.measures.starts import LatencyMetrics, StartMetrics

SURE = StartMetrics(0, None, 0, 40, {"stream": 30, "launch": 10, "event": 0}, 4, 0, 0, 0.0)


class TestStarts:
    def test_constraints_by_how_many_waited_for_them(self, snapshot):
        section = section_of(make_report(starts=(SURE,)), "What activities waited for")
        assert figures(section.rows) == ["30", "75.0 %", "10", "25.0 %"]
        assert section.rows == snapshot
        assert figures(section.notes) == ["4", "40", "20 µs"]
        assert section.notes == snapshot

    def test_delays_that_nothing_explains(self, snapshot):
        unsure = replace(SURE, unexplained=2, unexplained_ns=3 * MS, unexplained_share=0.3)
        [note] = section_of(make_report(starts=(unsure,)), "What activities waited for").notes
        assert {"2", "20 µs"} <= {*figures(note)}
        assert note == snapshot
        assert note.endswith(": too much to predict what a fix saves.")

    def test_few_delays_do_not_matter(self, snapshot):
        unsure = replace(SURE, unexplained=1, unexplained_ns=MS // 10, unexplained_share=0.02)
        [note] = section_of(make_report(starts=(unsure,)), "What activities waited for").notes
        assert {"1", "20 µs"} <= {*figures(note)}
        assert note == snapshot


class TestLatencies:
    def test_most_frequent_first(self):
        rows = (
            LatencyMetrics(0, None, "launch", None, "copy", 1_080, 3, False),
            LatencyMetrics(0, None, "previous", "compute", "comm", 1_600, 20, True),
        )
        section = section_of(make_report(latencies=rows), "Typical latencies")
        assert section.rows == (
            ("compute → comm", "1.60 µs", "20", "this trace"),
            ("launch call → copy", "1.08 µs", "3", "captures of H200s"),
        )

    def test_are_left_out_where_there_are_none(self):
        assert "Typical latencies" not in titles_of(make_report())
