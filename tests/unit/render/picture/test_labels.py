"""The header, the labels of the lanes and of the steps."""

import numpy as np

from tests.build.pictures import MS, draw, shapes_of, texts_of
from tracelab.render.facts import BusyShares
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.labels import step_labels
from tracelab.render.scene import Span


def test_step_labels_are_thinned_out():
    grid = Grid(0, 1000 * MS, 1000)
    few = {i: Span(i * 250 * MS, (i + 1) * 250 * MS) for i in range(4)}
    assert step_labels(few, grid) == [
        (0, "step 0"),
        (250, "step 1"),
        (500, "step 2"),
        (750, "step 3"),
    ]
    many = {i: Span(i * 10 * MS, (i + 1) * 10 * MS) for i in range(100)}
    at = [x for x, _ in step_labels(many, grid)]
    assert 5 <= len(at) <= 20
    assert len(set(np.diff(at))) == 1
    assert step_labels({}, grid) == []


def test_step_boundaries_are_lines_with_labels(timeline):
    figure = draw(timeline)
    at = [path.vertices[0, 0] / MS for path in shapes_of(figure, "steps")]
    # Step 4 ends when the host does, step 5 with the copy that it launched.
    assert at == [0, 62, 100]
    assert {"step 4", "step 5"} <= set(texts_of(figure))
    inside_5 = draw(timeline, start_ns=70 * MS)
    assert [t for t in texts_of(inside_5) if t.startswith("step ")] == ["step 5"]


def test_labels_say_lanes_and_names(timeline):
    texts = texts_of(draw(timeline))
    assert texts.count("cudaDeviceSynchronize") == 1
    expected = {
        "step.json.gz",
        "GPU 0",
        "stream 7",
        "stream 13",
        "CPU thread 7",
        "CPU thread 8",
        "gemm_$x_$",
        "HtoD (Pageable -> Device)",
        "time (ms)",
    }
    assert expected <= set(texts)
    assert any(text.startswith("ncclDevKernel_AllReduce_") for text in texts)


def shares_of(figure):
    """Every share in a picture, and what the caption says they are of."""
    texts = texts_of(figure)
    of = [part for text in texts for part in text.split("  ·  ") if " share of " in part]
    return [text for text in texts if text.endswith(" %")], [x.split(" of ")[1] for x in of]


def test_the_share_of_a_gpu_is_of_the_shown_time(timeline):
    # 0 to 50 and 70 to 100 ms of 100; from 50 ms on it is 30 of 50
    assert shares_of(draw(timeline)) == (["busy 80 %"], ["the shown time"])
    assert shares_of(draw(timeline, start_ns=50 * MS))[0] == ["busy 60 %"]
    assert shares_of(draw(timeline, lanes=["host"])) == ([], [])


def test_the_share_of_a_gpu_is_the_given_one(timeline):
    step = BusyShares("step 4", {0: "83 %", 1: "9 %"})
    assert shares_of(draw(timeline, busy=step)) == (["busy 83 %"], ["step 4"])
    assert shares_of(draw(timeline, busy=BusyShares("step 4", {})))[0] == []


def test_a_title_replaces_the_files_name(timeline):
    texts = texts_of(draw(timeline, title="rank 3, step $5$"))
    assert "rank 3, step $5$" in texts
    assert "step.json.gz" not in texts
