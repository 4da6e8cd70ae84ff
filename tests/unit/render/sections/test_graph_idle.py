"""What the text report says of idle time inside replays of CUDA graphs."""

from dataclasses import replace

from tests.build.report_rows import MS, make_report, section_of
from tests.figures import figures
from tracelab.measures.graph_idle import GraphIdleMetrics
from tracelab.render.document import text_sections
from tracelab.report.views import ranks_of

NODE = GraphIdleMetrics(
    rank=0,
    step=None,
    device=0,
    wait="queue",
    name="gemm",
    stream=7,
    awaited="add",
    awaited_stream=15,
    count=40,
    replays=20,
    idle_ns=4 * MS,
    waiting_ns=0,
    latency_ns=2_100,
    longest_start_ns=0,
    longest_ns=MS,
    event=4,
    awaited_event=3,
)
TITLE = "Idle inside CUDA graphs"


def test_each_node_stands_with_what_it_waits_for(snapshot):
    unknown = replace(NODE, wait="not_in_file", awaited_stream=7, idle_ns=MS)
    report = make_report(graph_idle=(unknown, NODE))

    section = section_of(report, TITLE)

    assert figures([row[-1] for row in section.rows]) == ["7", "15", "7", "7"]
    assert [row[-1] for row in section.rows] == snapshot
    assert section.rows[0][:-1] == ("4.00 ms", "200.0 µs", "40", "2.10 µs")
    [note] = section.notes
    assert "1.00 ms" in note


def test_what_is_small_or_has_no_row_of_its_own_is_counted():
    rest = replace(NODE, name=None, stream=None, awaited=None, awaited_stream=None)
    tiny = replace(NODE, idle_ns=5)

    section = section_of(make_report(graph_idle=(rest, NODE, tiny)), TITLE)

    assert len(section.rows) == 1
    assert section.notes == ("… and 2 rows more (all of them in --json).",)


def test_without_replays_there_is_no_section():
    [rank] = ranks_of(make_report())
    sections = text_sections(rank, rank.main, 5)
    assert TITLE not in {section.title for section in sections}
