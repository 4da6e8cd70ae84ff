"""What ran by kernel, operator, phase, line and module, in nanoseconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.graphs import capture, graph_programs, replay
from tests.build.random_rows import LAST, random_rows
from tests.build.rows import (
    AUTOGRAD,
    MAIN,
    Node,
    annotation,
    copy,
    graph,
    kernel,
    launch,
    operator,
    python,
    step,
)
from tests.examples import examples
from tests.reference.host_work import BACKWARD, ENGINE, FRAMES, INPUT, PHASES, HostWork
from tracelab.base.intervals import gaps, measure, union
from tracelab.measures.idle_causes import bubbles
from tracelab.measures.independent_work import launched_in_backward
from tracelab.measures.unprofiled_windows import HostClock
from tracelab.measures.what_ran import what_ran
from tracelab.measures.work import (
    INFERRED,
    MAX_ROWS,
    KernelTotal,
    Rates,
    kernel_times,
    kernels,
    lines,
    modules,
    operators,
    phases,
    unrecognised_kernels,
)
from tracelab.model.cuda_graphs import origins
from tracelab.model.phases import Phases
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.trace import ABSENT, Category


def ran_of(made, windows=None, *, clock=None, folders=()):
    """What ran in a graph."""
    windows, source = windows or made.host.timeline.windows, SourceLines(folders)
    phases_of, idle = Phases(made.host), bubbles(made, windows)
    found = origins(made.host.timeline, source)
    return what_ran(made, windows, phases_of, source, idle, clock, found)


def tables(*rows, windows=None):
    """The graph of some rows and its kernels, operators and phases."""
    made = graph(*rows)
    ran = ran_of(made, windows)
    return [tuple(kernels(ran)), tuple(operators(ran)), tuple(phases(ran))]


def by_place(rows):
    """(name, where): (launches, host, gpu, idle)."""
    return {
        (row.name, row.where): (
            row.sums.launches,
            row.sums.host_ns,
            row.sums.gpu_ns,
            row.sums.idle_ns,
        )
        for row in rows
    }


def sums(rows):
    """name: (launches, host, gpu, idle)."""
    return {
        row.name: (row.sums.launches, row.sums.host_ns, row.sums.gpu_ns, row.sums.idle_ns)
        for row in rows
    }


def training_step(number, at):
    """100 ns of the host: load 10, forward 30, backward 40 by autograd's thread, optimizer 15.

    Kernels run in [20, 50), [50, 90) and [90, 110): the GPU is idle in [0, 20) of the first step,
    and in [10, 20) of the second.
    """
    correlation = 10 * number
    return [
        step(number, at, at + 100),
        annotation(INPUT, at, at + 10),
        python("nn.Module: Linear_0", at + 10, at + 40),
        operator("aten::linear", at + 12, at + 38),
        operator("aten::addmm", at + 14, at + 30),
        launch(at + 16, at + 20, correlation),
        kernel(at + 20, at + 50, "gemm", correlation=correlation),
        operator(ENGINE, at + 42, at + 80, thread=AUTOGRAD),
        operator("aten::mm", at + 44, at + 78, thread=AUTOGRAD),
        launch(at + 46, at + 48, correlation + 1, thread=AUTOGRAD),
        kernel(at + 50, at + 90, "gemm_back", correlation=correlation + 1),
        annotation("Optimizer.step#SGD.step", at + 84, at + 99),
        operator("aten::_foreach_add_", at + 85, at + 98),
        launch(at + 86, at + 88, correlation + 2),
        kernel(at + 90, at + 110, "add", correlation=correlation + 2),
    ]


TWO_STEPS = [*training_step(1, 0), *training_step(2, 100)]


def test_operators_have_their_own_time():
    # Per step: aten::linear 26 without the 16 of aten::addmm, the engine's 38 without the 34 of
    # aten::mm. Outside: [0, 12), [38, 42), [80, 85) and [98, 100), in all 23.
    # The GPU is idle in [0, 20) and [110, 120): in [0, 12) and [110, 112) outside any operator, in
    # [12, 14) and [112, 114) in aten::linear, in [14, 20) and [114, 120) in aten::addmm.
    _, rows, _ = tables(*TWO_STEPS)

    assert sums(rows) == {
        "aten::mm": (2, 68, 80, 0),
        "aten::addmm": (2, 32, 60, 12),
        "aten::_foreach_add_": (2, 26, 40, 0),
        "outside any operator": (0, 46, 0, 14),
        "aten::linear": (0, 20, 0, 4),
        ENGINE: (0, 8, 0, 0),
    }
    assert [row.name for row in rows][:2] == ["aten::mm", "aten::addmm"]
    assert {row.name: row.where for row in rows}["aten::mm"] == "backward"
    [mm] = [row for row in rows if row.name == "aten::mm"]
    assert (mm.calls, mm.launches, mm.host_ns, mm.gpu_ns, mm.idle_ns) == (1.0, 1.0, 34, 40, 0)
    assert (mm.host_share, mm.gpu_share) == (68 / 200, 80 / 180)
    assert (mm.rank, mm.step, mm.names, mm.sums.steps) == (0, None, 1, 2)


def test_phases_tile_the_step():
    # Other: [40, 42), [80, 84) and [99, 100). All was launched in a phase.
    *_, rows = tables(*TWO_STEPS)

    assert [row.name for row in rows] == ["data", "forward", "backward", "optimizer", "other"]
    assert sums(rows) == {
        "data": (0, 20, 0, 10),
        "forward": (2, 60, 60, 20),
        "backward": (2, 76, 80, 0),
        "optimizer": (2, 30, 40, 0),
        "other": (0, 14, 0, 0),
    }
    assert all(row.where is None and row.calls is None for row in rows)


def test_kernels_by_name_with_their_phase():
    rows, *_ = tables(*TWO_STEPS)

    figures = [(x.name, x.kind, x.phase, x.count, x.total_ns, x.mean_ns) for x in rows]
    assert figures == [
        ("gemm_back", "compute", "backward", 1.0, 40, 40),
        ("gemm", "compute", "forward", 1.0, 30, 30),
        ("add", "compute", "optimizer", 1.0, 20, 20),
    ]
    assert [row.share for row in rows] == [80 / 180, 60 / 180, 40 / 180]


def test_only_steady_steps_count():
    # A kernel that was launched before the recording runs in the first step.
    backlog = kernel(0, 5, "old")
    rows, _, phase_rows = tables(backlog, *TWO_STEPS)

    assert {row.name for row in rows} == {"gemm_back", "gemm", "add"}
    assert {row.sums.steps for row in rows} == {1}
    assert sum(row.sums.host_ns for row in phase_rows) == 100


def test_one_step_alone_has_its_own_rows():
    windows = graph(*TWO_STEPS).host.timeline.windows
    rows, *_ = tables(*TWO_STEPS, windows=windows[2:])

    assert {(row.step, row.sums.steps, row.sums.count) for row in rows} == {(2, 1, 1)}


def test_without_steps_the_whole_trace_counts():
    rows, operator_rows, phase_rows = tables(
        operator("aten::mm", 0, 10), launch(2, 4, 1), kernel(5, 15, correlation=1), kernel(15, 18)
    )

    # From the launch on.
    assert [(row.name, row.count, row.total_ns, row.sums.steps) for row in rows] == [
        ("gemm", 2.0, 13, None)
    ]
    assert sums(operator_rows) == {
        "aten::mm": (1, 8, 10, 0),
        "outside any operator": (0, 8, 0, 0),
        "the file does not say": (0, 0, 3, 0),
    }
    assert sums(phase_rows) == {"other": (1, 16, 10, 0), "unknown": (0, 0, 3, 0)}


def test_file_without_a_host_says_so():
    _, operator_rows, phase_rows = tables(kernel(5, 15), kernel(25, 30))

    assert sums(operator_rows) == {"the file does not say": (0, 25, 15, 10)}
    assert sums(phase_rows) == {"unknown": (0, 25, 15, 10)}


def test_forward_is_inferred_where_no_region_is_of_it():
    # Without its frames the time before the backward pass is forward; after it, other.
    rows = [row for row in TWO_STEPS if not row.name.startswith("nn.Module")]
    *_, phase_rows = tables(*rows)

    assert sums(phase_rows)["forward"] == (2, 64, 60, 20)
    assert sums(phase_rows)["other"] == (0, 10, 0, 0)
    assert {row.name: row.where for row in phase_rows}["forward"] == INFERRED


def test_recomputation_is_part_of_the_backward_pass():
    *_, phase_rows = tables(
        step(1, 0, 100),
        annotation("forward", 0, 10),
        annotation("## backward ##", 10, 90),
        python("nn.Module: Linear_0", 20, 60),
        launch(30, 32, 1),
        kernel(40, 50, correlation=1),
    )

    assert sums(phase_rows) == {
        "forward": (0, 10, 0, 10),
        "backward": (1, 80, 10, 70),
        "other": (0, 10, 0, 10),
    }


def test_a_closure_inside_the_optimizers_step_is_its_own_phase():
    *_, phase_rows = tables(
        step(1, 0, 100),
        annotation("Optimizer.step#LBFGS.step", 0, 100),
        annotation("forward", 10, 40),
        annotation("## backward ##", 40, 90),
        launch(50, 52, 1),
        kernel(60, 70, correlation=1),
    )

    assert {row.name: row.sums.host_ns for row in phase_rows} == {
        "forward": 30,
        "backward": 50,
        "optimizer": 20,
    }


def test_others_keep_the_sums_exact(monkeypatch):
    monkeypatch.setattr("tracelab.measures.work.MAX_ROWS", 2)
    all_kernels = [kernel(10 * i, 10 * i + i, f"k{i}") for i in range(1, 6)]
    rows, *_ = tables(*all_kernels)

    assert [(row.name, row.names, row.count, row.total_ns) for row in rows] == [
        ("k5", 1, 1.0, 5),
        ("k4", 1, 1.0, 4),
        ("others", 3, 3.0, 6),
    ]
    assert (rows[-1].kind, rows[-1].phase, rows[-1].mean_ns) == (None, None, 2)
    assert sum(row.share for row in rows) == pytest.approx(1)
    _, operator_rows, _ = tables(*TWO_STEPS)
    assert [row.name for row in operator_rows] == ["aten::mm", "aten::addmm", "others"]
    assert sum(row.sums.host_ns for row in operator_rows) == 200
    assert MAX_ROWS <= 500


PROGRAM = """\
def step(model, batch):
    loss = model(batch)
    loss.backward()
    return loss.item()
"""


def program_step():
    """100 ns: the model in [5, 40), backward by autograd's thread in [40, 80), item in [85, 99).

    The kernels run in [20, 30), [60, 90) and [90, 95): the GPU is idle for 55 ns.
    """
    return [
        step(1, 0, 100),
        python("train.py(1): step", 2, 100),
        python("nn.Module: Net_0", 5, 40),
        python("torch/nn/modules/module.py(1775): _call_impl", 6, 39),
        python("model.py(7): forward", 8, 38),
        python("nn.Module: Linear_0", 10, 30),
        operator("aten::linear", 12, 28),
        launch(15, 18, 1),
        kernel(20, 30, correlation=1),
        operator("aten::add", 32, 36),
        python("torch/_tensor.py(570): backward", 40, 80),
        python(BACKWARD, 44, 78),
        operator(ENGINE, 50, 70, thread=AUTOGRAD),
        launch(55, 58, 2, thread=AUTOGRAD),
        kernel(60, 90, correlation=2),
        python("<built-in method item of Tensor object at 0x7f>", 85, 99),
        launch(86, 88, 3),
        kernel(90, 95, correlation=3),
    ]


def test_lines_have_all_that_they_call_but_the_programs_own_code(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    made = graph(*program_step())
    rows = tuple(lines(ran_of(made, folders=[str(tmp_path)])))

    # The call of the model without the 30 ns of model.py, which is the only one that no other name
    # explains. Of step itself are [2, 5), [80, 85) and [99, 100); of forward [8, 10),
    # [30, 32) and [36, 38).
    assert by_place(rows) == {
        ("step", "train.py:3"): (1, 40, 30, 20),
        ("Linear in forward", "model.py"): (1, 20, 10, 10),
        ("step", "train.py:4"): (1, 14, 5, 4),
        ("step", "train.py"): (0, 9, 0, 4),
        ("forward", "model.py"): (0, 6, 0, 6),
        ("step", "train.py:2"): (0, 5, 0, 5),
        ("__add__ in forward", "model.py"): (0, 4, 0, 4),
        ("outside any function", None): (0, 2, 0, 2),
    }
    assert all(row.calls is None for row in rows)


def test_modules_have_their_own_time():
    made = graph(*program_step())
    rows = tuple(modules(ran_of(made)))

    assert by_place(rows) == {
        ("outside any module", None): (2, 65, 35, 30),
        ("Linear_0", "Net_0"): (1, 20, 10, 10),
        ("Net_0", None): (0, 15, 0, 15),
    }
    assert [row.calls for row in rows] == [0, 1, 1]


def test_without_python_functions_there_are_no_lines_and_no_modules():
    made = graph(*(row for row in program_step() if row.category != Category.PYTHON))
    ran = ran_of(made)

    assert (tuple(lines(ran)), tuple(modules(ran))) == ((), ())


def test_a_wrapper_is_what_it_stands_around():
    made = graph(
        step(1, 0, 100),
        python("train.py(1): step", 0, 100),
        python("torch/optim/optimizer.py(480): wrapper", 10, 90),
        python("torch/autograd/profiler.py(854): __enter__", 12, 20),
        python("torch/optim/optimizer.py(60): _use_grad", 20, 85),
        python("torch/optim/adam.py(200): step", 22, 80),
        launch(30, 32, 1),
        kernel(40, 50, correlation=1),
    )
    rows = lines(ran_of(made))

    assert {row.name: row.sums.host_ns for row in rows} == {"step in step": 80, "step": 20}


def test_the_time_without_the_profiler_is_that_of_the_clock():
    # GIVEN two steps of 100 ns, of which the second was replayed: half as long until 140, and from
    # there on a fifth of its 60 ns
    made = graph(*TWO_STEPS)
    clock = HostClock(np.array([100, 140, 200]), np.array([0, 20, 32]), steps=1)
    rows = tuple(phases(ran_of(made, clock=clock)))
    # THEN the 10 ns of loading are 5, the 30 of forward 15 ... and all are 32
    assert {row.name: row.host_unprofiled_ns for row in rows} == {
        "data": 5,
        "forward": 15,
        "backward": 8,
        "optimizer": 3,
        "other": 1,
    }
    alone = phases(ran_of(made, made.host.timeline.windows[2:], clock=clock))
    assert {row.host_unprofiled_ns for row in alone} == {None}


LAYERS = ["norm", "gemm", "gelu", "gemm"]


def graph_program(*rows, node=None):
    """A graph replayed by `serve`: four nodes of 2 ns, in 300 to 311; `rows` stand before it.

    The last one has a node of its own, where there is one.
    """
    replayed = replay(300, LAYERS)
    if node is not None:
        replayed[-1] = replace(replayed[-1], node=node)
    return graph(*rows, python("serve.py(9): serve", 295, 320), *replayed)


def work_of(table, made):
    """(name, where): launches, GPU time, that of nodes captured there, and how that is known."""
    return {
        (row.name, row.where): (
            row.sums.launches,
            row.sums.gpu_ns,
            row.replayed_ns,
            row.replay_basis,
        )
        for row in table(ran_of(made))
        if row.sums.launches or row.sums.gpu_ns
    }


def test_what_a_capture_launched_is_that_lines_time_when_it_is_replayed():
    made = graph_program(
        python("model.py(7): forward", 95, 160),
        python("nn.Module: Net_0", 96, 155),
        *capture(100, LAYERS),
    )

    assert work_of(lines, made) == {
        ("Net in forward", "model.py"): (0, 8, 8, "capture"),
        ("serve", "serve.py"): (1, 0, 0, None),
    }
    assert work_of(modules, made) == {
        ("Net_0", None): (0, 8, 8, "capture"),
        ("outside any module", None): (1, 0, 0, None),
    }
    assert work_of(operators, made) == {
        ("aten::mm", "forward"): (0, 8, 8, "capture"),
        ("outside any operator", "other"): (1, 0, 0, None),
    }
    assert work_of(phases, made) == {
        ("forward", None): (0, 8, 8, "capture"),
        ("other", None): (1, 0, 0, None),
    }


def test_an_annotation_is_a_module_and_a_line_where_no_call_is_known():
    node = Node("layers.0")
    made = graph_program(node=node)
    assert work_of(lines, made) == {
        ("serve", "serve.py"): (1, 6, 0, None),
        ("layers.0", None): (0, 2, 2, "annotation"),
    }
    assert work_of(modules, made) == {
        ("outside any module", None): (1, 6, 0, None),
        ("layers.0", None): (0, 2, 2, "annotation"),
    }

    made = graph_program(
        python("model.py(7): forward", 95, 160),
        python("nn.Module: Net_0", 96, 155),
        *capture(100, LAYERS),
        node=node,
    )
    assert work_of(lines, made)["Net in forward", "model.py"] == (0, 8, 8, "capture")
    assert work_of(modules, made) == {
        ("Net_0", None): (0, 6, 6, "capture"),
        ("layers.0", None): (0, 2, 2, "annotation"),
        ("outside any module", None): (1, 0, 0, None),
    }


def test_without_a_known_origin_all_belongs_to_the_call_that_replays():
    made = graph_program(python("model.py(7): forward", 95, 160), *capture(100, LAYERS[:-1]))
    assert work_of(lines, made) == {("serve", "serve.py"): (1, 8, 0, None)}


@st.composite
def frames(draw):
    """Functions of the program and of others, on any thread."""
    start = draw(st.integers(0, LAST))
    name = draw(st.sampled_from([*FRAMES]))
    thread = draw(st.sampled_from([MAIN, MAIN, MAIN, AUTOGRAD]))
    return python(name, start, start + draw(st.integers(0, 40)), thread=thread)


@st.composite
def clocks(draw):
    """Clocks whose nanoseconds are whole ones."""
    steps = draw(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=6))
    lengths, speeds = np.array(steps).T
    recorded_ns = draw(st.integers(0, 20)) + np.cumsum(np.append(0, lengths))
    return HostClock(recorded_ns, np.cumsum(np.append(0, lengths * speeds)), steps=1)


@st.composite
def phase_rows(draw):
    """Regions and operators that phases are made of, on any thread."""
    start = draw(st.integers(0, LAST))
    end = start + draw(st.integers(0, 25))
    name = draw(st.sampled_from([*PHASES, "aten::add", "aten::item"]))
    maker = annotation
    if name.startswith(("aten", "autograd")):
        maker = operator
    if name.startswith("nn.Module"):
        maker = python
    return maker(name, start, end, thread=draw(st.sampled_from([MAIN, MAIN, AUTOGRAD])))


@given(
    random_rows(),
    st.lists(phase_rows(), max_size=10),
    st.lists(frames(), max_size=8),
    st.none() | clocks(),
)
@examples(150)
def test_all_tables_are_those_of_the_slow_model(rows, more, some_frames, clock):
    rows = [*rows, *more, *some_frames]
    made = graph(*rows)
    ran = ran_of(made, clock=clock)
    expected = HostWork(rows, made.host.timeline, clock)

    for table, account, key in (
        (operators, expected.by_operator, _name_of),
        (phases, expected.by_phase, _name_of),
        (lines, expected.by_line, _place_of),
        (modules, expected.by_module, _place_of),
    ):
        found = tuple(table(ran))
        if not found:
            continue  # the file has no frames of the program, or no modules
        for column in ("launches", "host_ns", "gpu_ns", "idle_ns"):
            wanted = {_text(name): n for name, n in getattr(account, column).items() if n}
            assert {key(row): n for row in found if (n := getattr(row.sums, column))} == wanted
        unprofiled_ns = {
            key(row): row.host_unprofiled_ns * (ran.unprofiled_steps or 1)
            for row in found
            if row.host_unprofiled_ns
        }
        assert unprofiled_ns == {_text(name): n for name, n in account.unprofiled_ns.items() if n}
        calls = {key(row): row.sums.calls for row in found if row.sums.calls}
        assert calls == dict(account.calls)


@given(graph_programs(), st.lists(phase_rows(), max_size=6), st.lists(frames(), max_size=8))
@examples(60)
def test_what_was_captured_counts_where_the_slow_model_says(rows, more, some_frames):
    rows = [*rows, *more, *some_frames]
    made = graph(*rows)
    timeline = made.host.timeline
    ran = ran_of(made)
    found = origins(timeline, SourceLines(()))
    origin_of = {
        event: call
        for event, call in zip(timeline.event_id.tolist(), found.event_id.tolist(), strict=True)
        if call != ABSENT
    }
    expected = HostWork(rows, timeline, origin_of=origin_of)

    for table, account, key in (
        (operators, expected.by_operator, _name_of),
        (phases, expected.by_phase, _name_of),
        (lines, expected.by_line, _place_of),
        (modules, expected.by_module, _place_of),
    ):
        found = tuple(table(ran))
        if not found:
            continue
        for column in ("launches", "gpu_ns"):
            wanted = {_text(name): n for name, n in getattr(account, column).items() if n}
            assert {key(row): n for row in found if (n := getattr(row.sums, column))} == wanted


@given(random_rows(), st.lists(phase_rows() | frames(), max_size=8))
@examples(100)
def test_every_table_adds_up(rows, more):
    made = graph(*rows, *more)
    timeline = made.host.timeline
    ran = ran_of(made)
    kernel_rows = tuple(kernels(ran))
    steady = timeline.steady
    windows = timeline.windows[:1]
    chosen = list(range(len(timeline.event_id)))
    if steady:
        windows = [timeline.windows[1 + i] for i in steady.indices]
        chosen = np.flatnonzero(np.isin(timeline.step_index, steady.indices)).tolist()
    gpu_ns = sum(int(timeline.end_ns[i] - timeline.start_ns[i]) for i in chosen)
    idle_ns = sum(
        measure(gaps(timeline.busy(timeline.select(device=device)), window.start_ns, window.end_ns))
        for window in windows
        for device in timeline.device_numbers
    )

    assert sum(row.sums.total_ns for row in kernel_rows) == gpu_ns
    assert sum(row.sums.count for row in kernel_rows) == len(chosen)
    host_ns = sum(row.sums.host_ns for row in phases(ran))
    if steady:
        annotations = {timeline.steps[i].event_id for i in steady.indices}
        spans = union(
            timeline.trace.start_ns[[*annotations]], timeline.trace.end_ns[[*annotations]]
        )
        assert host_ns == measure(spans)
    for table in (operators, phases, lines, modules):
        if found := tuple(table(ran)):
            assert sum(row.sums.host_ns for row in found) == host_ns
            assert sum(row.sums.gpu_ns for row in found) == gpu_ns
            assert sum(row.sums.idle_ns for row in found) == idle_ns


def _name_of(row):
    return row.name


def _place_of(row):
    return row.name, row.where


def _text(name):
    return name.name.lower() if hasattr(name, "name") else name


def test_the_backward_pass_of_pytorch_1_8_has_no_engine_around_its_nodes():
    # Their thread is autograd's, by what runs there.
    rows = [
        operator("aten::conv2d", 0, 10),
        launch(2, 4, 1),
        kernel(10, 20, correlation=1),
        operator("CudnnConvolutionBackward", 20, 28, thread=AUTOGRAD),
        launch(22, 24, 2, thread=AUTOGRAD),
        kernel(30, 40, correlation=2),
        operator("torch::autograd::AccumulateGrad", 28, 29, thread=AUTOGRAD),
    ]
    made = graph(*rows, threads=("thread 1 (python)",) * 5)
    gpu_ns = {row.name: row.sums.gpu_ns for row in phases(ran_of(made))}
    assert (gpu_ns["forward"], gpu_ns["backward"]) == (10, 10)
    assert launched_in_backward(made.host.timeline).tolist() == [False, True]


def test_kernels_are_added_up_by_name_and_launching_step():
    two_steps = graph(
        step(1, 0, 10),
        step(2, 10, 20),
        launch(1, 2, 1),
        launch(3, 4, 2),
        launch(11, 12, 3),
        kernel(2, 5, "a", correlation=1),
        kernel(5, 9, "a", correlation=2, stream=9),
        kernel(12, 19, "b", correlation=3),
        kernel(30, 35, "a"),
    )

    a, b = kernel_times(two_steps)

    assert (a.name, a.steps_ns, a.step_counts) == ("a", (7, 0), (2, 0))
    assert (a.total_ns, a.count) == (12, 3)
    assert (b.name, b.steps_ns, b.total_ns) == ("b", (0, 7), 7)


def test_without_steps_there_is_only_the_whole_trace():
    [times] = kernel_times(graph(kernel(2, 5, "a"), kernel(5, 9, "a", device=1)))

    assert (times.steps_ns, times.step_counts, times.total_ns, times.count) == ((), (), 7, 2)


def test_unrecognised_kernels_are_the_long_ones_that_no_rule_knows():
    # Of 10,000 ns busy, a hundredth is 100: "brief" is below that, and copies are no kernels.
    rows = [
        kernel(0, 9_000, "gemm"),
        kernel(9_000, 9_150, "my_own"),
        kernel(9_150, 9_300, "my_own"),
        kernel(9_300, 9_600, "another"),
        kernel(9_600, 9_700, "just_enough"),
        kernel(9_700, 9_799, "brief"),
        copy(9_799, 10_000),
    ]

    assert unrecognised_kernels(graph(*rows)) == (
        KernelTotal("another", 1, 300),
        KernelTotal("my_own", 2, 300),
        KernelTotal("just_enough", 1, 100),
    )


def test_rates_are_of_the_time_of_what_is_known():
    """GIVEN two steps with products of 8 * 10**9 in 40 ns, one of them by a kernel with an
    occupancy of 50 % and the other of nothing known, and copies of 600 bytes in 30 ns
    THEN kernels and operators have the rates, and others none."""
    inputs = '[[[2000,1000],[1000,2000]],["c10::Half","c10::Half"],["",""]]'
    some = []
    for number in (1, 2):
        at = 200 * number
        some += [
            step(number, at, at + 200),
            operator("aten::mm", at + 10, at + 40, inputs=inputs),
            launch(at + 12, at + 14, at),
            kernel(at + 20, at + 60, "gemm", correlation=at, occupancy=50 * (number - 1)),
            operator("aten::add", at + 50, at + 70),
            launch(at + 52, at + 54, at + 1),
            kernel(at + 70, at + 80, "add", correlation=at + 1),
            launch(at + 82, at + 84, at + 2),
            copy(at + 90, at + 120, "Memcpy HtoD", correlation=at + 2, copied_bytes=600),
        ]
    ran = ran_of(graph(*some, gpu="NVIDIA H200"))
    gemm, copies, add = kernels(ran)
    assert (gemm.flops, gemm.flop_rate, gemm.occupancy) == (8 * 10**9, 2e17, 0.5)
    assert gemm.peak_share == pytest.approx(2e17 / 989.4e12)
    assert gemm.byte_rate == 16e6 / 40e-9
    assert (copies.flops, copies.byte_rate, copies.occupancy) == (None, 2e10, None)
    assert rates_of(add) == dict.fromkeys(Rates.__struct_fields__)
    by_name = {row.name: rates_of(row) for row in operators(ran)}
    assert by_name["aten::mm"] == rates_of(gemm)
    assert by_name["aten::add"] == rates_of(add)
    assert by_name["outside any operator"]["byte_rate"] == 2e10


def rates_of(row):
    return {name: getattr(row, name) for name in Rates.__struct_fields__}
