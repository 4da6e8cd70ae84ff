"""The verdict and the findings."""

from dataclasses import replace

from tests.unit.render.text.hand_made import (
    MS,
    headlines_of,
    make_device,
    make_finding,
    make_report,
    make_window,
    section_of,
    sections_of,
    titles_of,
)


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
