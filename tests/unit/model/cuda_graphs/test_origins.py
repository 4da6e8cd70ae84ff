"""Where the nodes of a graph's replay come from: annotations, captures, the same work run eagerly.

The makers of rows are those of `tests.build.graphs`.
"""

import tracemalloc
from dataclasses import replace

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
from tests.build.rows import AUTOGRAD, H2D, MAIN, Node, call, copy, kernel, python, timeline
from tests.examples import examples
from tests.reference.origins import BEGIN, END, REPLAY, origins_of
from tracelab.model.cuda_graphs.origins import Basis, origins
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.trace import ABSENT, Category


def found(*rows, arguments=None):
    """Event id of each activity of a replay: that of the call that it comes from, and the basis."""
    made = timeline(*rows)
    of = origins(made, SourceLines(()), arguments)
    in_replay = [
        i
        for i, launched in enumerate(made.launch_id)
        if launched >= 0 and is_replay(made, launched)
    ]
    return {
        int(made.event_id[i]): (int(of.event_id[i]), Basis(int(of.basis[i])))
        for i in in_replay
        if of.event_id[i] != ABSENT
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


def expected(rows, launches, basis, number=0):
    return {
        node: (event, basis) for node, event in zip(nodes_of(rows, number), launches, strict=True)
    }


WORK = ["norm", COPY, "gemm", FILL, "gelu"]


# --- the capture ---


def test_a_captured_call_is_the_node_at_its_place():
    rows = [*capture(100, WORK), *replay(300, WORK), *replay(400, WORK)]

    launches = launches_of(rows)
    assert len(launches) == 5
    assert found(*rows) == {
        **expected(rows, launches, Basis.CAPTURE, 0),
        **expected(rows, launches, Basis.CAPTURE, 1),
    }


def test_what_autograds_thread_launches_is_captured_too():
    rows = [*capture(100, WORK, launching=AUTOGRAD), *replay(300, WORK)]
    assert found(*rows) == expected(rows, launches_of(rows), Basis.CAPTURE)


def test_calls_that_ran_something_were_not_captured():
    # Another thread copies while the capture goes on.
    other = [asked_for(COPY, 125, 77, AUTOGRAD), activity(COPY, 130, 77)]
    rows = [*other, *capture(100, WORK), *replay(300, WORK)]
    assert found(*rows) == expected(rows, launches_of(rows)[1:], Basis.CAPTURE)


def test_a_call_of_the_driver_inside_the_runtimes_is_captured_once():
    rows = [*capture(100, WORK), *replay(300, WORK)]
    inner = call("cuLaunchKernel", 110, 111, correlation=2_000_110, category=Category.DRIVER)
    assert found(*rows, inner) == expected(rows, launches_of(rows), Basis.CAPTURE)


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
    assert found(*rows) == expected(rows, launches_of(rows, 200), Basis.CAPTURE)


def test_captures_that_look_alike_at_two_places_are_ambiguous():
    rows = [*capture(100, WORK), *capture(200, WORK, within="aten::bmm"), *replay(300, WORK)]
    assert found(*rows) == {}


def test_of_graphs_that_look_alike_the_first_number_was_captured_first():
    names, numbers = ["gemm", "gelu"], (0, 1)
    rows = [
        *capture(100, names),
        *capture(200, names, within="aten::bmm"),
        *replay(300, names, numbers=numbers, graph=9),
        *replay(400, names, numbers=numbers, graph=4),
    ]
    assert found(*rows) == {
        **expected(rows, launches_of(rows, 200), Basis.CAPTURE, 0),
        **expected(rows, launches_of(rows, 100, 200), Basis.CAPTURE, 1),
    }


def test_numbered_graphs_one_of_which_was_replayed_before_its_capture_are_ambiguous():
    names, numbers = ["gemm", "gelu"], (0, 1)
    rows = [
        *capture(100, names),
        *replay(150, names, numbers=numbers, graph=9),
        *capture(200, names, within="aten::bmm"),
        *replay(400, names, numbers=numbers, graph=4),
    ]
    # Of graph 9 only the first capture was before; of graph 4 both were, at different places.
    assert found(*rows) == expected(rows, launches_of(rows, 100, 200), Basis.CAPTURE, 0)


def test_graphs_that_nobody_numbered_may_be_from_any_capture_before_each_replay():
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
        **expected(rows, launches_of(rows, 100, 200), Basis.CAPTURE, 0),
        **expected(rows, launches_of(rows, 200, 300), Basis.CAPTURE, 1),
    }


def test_a_graph_without_a_number_that_ran_before_all_captures_is_of_before_the_recording():
    # The second replay may be of that graph as well as of the captured one.
    assert found(*replay(50, WORK), *capture(100, WORK), *replay(300, WORK)) == {}


def test_graphs_fewer_than_captures_may_be_from_any_before_their_first_replay():
    # GIVEN captures at one place, at the same place, and at another, and a graph behind each; one
    # capture more, so that nobody knows which of them has become no graph
    names, numbers = ["gemm", "gelu"], (0, 1)
    rows = [
        *capture(100, names),
        *replay(150, names, numbers=numbers, graph=1),
        *capture(200, names),
        *replay(250, names, numbers=numbers, graph=2),
        *capture(300, names, within="aten::bmm"),
        *replay(350, names, numbers=numbers, graph=3),
        *capture(400, names),
    ]

    # THEN the last one before counts, and none where those before are at two places
    assert found(*rows) == {
        **expected(rows, launches_of(rows, 100, 200), Basis.CAPTURE, 0),
        **expected(rows, launches_of(rows, 200, 300), Basis.CAPTURE, 1),
    }


def test_each_captured_call_is_looked_at_once():
    # GIVEN 160 graphs, each of which may be from any of the captures before it
    names = ["gemm", "gelu"] * 4
    rows = capture(100, names)
    for number in range(160):
        at = 300 + 200 * number
        rows += capture(at, names)
        rows += replay(at + 100, names, numbers=range(8), graph=number)
    made = timeline(*rows)

    # THEN memory grows with the file, not with the pairs of graphs and captures
    tracemalloc.start()
    origins(made, SourceLines(()))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 400 * len(rows)


def on_amd(rows, *, unnamed=()):
    """The same rows with HIP's calls, and the kernels that the calls of captures name."""
    hip = [replace(row, name=row.name.replace("cuda", "hip")) for row in rows]
    named = dict(zip(launches_of(rows), "pqrs", strict=True))
    return hip, {i: {} if name in unnamed else {"kernel": name} for i, name in named.items()}


def test_captured_calls_that_name_their_kernels_are_told_apart_by_them():
    # GIVEN captures at two places of two kernels each, and a replay of the kernels of the first
    rows = [
        *capture(100, ["p", "q"]),
        *capture(200, ["r", "s"], within="aten::bmm"),
        *replay(300, ["p", "q"]),
    ]
    assert found(*rows) == {}
    hip, of_call = on_amd(rows)
    nodes, launches = nodes_of(rows), launches_of(rows, 100, 200)

    # THEN on AMD it is of that one; where one launch names nothing, that is not known
    of_first = {node: (at, Basis.CAPTURE) for node, at in zip(nodes, launches, strict=True)}
    assert found(*hip, arguments=lambda ids: {i: of_call[i] for i in ids}) == of_first
    hip, of_call = on_amd(rows, unnamed="s")
    assert found(*hip, arguments=lambda ids: {i: of_call[i] for i in ids}) == {}


def test_a_capture_of_other_kernels_is_none():
    # A graph of before the recording, and a capture of as many kernels.
    rows = [*capture(100, ["p", "q"]), *replay(300, ["r", "s"]), *capture(400, ["r", "s"])]
    launches = launches_of(rows, 100, 200)
    assert found(*rows) == expected(rows, launches, Basis.CAPTURE)  # CUDA's calls name none
    hip, of_call = on_amd(rows)
    assert found(*hip, arguments=lambda ids: {i: of_call[i] for i in ids}) == {}


# --- several streams ---


def test_in_several_streams_the_order_of_the_capture_is_not_known():
    assert (
        found(*capture(100, ["a", "b", "a"]), *replay(300, ["a", "b", "a"], streams=(7, 9))) == {}
    )


def test_the_numbers_of_nodes_are_the_order_of_the_capture():
    # Captured: a, c, b; b ran before c in the other stream.
    names = ["a", "b", "c"]
    rows = [
        *capture(100, ["a", "c", "b"]),
        *replay(300, names, streams=(7, 9), numbers=(10, 12, 11)),
    ]
    a, c, b = launches_of(rows)
    assert found(*rows) == expected(rows, [a, b, c], Basis.CAPTURE)


@pytest.mark.parametrize("numbers", [(12, 11, 10), (10, 10, 11)], ids=["descending", "repeated"])
def test_numbers_that_are_no_order_say_nothing(numbers):
    rows = [*capture(100, "abc"), *replay(300, "abc", streams=(7, 9), numbers=numbers)]
    assert found(*rows) == {}


# --- the same activities, eagerly ---


def test_the_same_activities_run_eagerly():
    rows = [*eager(100, WORK), *replay(300, WORK), *replay(400, WORK)]
    launches = launches_of(rows)
    assert found(*rows) == {
        **expected(rows, launches, Basis.EAGER, 0),
        **expected(rows, launches, Basis.EAGER, 1),
    }


@pytest.mark.parametrize(
    ("names", "every", "is_said"),
    [
        (["norm", "gemm", "norm", "gemm"], 1, True),  # each name has a stream of its own
        (["norm", "gemm", "gemm", "norm"], 1, False),  # which gemm was captured first?
        (["norm", "gemm", "gemm", "norm"], 2, True),  # one after the other
    ],
)
def test_in_several_streams_the_order_is_inferred_where_the_start_decides_nothing(
    names, every, is_said
):
    rows = [*eager(100, names), *replay(300, names, streams=(7, 9), every=every)]
    assert found(*rows) == (expected(rows, launches_of(rows), Basis.EAGER) if is_said else {})


def test_a_capture_counts_before_the_same_activities_run_eagerly():
    rows = [*eager(100, WORK), *capture(200, WORK), *replay(300, WORK)]
    assert found(*rows) == expected(rows, launches_of(rows, 200), Basis.CAPTURE)


def test_two_threads_in_turns_count_as_one():
    # A forward pass, and a backward pass by autograd's thread.
    rows = [
        *eager(100, ["norm", "gemm"]),
        *eager(120, ["gemm_back", "norm_back"], thread=AUTOGRAD),
        *replay(300, ["norm", "gemm", "gemm_back", "norm_back"]),
    ]
    assert found(*rows) == expected(rows, launches_of(rows), Basis.EAGER)


def test_what_another_thread_launches_in_between_does_not_count():
    other = [asked_for(COPY, 125, 77, AUTOGRAD), activity(COPY, 150, 77)]
    rows = [*eager(100, WORK), *other, *replay(300, WORK)]
    launches = [i for i in launches_of(rows) if rows[i].thread == MAIN]
    assert found(*rows) == expected(rows, launches, Basis.EAGER)


def test_copies_of_other_sizes_are_not_the_same():
    rows = [*eager(100, WORK), *replay(300, WORK)]
    size = {COPY: 128}
    changed = [
        copy(x.start, x.end, H2D, copied_bytes=size[COPY], correlation=x.correlation)
        if x.name == H2D and x.start > 300
        else x
        for x in rows
    ]
    assert found(*changed) == {}


def test_most_of_a_replay_is_enough():
    # Six of eight: the last two ran nowhere else.
    work = ["norm", "gemm", "gelu", "gemm", "add", "norm"]
    rows = [*eager(100, work), *replay(300, [*work, "loss", "loss"])]
    assert found(*rows) == dict(
        zip(
            nodes_of(rows)[:6],
            ((event, Basis.EAGER) for event in launches_of(rows)),
            strict=True,
        )
    )


@pytest.mark.parametrize(
    ("ran", "replayed"),
    [
        (["norm", "gemm", "gelu"], ["norm", "gemm", "gelu"]),
        (["gemm"] * 5, ["gemm"] * 5),
        (["norm", "gemm", "gelu", "add"], ["norm", "gemm", "gelu", "add", *["loss"] * 5]),
    ],
    ids=["three activities", "one name", "less than half"],
)
def test_what_could_be_found_anywhere_says_nothing(ran, replayed):
    assert found(*eager(100, ran), *replay(300, replayed)) == {}


def test_runs_at_one_place_are_one_and_the_last_one_counts():
    rows = [*eager(100, WORK), *eager(200, WORK), *replay(300, WORK)]
    assert found(*rows) == expected(rows, launches_of(rows, 200), Basis.EAGER)


@pytest.mark.parametrize("module", ["nn.Module: Block_0", "nn.Module: Block_1"])
def test_runs_in_two_modules_are_ambiguous(module):
    rows = [
        python("nn.Module: Block_0", 99, 199),
        *eager(100, WORK),
        python(module, 199, 299),
        *eager(200, WORK),
        *replay(300, WORK),
    ]
    is_one = module == "nn.Module: Block_0"
    assert bool(found(*rows)) == is_one


def test_of_runs_that_overlap_that_inside_one_call_counts():
    # Two passes through two layers of the same kernels: they are found shifted by a layer, too.
    layer, rows = ["norm", "gemm"], []
    for at in (100, 140):
        rows.append(python("nn.Module: Net_0", at, at + 40))
        for i in range(2):
            rows.append(python(f"nn.Module: Layer_{i}", at + 20 * i, at + 20 * i + 20))
            rows += eager(at + 20 * i, layer)
    rows += replay(300, layer * 2)
    assert found(*rows) == expected(rows, launches_of(rows, 140), Basis.EAGER)


def test_what_differs_at_one_place_only_is_not_said_there():
    # The first activity is launched by another operator in the second run.
    rows = [
        *eager(100, WORK),
        *eager(200, WORK[:1], within="aten::other"),
        *eager(210, WORK[1:]),
        *replay(300, WORK),
    ]
    assert found(*rows) == dict(
        zip(
            nodes_of(rows)[1:],
            ((event, Basis.EAGER) for event in launches_of(rows, 210)),
            strict=True,
        )
    )


# --- what the driver runs as kernels ---

WORK_OF_GRAPH = ["norm", "memcpy32_post", "gemm", "memset32", "gelu"]
D2D = "Memcpy DtoD (Device -> Device)"


def test_a_captured_copy_and_memset_run_as_kernels_of_the_driver():
    rows = [*capture(100, WORK), *replay(300, WORK_OF_GRAPH)]
    assert found(*rows) == expected(rows, launches_of(rows), Basis.CAPTURE)


def test_a_kernel_that_copies_is_no_captured_kernel():
    names = ["norm", "attention", "gemm", FILL, "gelu"]
    assert found(*capture(100, names), *replay(300, WORK_OF_GRAPH)) == {}


@pytest.mark.parametrize("direction", [D2D, H2D])
def test_a_copy_within_the_device_that_ran_eagerly_is_a_kernel_of_a_graph(direction):
    # GIVEN the same work eagerly, with a copy of 64 bytes and a memset, which are kernels in graphs
    ran = [replace(x, name=direction) if x.name == H2D else x for x in eager(100, WORK)]
    rows = [*ran, *replay(300, WORK_OF_GRAPH)]

    # THEN nothing else that is copied is such a kernel
    launches = launches_of(rows)
    assert found(*rows) == (expected(rows, launches, Basis.EAGER) if direction == D2D else {})


def test_what_memory_a_memset_of_a_graph_fills_is_unknown():
    # The profiler calls it so; outside of graphs it says "Device".
    rows = [*eager(100, WORK), *replay(300, WORK)]
    first = min(nodes_of(rows))
    rows = [
        replace(x, name="Memset (Unknown)") if i > first and x.category == Category.MEMSET else x
        for i, x in enumerate(rows)
    ]
    assert found(*rows) == expected(rows, launches_of(rows), Basis.EAGER)


# --- annotations, and nothing ---


def test_an_annotation_is_the_surest():
    names = ["a", "b"]
    rows = [*capture(100, names), *replay(300, names)]
    node = nodes_of(rows)[1]
    start = rows[node].start
    rows[node] = kernel(
        start, start + 2, "b", correlation=rows[node].correlation, node=Node(1, 1, "layers.0")
    )
    made = timeline(*rows)
    of = origins(made, SourceLines(()))
    assert of.annotations == ("layers.0",)
    assert of.annotation_index.tolist() == [ABSENT, 0]
    assert of.basis.tolist() == [Basis.CAPTURE] * 2
    assert of.surest_basis.tolist() == [Basis.CAPTURE, Basis.ANNOTATION]
    assert of.call_id(made.launch_id).tolist() == launches_of(rows)


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
