"""Origins of the nodes of a graph's replay: annotations and captures.

The makers of rows are those of `tests.build.graphs`.
"""

import tracemalloc

import pytest
from hypothesis import given

from tests.build.graphs import (
    CALLS,
    COPY,
    FILL,
    activity,
    asked_for,
    capture,
    eager,
    graph_programs,
    replay,
)
from tests.build.rows import AUTOGRAD, Node, call, kernel, timeline
from tests.examples import examples
from tests.reference.origins import BEGIN, END, REPLAY, origins_of
from tracelab.model.cuda_graphs import Basis, origins
from tracelab.model.kernel_kinds import is_graph_launch
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.trace import ABSENT, Category


def found(*rows):
    """Map the event id of each activity of a replay to that of the call that it comes from."""
    made = timeline(*rows)
    of = origins(made, SourceLines(()))
    in_replay = [
        i
        for i, launched in enumerate(made.launch_id)
        if launched >= 0 and is_replay(made, launched)
    ]
    return {
        int(made.event_id[i]): int(of.event_id[i]) for i in in_replay if of.event_id[i] != ABSENT
    }


def is_replay(made, event_id):
    return is_graph_launch(made.trace.name_of(int(event_id)))


def ids(rows, test):
    return [i for i, row in enumerate(rows) if test(row)]


def nodes_of(rows, number=0):
    """Event ids of the activities of a replay, of several replays that with this number."""
    [*calls] = [row.correlation for row in rows if row.name == REPLAY]
    return ids(rows, lambda x: x.correlation == calls[number] and x.name != REPLAY)


def launches_of(rows, first=0, end=1_000_000):
    """Event ids of the calls that ask for an activity and begin in some time."""
    names = ("cudaLaunchKernel", *CALLS.values())
    return ids(rows, lambda x: x.name in names and first <= x.start < end)


def expected(rows, launches, number=0):
    return dict(zip(nodes_of(rows, number), launches, strict=True))


WORK = ["norm", COPY, "gemm", FILL, "gelu"]


# --- the capture ---


def test_a_captured_call_is_the_node_at_its_place():
    rows = [*capture(100, WORK), *replay(300, WORK), *replay(400, WORK)]

    launches = launches_of(rows)
    assert len(launches) == 5
    assert found(*rows) == {
        **expected(rows, launches, 0),
        **expected(rows, launches, 1),
    }


def test_what_autograds_thread_launches_is_captured_too():
    rows = [*capture(100, WORK, launching=AUTOGRAD), *replay(300, WORK)]
    assert found(*rows) == expected(rows, launches_of(rows))


def test_calls_that_ran_something_were_not_captured():
    # Another thread copies while the capture goes on.
    other = [asked_for(COPY, 125, 77, AUTOGRAD), activity(COPY, 130, 77)]
    rows = [*other, *capture(100, WORK), *replay(300, WORK)]
    assert found(*rows) == expected(rows, launches_of(rows)[1:])


def test_a_call_of_the_driver_inside_the_runtimes_is_captured_once():
    rows = [*capture(100, WORK), *replay(300, WORK)]
    inner = call("cuLaunchKernel", 110, 111, correlation=2_000_110, category=Category.DRIVER)
    assert found(*rows, inner) == expected(rows, launches_of(rows))


@pytest.mark.parametrize(
    "names",
    [WORK[:-1], [*WORK, "gelu"], [COPY, *WORK[1:]], [WORK[1], WORK[0], *WORK[2:]]],
    ids=["one less", "one more", "another kind", "another order"],
)
def test_a_capture_that_does_not_fit_exactly_is_none(names):
    assert found(*capture(100, WORK), *replay(300, names)) == {}


def test_a_capture_after_the_replay_is_none():
    assert found(*capture(300, WORK), *replay(100, WORK)) == {}


def test_a_capture_that_began_before_the_recording_is_none():
    rows = [row for row in capture(100, WORK) if row.name != BEGIN]
    assert found(*rows, *replay(300, WORK)) == {}


def test_captures_that_overlap_are_none():
    # What a third thread launches could belong to either.
    other = [call(BEGIN, 120, 121, thread=AUTOGRAD), call(END, 180, 181, thread=AUTOGRAD)]
    assert found(*other, *capture(100, WORK), *replay(300, WORK)) == {}


def test_a_graph_more_than_captures_is_ambiguous():
    # The kernels have other names, so these are two graphs: one was captured before the recording.
    names = [name if name in CALLS else f"{name}_2" for name in WORK]
    assert found(*capture(100, WORK), *replay(300, WORK), *replay(400, names)) == {}


def test_captures_that_look_alike_at_one_place_are_one():
    rows = [*capture(100, WORK), *capture(200, WORK), *replay(300, WORK)]
    assert found(*rows) == expected(rows, launches_of(rows, 200))


def test_captures_that_look_alike_at_two_places_are_ambiguous():
    rows = [*capture(100, WORK), *capture(200, WORK, within="aten::bmm"), *replay(300, WORK)]
    assert found(*rows) == {}


def test_graphs_may_be_from_any_capture_before_each_replay():
    # GIVEN captures at one place, at the same place, and at another, and a replay behind each
    names = ["gemm", "gelu"]
    rows = [
        *capture(100, names),
        *replay(150, names),
        *capture(200, names),
        *replay(250, names),
        *capture(300, names, within="aten::bmm"),
        *replay(350, names),
    ]

    # THEN the last replay may be of any graph
    assert found(*rows) == {
        **expected(rows, launches_of(rows, 100, 200), 0),
        **expected(rows, launches_of(rows, 200, 300), 1),
    }


def test_a_graph_that_ran_before_all_captures_is_of_before_the_recording():
    # The second replay may be of that graph as well as of the captured one.
    assert found(*replay(50, WORK), *capture(100, WORK), *replay(300, WORK)) == {}


def test_each_captured_call_is_looked_at_once():
    # GIVEN 160 graphs, each of which may be from any of the captures before it
    names = ["gemm", "gelu"] * 4
    rows = capture(100, names)
    for number in range(160):
        at = 300 + 200 * number
        rows += capture(at, names)
        rows += replay(at + 100, names)
    made = timeline(*rows)

    # THEN memory grows with the file, not with the pairs of graphs and captures
    tracemalloc.start()
    origins(made, SourceLines(()))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 400 * len(rows)


def test_captures_of_as_many_kernels_at_two_places_are_not_told_apart():
    rows = [
        *capture(100, ["p", "q"]),
        *capture(200, ["r", "s"], within="aten::bmm"),
        *replay(300, ["p", "q"]),
    ]
    assert found(*rows) == {}


# --- several streams ---


def test_in_several_streams_the_order_of_the_capture_is_not_known():
    assert (
        found(*capture(100, ["a", "b", "a"]), *replay(300, ["a", "b", "a"], streams=(7, 9))) == {}
    )


# --- what the driver runs as kernels ---

WORK_OF_GRAPH = ["norm", "memcpy32_post", "gemm", "memset32", "gelu"]


def test_a_captured_copy_and_memset_run_as_kernels_of_the_driver():
    rows = [*capture(100, WORK), *replay(300, WORK_OF_GRAPH)]
    assert found(*rows) == expected(rows, launches_of(rows))


def test_a_kernel_that_copies_is_no_captured_kernel():
    names = ["norm", "attention", "gemm", FILL, "gelu"]
    assert found(*capture(100, names), *replay(300, WORK_OF_GRAPH)) == {}


# --- annotations, and nothing ---


def test_an_annotation_is_the_surest():
    names = ["a", "b"]
    rows = [*capture(100, names), *replay(300, names)]
    node = nodes_of(rows)[1]
    start = rows[node].start
    rows[node] = kernel(
        start, start + 2, "b", correlation=rows[node].correlation, node=Node("layers.0")
    )
    made = timeline(*rows)
    of = origins(made, SourceLines(()))
    assert of.annotations == ("layers.0",)
    assert of.annotation_index.tolist() == [ABSENT, 0]
    assert of.basis.tolist() == [Basis.CAPTURE] * 2
    assert of.surest_basis.tolist() == [Basis.CAPTURE, Basis.ANNOTATION]
    assert of.call_id(made.launch_id).tolist() == launches_of(rows)


def test_activities_that_ran_eagerly_have_no_origin():
    made = timeline(*eager(100, WORK), *replay(300, WORK))
    of = origins(made, SourceLines(()))
    assert of.event_id.tolist() == [ABSENT] * 10


def test_without_replays_there_is_nothing_to_say():
    made = timeline(*eager(100, WORK))
    of = origins(made, SourceLines(()))
    assert of.event_id.tolist() == of.basis.tolist() == [ABSENT] * 5
    assert of.surest_basis.tolist() == [ABSENT] * 5


# --- the slow model ---


@examples(200)
@given(graph_programs())
def test_the_slow_model_says_the_same(rows):
    def place_of(event):
        row = rows[event]
        around = [
            (one.start, -one.end, one.name)
            for one in rows
            if one.category == Category.OPERATOR
            and one.thread == row.thread
            and one.start <= row.start
            and one.end >= row.end
        ]
        return max(around)[-1] if around else None

    assert found(*rows) == origins_of(rows, place_of)
