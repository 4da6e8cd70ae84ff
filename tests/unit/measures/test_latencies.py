"""The typical latencies of a trace as rows."""

from tests.build.rows import US, call, graph, kernel, launch, memset
from tracelab.measures.latencies import LatencyMetrics, latency_rows


def test_rows_of_what_the_trace_shows():
    # GIVEN 21 kernels of 10 us that were launched long before, 3 us after the one before each; a
    # memset 1 us after the last, and a call that returned 4 us after all that
    rows = []
    for i in range(21):
        begin = 100 * US + i * 13 * US
        rows += [kernel(begin, begin + 10 * US, correlation=i), launch(i, i + 1, i)]
    end = 100 * US + 20 * 13 * US + 10 * US
    rows += [memset(end + US, end + 2 * US, correlation=50), launch(30, 31, 50)]
    rows += [call("cudaStreamSynchronize", 40, end + 6 * US)]
    made_graph = graph(*rows)

    # WHEN
    found = list(latency_rows(made_graph, made_graph.host.timeline.windows))

    # THEN the first kernel waited for its launch, for 100 us: late, but it is the only one
    assert found == [
        LatencyMetrics(0, None, "previous", "compute", "compute", 3 * US, 20, True),
        LatencyMetrics(0, None, "previous", "compute", "memset", 1_536, 1, False),
        LatencyMetrics(0, None, "launch", None, "compute", 2_112, 1, False),
        LatencyMetrics(0, None, "awaited", None, None, 4_923, 1, False),
    ]
