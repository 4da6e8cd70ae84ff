"""The scene of a file: the phases of its threads, its memory. Times are in microseconds."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from tests.build import files
from tests.build.pictures import make_trace, on_gpu, scene
from tests.build.rows import annotation, graph, kernel, launch, operator, python, step
from tests.bundled_traces import FOLDER
from tracelab.analysis.analysis import analyze_source
from tracelab.base.arrays import ABSENT
from tracelab.base.intervals import contains, union
from tracelab.base.options import Options
from tracelab.measures.what_ran import ProgramLines
from tracelab.model.steps import Window
from tracelab.model.trace import Thread
from tracelab.outputs.scene_of_file import scene_of_file, thread_labels
from tracelab.read.sources import find_sources

US = 1_000


def reduced(*rows, window=None):
    made = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))
    return scene(made.host.timeline, window)


def spans_of(of):
    """List the spans of each lane of phases: kind, start, end, level and name."""
    return {
        lane.id: [
            (
                lane.kinds[kind],
                start / US,
                end / US,
                level,
                None if name == ABSENT else of.names[name],
            )
            for kind, start, end, level, name in zip(
                lane.kind,
                lane.start_ns,
                lane.end_ns,
                lane.more["level"],
                lane.more["name"],
                strict=True,
            )
        ]
        for lane in of.lanes_of_type("phase")
    }


STEP = (
    step(1, 0, 100),
    annotation("DDP.forward", 0, 20),
    annotation("attention", 5, 15),
    annotation("softmax", 6, 9),
    launch(11, 12, 1),
    annotation("loss", 20, 25),
    operator("autograd::engine::evaluate_function: MulBackward0", 30, 40, thread=1),
    launch(31, 32, 2, thread=1),
    annotation("Optimizer.step#SGD.step", 50, 60),
    kernel(100, 200, correlation=1),
    kernel(200, 400, correlation=2),
)


def test_phases_of_each_thread_and_below_them_what_else_is_named():
    """GIVEN a step with regions of phases, others inside and beside them, and autograd's thread
    THEN phases lie at level 0 without a name, other regions nested below, and steps nowhere."""
    autograd, main = spans_of(reduced(*STEP)).values()
    assert main == [
        ("forward", 0, 20, 0, None),
        ("annotation", 5, 15, 1, "attention"),
        ("annotation", 6, 9, 2, "softmax"),
        ("annotation", 20, 25, 1, "loss"),
        ("optimizer", 50, 60, 0, None),
    ]
    # Autograd's thread is in the backward pass while it works, not after it.
    assert autograd == [("backward", 30, 40, 0, None)]


def test_of_one_step_its_own_phases_are_shown():
    rows = (
        annotation("DDP.forward", 300, 320),
        launch(301, 302, 3),
        kernel(310, 330, correlation=3),
    )
    shown = reduced(*STEP, step(2, 300, 340), *rows, window=Window(2, 300 * US, 340 * US))
    assert spans_of(shown) == {"phase:0": [("forward", 300, 320, 0, None)]}


def test_a_file_that_names_nothing_has_no_phases():
    assert spans_of(reduced(launch(0, 1, 1), kernel(100, 200, correlation=1))) == {}


def names_of(of, lane_id):
    """List the spans of a lane: name, start, end and level."""
    lane = of.lane(lane_id)
    columns = (lane.more["name"], lane.start_ns / US, lane.end_ns / US, lane.more["level"])
    return [(of.names[name], *rest) for name, *rest in zip(*columns, strict=True)]


def test_modules_are_nested_and_of_operators_the_outermost_are_there():
    shown = reduced(
        python("nn.Module: Net_0", 0, 50),
        python("nn.Module: Linear_0", 5, 20),
        python("nn.Module: Linear_1", 20, 40),
        python("model.py(3): forward", 1, 49),
        operator("aten::linear", 6, 19),
        operator("aten::addmm", 7, 18),
        launch(8, 9, 1),
        operator("aten::relu", 22, 23),
        kernel(100, 200, correlation=1),
    )
    assert names_of(shown, "module:0") == [
        ("nn.Module: Net_0", 0, 50, 0),
        ("nn.Module: Linear_0", 5, 20, 1),
        ("nn.Module: Linear_1", 20, 40, 1),
    ]
    assert names_of(shown, "operator:0") == [("aten::linear", 6, 19, 0), ("aten::relu", 22, 23, 0)]


def ran_in_gaps(of):
    """List the gaps of GPU 0, and the line or the operator that the host ran in each."""
    lane = of.lane("idle:0")
    columns = (lane.start_ns / US, lane.end_ns / US, lane.more["line"], lane.more["op"])
    return [
        (
            start,
            end,
            *(of.lines[line] if line != ABSENT else ()),
            *([of.names[operator]] if operator != ABSENT else []),
        )
        for start, end, line, operator in zip(*columns, strict=True)
    ]


def test_an_idle_gap_names_the_function_that_the_host_was_in_for_most_of_it():
    """GIVEN gaps of 100: one in a function and what it calls, one in two thirds of an operator
    without Python, and one in which nothing took half of the time."""
    shown = reduced(
        launch(0, 1, 1),
        kernel(10, 100, correlation=1),
        python("train.py(7): step", 100, 190),
        python("data.py(31): collate", 110, 180),
        launch(195, 196, 2),
        kernel(200, 300, correlation=2),
        operator("aten::copy_", 310, 380),
        launch(395, 396, 3),
        kernel(400, 500, correlation=3),
        python("a.py(1): one", 500, 530),
        python("a.py(2): two", 530, 560),
        python("a.py(3): three", 560, 590),
        launch(595, 596, 4),
        kernel(600, 700, correlation=4),
    )
    gaps = ran_in_gaps(shown)
    by_time = {(start, end): ran for start, end, *ran in gaps}
    assert all(ran[:1] == ["collate"] for (start, _), ran in by_time.items() if 100 <= start < 190)
    assert by_time[310, 380] == ["aten::copy_"]
    assert not any(ran for (start, _), ran in by_time.items() if 500 <= start < 590)


def test_real_gaps_name_what_the_host_is_in_at_most_moments_of_them():
    """GIVEN the longest gaps of a capture, looked at in 101 moments each
    THEN the function of two thirds of these is named, and none that has less than a third."""
    [source] = find_sources([str(FOLDER / "train_step_sinful.pt.trace.json.gz")])
    analysis = analyze_source(source, Options(cache=False))
    scene, timeline, phases = scene_of_file(analysis), analysis.timeline, analysis.phases
    lane = scene.lane("idle:0")
    within = union([int(lane.start_ns[0])], [int(lane.end_ns[-1])])
    lines = ProgramLines(timeline, analysis.lines, within)
    in_charge = phases.threads_in_charge(within)
    named = 0
    for i in np.argsort(lane.start_ns - lane.end_ns)[:60].tolist():
        moments = np.linspace(lane.start_ns[i], lane.end_ns[i] - 1, 101).astype(np.int64)
        counts = Counter()
        for thread, part in in_charge:
            at = moments[contains(part, moments)]
            counts.update(lines.names[x].name for x in lines.at(thread, at).tolist() if x != ABSENT)
        said = lane.more["line"][i]
        name = None if said == ABSENT else scene.lines[said].name
        [(most, times)] = counts.most_common(1) or [(None, 0)]
        if times > 67:
            assert name == most
        if name is not None:
            named += 1
            assert counts[name] > 33
    assert named > 40


def test_memory_is_a_number_over_time(tmp_path):
    """GIVEN two readings of GPU 0, and one of the host
    THEN each value lasts until the next one of its GPU, the last until the window ends."""
    events = [
        files.kernel(0, 50 * US),
        files.memory(10 * US, 512, 2048),
        files.memory(20 * US, 7, 0, device=-1),
        files.memory(30 * US, 256, 2048),
    ]
    [source] = find_sources([files.write(tmp_path / "a.json", events)])
    scene = scene_of_file(analyze_source(source, Options(cache=False)))
    lane = scene.lane("counter:0/allocated")
    assert (lane.start_ns / US).tolist() == [10, 30]
    assert (lane.end_ns / US).tolist() == [30, 50]
    assert lane.more["value"].tolist() == [512, 256]
    assert scene.lane("counter:0/reserved").more["value"].tolist() == [2048, 2048]
    assert [x.id for x in scene.lanes_of_type("counter")] == [
        "counter:0/allocated",
        "counter:0/reserved",
    ]


def test_threads_are_named_by_what_runs_there_or_as_the_file_does():
    """GIVEN the main threads of two processes, autograd's, a named one and two without a name
    THEN only those that would be alike have an id."""
    threads = (
        Thread("40", "40", "thread 40 (python)"),
        Thread("50", "50", "python3.8"),
        Thread("40", "41", "pt_autograd_0"),
        Thread("40", "42", "thread 42 (loader)"),
        Thread("40", "43", "thread 43 (python)"),
        Thread("40", "44", ""),
    )
    trace = replace(make_trace(on_gpu("gemm", 0, 1)), threads=threads)
    known = SimpleNamespace(main_thread=ABSENT, autograd_threads=np.array([2]))
    labels = thread_labels(trace, range(6), known)
    assert list(labels.values()) == [
        "main thread 40",
        "main thread 50",
        "autograd",
        "loader",
        "thread 43",
        "thread 44",
    ]
    launches_most = SimpleNamespace(main_thread=4, autograd_threads=np.array([2]))
    assert thread_labels(trace, [4], launches_most) == {4: "main thread"}
    assert thread_labels(trace, [4], known) == {4: "thread 43"}


def test_products_per_second_are_a_number_over_time(tmp_path):
    """GIVEN two products of 2,000 flops: 10 us, and 5 us beside its second half
    THEN their rates add up while both run, and between products there is none."""
    inputs = {"Input Dims": [[10, 10], [10, 10]], "Input type": ["float", "float"]}
    events = []
    for number, (start, end, stream) in enumerate([(20, 30, 7), (25, 30, 8), (40, 41, 7)], 1):
        made = files.operator("aten::mm", 2 * number * US, (2 * number + 1) * US)
        call = files.launch(2 * number * US, (2 * number + 0.5) * US, number)
        work = {"correlation": number, "stream": stream}
        name = "ampere_sgemm_32x32" if number < 3 else "at::native::copy"
        events += [
            {**made, "args": inputs} if number < 3 else made,
            call,
            files.kernel(start * US, end * US, name, **work),
        ]
    [source] = find_sources([files.write(tmp_path / "a.json", events)])
    lane = scene_of_file(analyze_source(source, Options(cache=False))).lane("counter:0/flops")
    assert lane.start_ns.tolist() == [18 * US, 23 * US, 28 * US]
    assert lane.more["value"].tolist() == [2 * 10**8, 6 * 10**8, 0]
    assert lane.unit == "FLOP/s"
