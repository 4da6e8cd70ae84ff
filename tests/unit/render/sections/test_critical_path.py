"""What the critical path consists of."""

from tests.build.report_rows import MS, make_report, section_of, titles_of
from tracelab.report.schema import (
    CriticalPathMetrics,
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
