"""The verdict and the findings."""

from tests.build.report_rows import (
    make_finding,
    make_job_report,
    make_report,
    section_of,
    titles_of,
)
from tests.figures import figures


class TestFindings:
    def test_alarms_stand_in_full_with_their_fix(self, snapshot):
        report = make_report(findings=(make_finding(),))
        section = section_of(report, "1. critical · takes 40 % · TL101")
        assert figures(section.lines) == ["3", "5.00 ms", "4.00 ms"]
        assert section.lines == snapshot

    def test_what_is_small_or_too_much_stands_in_a_table(self):
        alarms = [make_finding(title=f"number {i}") for i in range(7)]
        infos = [make_finding(severity="info", title=f"small {i}") for i in range(9)]
        section = section_of(make_report(findings=(*alarms, *infos)), "Minor or not actionable")
        assert [row[-1] for row in section.rows] == [
            "number 5",
            "number 6",
            *(f"small {i}" for i in range(4)),
        ]
        assert section.notes[0] == "… and 5 findings more (all of them in --json)."

    def test_what_the_trace_lacks_is_told_apart(self, snapshot):
        lack = make_finding("TL903", severity="info", bound_ns=0, cost_ns=0, title="No stacks")
        report = make_report(findings=(lack,))
        section = section_of(report, "About the trace")
        assert section.lines == ("TL903  No stacks.",)
        assert section.notes == snapshot
        assert "Minor or not actionable" not in titles_of(report)

    def test_many_ranks_list_each_place_once(self):
        findings = [make_finding(rank=rank, bound_ns=(1 + rank) * 10**6) for rank in range(5)]
        minor = make_finding(severity="info", title="small")
        section = section_of(make_job_report(5, (*findings, minor)), "Findings of all ranks")
        assert [row[:2] + row[3:4] for row in section.rows] == [("TL101", "5", "4")]
