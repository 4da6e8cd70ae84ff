"""How busy a window was, by kind and by stream."""

from tests.build import files
from tests.build.report_rows import (
    MS,
    make_device,
    make_report,
    make_window,
    section_of,
    titles_of,
)
from tests.figures import figures
from tracelab import analyze
from tracelab.measures.overlap import GraphStreamsTime, StreamTime


class TestTimes:
    def test_exposed_time_stands_below_its_kind(self, snapshot):
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
        assert figures(section.rows) == [
            "20.00 ms",
            "100 %",
            "10.00 ms",
            "50.0 %",
            "10.00 ms",
            "50.0 %",
            "7.00 ms",
            "35.0 %",
            "4.00 ms",
            "20.0 %",
            "1.00 ms",
            "5.0 %",
            "25.0 %",
            "2.00 ms",
            "10.0 %",
            "2.00 ms",
            "10.0 %",
            "100 %",
            "1.00 µs",
            "<0.1 %",
        ]
        assert section.rows == snapshot
        assert section.notes == snapshot

    def test_absent_kinds_are_said_in_words(self, snapshot):
        section = section_of(make_report(), "Whole trace")
        assert [row[0] for row in section.rows] == ["window", "busy", "idle", "compute"]
        assert section.notes == snapshot

    def test_every_device_has_its_table(self):
        report = make_report(make_window(make_device(0), make_device(1)))
        assert "Whole trace · GPU 0" in titles_of(report)
        assert "Whole trace · GPU 1" in titles_of(report)


class TestStreams:
    def test_one_stream_cannot_overlap(self, snapshot):
        section = section_of(make_report(), "Streams")
        assert section.rows == (("7", "10.00 ms", "100 %", "3"),)
        assert section.notes == snapshot

    def test_of_many_the_busiest_are_shown_in_order(self, snapshot):
        # GIVEN 12 streams that worked and one that did not, the first two of them the least busy
        streams = tuple(StreamTime(i, (i + 1) * 1000, 1234) for i in range(12))
        device = make_device(streams=(*streams, StreamTime(99, 0, 0)))
        # WHEN / THEN
        section = section_of(make_report(make_window(device)), "Streams")
        assert [row[0] for row in section.rows] == [str(i) for i in range(2, 12)]
        assert section.rows[0][3] == "1,234"
        assert figures(section.notes) == ["2", "2.00 µs"]
        assert section.notes == snapshot

    def test_streams_of_graphs_are_one_row_with_the_time_of_their_union(self, snapshot):
        # GIVEN a stream of the program and 300 of graphs, which are busy for 900 us together
        numbers = tuple(range(100, 400))
        streams = (StreamTime(7, 1000, 5), *(StreamTime(x, 4000, 2) for x in numbers))
        together = GraphStreamsTime(numbers, 900_000, 600)
        device = make_device(streams=streams, graph_streams=together)
        # WHEN / THEN
        section = section_of(make_report(make_window(device)), "Streams")
        assert section.rows == (
            ("7", "1.00 µs", "<0.1 %", "5"),
            ("300 streams of CUDA graphs", "900.0 µs", "9.0 %", "600"),
        )
        assert section.notes == snapshot

    def test_of_several_devices_each_stream_has_its_device(self):
        report = make_report(make_window(make_device(0), make_device(1)))
        section = section_of(report, "Streams")
        assert [row[:2] for row in section.rows] == [("0", "7"), ("1", "7")]

    def test_a_window_without_work_has_no_streams(self):
        device = make_device(streams=(StreamTime(7, 0, 0),))
        assert "Streams" not in titles_of(make_report(make_window(device)))


def test_memory_of_the_trace_and_of_its_steps(tmp_path):
    """GIVEN readings in step 2 alone
    THEN the rows say the most, and step 1 is not there."""
    events = [
        files.step(1, 0, 100_000),
        files.kernel(10_000, 90_000),
        files.step(2, 100_000, 200_000),
        files.kernel(110_000, 190_000),
        files.memory(120_000, 3 * 2**30, 4 * 2**30),
        files.memory(150_000, 2**30, 4 * 2**30),
    ]
    report = analyze(files.write(tmp_path / "a.json", events))
    section = section_of(report, "Memory")
    assert [list(row)[:5] for row in section.rows] == [
        ["all", "3 GiB", "4 GiB", "-2 GiB", "0"],
        ["2", "3 GiB", "4 GiB", "-2 GiB", "0"],
    ]
