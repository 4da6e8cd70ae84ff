"""Blocking calls with their places."""

from tests.build.report_rows import (
    MS,
    make_device,
    make_report,
    make_sync,
    make_window,
    section_of,
)
from tests.figures import figures


class TestBlocking:
    def test_none_is_said_in_words(self):
        assert section_of(make_report(), "Blocking calls").lines == ("No blocking calls.",)

    def test_a_call_with_its_place_and_price(self, snapshot):
        device = make_device(idle_ns=2 * MS, bubbles={"host_blocked": 2 * MS})
        report = make_report(
            make_window(device), syncs=(make_sync(line=12, idle_after_ns=MS // 4),)
        )
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
        assert figures(section.lines[0]) == ["1.00 ms", "2.00 ms", "750.0 µs", "250.0 µs"]
        assert section.lines[0] == snapshot
        assert section.notes == ()

    def test_without_a_place_it_says_so_and_how_to_get_one(self):
        sync = make_sync(operator=None, function=None, file=None, caused_idle_ns=0)
        section = section_of(make_report(syncs=(sync,)), "Blocking calls")
        assert section.rows[0][4] == "the file does not say"
        assert section.lines[0] == "Blocking calls cause no idle time."
        assert "with_stack=True" in section.notes[0]

    def test_idle_beyond_the_window_is_not_said_to_be_of_it(self):
        # GIVEN a report of an older version, in which a call may cost idle time of the next step
        section = section_of(make_report(syncs=(make_sync(),)), "Blocking calls")
        assert section.lines[0].startswith("Blocking calls cause 1.00 ms idle: 1.00 ms while")

    def test_of_several_gpus_idle_time_is_added(self):
        window = make_window(make_device(0, idle_ns=MS), make_device(1, idle_ns=2 * MS))
        section = section_of(make_report(window, syncs=(make_sync(),)), "Blocking calls")
        assert "cause 1.00 ms of the 3.00 ms idle on all GPUs:" in section.lines[0]

    def test_the_ten_most_expensive_are_enough(self):
        syncs = tuple(make_sync(function=str(i), caused_idle_ns=1000) for i in range(12))
        section = section_of(make_report(syncs=syncs), "Blocking calls")
        assert len(section.rows) == 10
        assert section.notes == ("… and 2 places more (all of them in --json).",)
