"""What steps that are launch bound are told, by what keeps them from being a CUDA graph.

A step of 1 ms: forty kernels of 5 us, launched every 20 us from 100 us on, so that the GPU is idle
for 39 x 15 us between them. In some of them the host does something else between two launches.
"""

from __future__ import annotations

import pytest

from tests.build import files
from tests.build.files import US
from tests.build.finding_events import H2D_PAGEABLE, work
from tests.figures import figures
from tests.short_fixes import assert_short
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.findings.finding import UNMET
from tracelab.findings.places import JOINT

STEP, EVERY, FIRST, KERNELS = 1_000, 20, 100, 40
COMPILED = '`torch.compile(model, mode="reduce-overhead")`'


def at_launch(step, number):
    """When the launch of this number begins in a step, ns."""
    return (STEP * step + FIRST + EVERY * number) * US


def steps(*between, count=4, kernels=KERNELS, name=lambda *_: "add", shape=lambda _: 64):
    """Some such steps; `between` are functions of a step that give further events of it.

    The name of a kernel is a function of its step and number, its grid one of its step.
    """
    rows = []
    for step in range(count):
        begin = STEP * step * US
        rows.append(files.step(step, begin, begin + (STEP - 20) * US))
        rows.append(files.python("train.py(3): train", begin + US, begin + (STEP - 30) * US))
        rows.append(files.operator("aten::add", begin + 50 * US, begin + (STEP - 40) * US))
        for i in range(kernels):
            launched = at_launch(step, i)
            rows += work(
                launched + 3 * US,
                launched + 8 * US,
                name(step, i),
                launched=launched,
                correlation=1 + 100 * step + i,
                grid=[shape(step), 1, 1],
            )
        for more in between:
            rows += more(step)
    return rows


def read(number, *, line=20, function="log", called="item", operator="aten::item"):
    """A value is read behind the launch of this number: the host waits for 3 us."""

    def of_step(step):
        begin = at_launch(step, number) + 9 * US
        return [
            files.python(f"train.py({line}): {function}", begin, begin + 9 * US),
            files.python(
                f"<built-in method {called} of Tensor object at 0x7f>", begin, begin + 8 * US
            ),
            files.operator(operator, begin + US, begin + 7 * US),
            files.call("cudaStreamSynchronize", begin + 2 * US, begin + 5 * US),
        ]

    return of_step


def copied(number, name, function):
    """A pageable copy behind the launch of this number, of 2 us."""

    def of_step(step):
        begin = at_launch(step, number) + 9 * US
        correlation = 50_000 + 100 * step + number
        return [
            files.python(f"train.py(30): {function}", begin, begin + 9 * US),
            files.python("<built-in method to of Tensor object at 0x7f>", begin, begin + 8 * US),
            files.operator("aten::to", begin + US, begin + 7 * US),
            files.launch(begin + 2 * US, begin + 6 * US, correlation, name="cudaMemcpyAsync"),
            files.copy(begin + 3 * US, begin + 5 * US, name, correlation=correlation, bytes=4_096),
        ]

    return of_step


@pytest.fixture
def advice(tmp_path):
    """The fix and the edit of the finding about late launches, and what that saves."""

    def find(rows, *, before=None, options=None, cause=None):
        path = files.write(tmp_path / "hand.json", rows, before=before or {})
        report = analyze(path, options or Options(prices=False))
        found = [x for x in report.findings if (x.rule, x.remedy) == ("TL301", None)]
        [finding] = [x for x in found if cause in (None, x.cause)]
        assert_short(finding.fix_short)
        return finding

    return find


def recorded(torch):
    return {"tracelab": {"torch": torch}}


def test_nothing_is_in_the_way(advice, snapshot):
    finding = advice(steps(), before=recorded("2.11.0"))
    assert finding.edit == "graph"
    assert finding.fix == snapshot


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        (
            "2.11.0+cu130",
            f": {COMPILED} or `torch.cuda.make_graphed_callables(model, (batch,))`.",
        ),
        ("1.13.1", ": `torch.cuda.make_graphed_callables(model, (batch,))`."),
        (None, f": {COMPILED} (since PyTorch 2.0) or "),
    ],
)
def test_names_what_the_version_has(advice, torch, said):
    assert said in advice(steps(), before=recorded(torch) if torch else {}).fix


def test_what_is_differentiated_twice_is_not_compiled(advice):
    def again(step):
        begin = at_launch(step, 20) + 9 * US
        return [files.operator("TanhBackwardBackward0", begin, begin + US)]

    finding = advice(steps(again), before=recorded("2.11.0"))
    assert "torch.cuda.graph(graph)" in finding.fix_short
    assert "compile" not in finding.fix_short
    assert "make_graphed_callables" not in finding.fix


def test_before_cuda_graphs_there_is_no_graph(advice):
    finding = advice(steps(), before=recorded("1.8.0"))
    assert (finding.edit, finding.fix) == (None, "Launch fewer kernels: fuse small ones.")


def test_a_read_at_the_end_of_a_step_is_not_in_the_way(advice, snapshot):
    finding = advice(steps(read(39)))
    assert finding.edit == "graph"
    assert {"40"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


def test_what_runs_between_two_calls_is_captured_where_that_is_most(advice, snapshot):
    # 27 launches of 40 are behind the second read.
    finding = advice(steps(read(2), read(12, function="check")))
    assert finding.edit == "graph"
    assert {"27", "40"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


def test_reads_and_copies_come_first_in_this_order(advice, snapshot):
    # Every fourth launch is followed by a read, the others of the middle by a copy.
    rows = steps(
        *(read(4 * i, function="log") for i in range(1, 9)),
        read(30, function="check"),
        copied(18, H2D_PAGEABLE, "batch"),
    )
    finding = advice(rows)
    assert finding.edit == JOINT.join(
        ("unblock:log.item", "unblock:check.item", "pin:batch.to", "graph")
    )
    assert {"1", "2", "3", "41"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot
    assert finding.fix_short.endswith("; first avoid waits and pageable copies.")


def test_the_short_form_names_the_only_call_that_is_in_the_way(advice):
    finding = advice(steps(*(read(4 * i) for i in range(1, 10))), before=recorded("2.11.0"))
    assert COMPILED in finding.fix_short
    assert finding.fix_short.endswith("; first avoid the wait in `item()`.")


def test_the_price_is_that_of_the_reads_and_the_graph_together(tmp_path, advice):
    rows = steps(*(read(4 * i) for i in range(1, 10)), count=6)
    together = advice(rows, options=Options(edits=("graph",)))
    assert together.edit == "unblock:log.item + graph"
    # What the host does before the first launch stays, and after the last: 100 and 118 us. All else
    # is one call of 10 us. With the reads left in, there are ten parts, and a call for each.
    # Between two steps pass 20 us, which are in none: of the printed step it is the same share.
    # The reads come first: their nine waits of 3 us are in their own saving.
    saves_us = (STEP - 100 - 10 - 118 - 9 * 3) / STEP * (STEP - 20)
    assert together.saves_ns == pytest.approx(saves_us * US, abs=8 * US)
    [alone] = analyze(str(tmp_path / "hand.json"), Options(edits=("graph",))).whatif.predictions
    assert alone.step_ns - alone.predicted_ns < together.saves_ns - 100 * US


def test_what_the_host_needs_stays(advice, snapshot):
    # Of 40 launches, 4 lie between two such reads.
    reads = [
        read(4 * i, function="stop", called="all", operator="aten::is_nonzero") for i in range(10)
    ]
    finding = advice(steps(*reads))
    assert finding.edit == "graph"
    assert {"4,"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


def test_between_what_stays_each_part_is_a_graph(advice, snapshot):
    finding = advice(steps(read(19, function="stop", called="all", operator="aten::is_nonzero")))
    assert finding.edit == "graph"
    assert {"20", "40"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


def test_kernels_that_change_from_step_to_step(advice, snapshot):
    finding = advice(steps(name=lambda step, i: f"rows_{step}" if i == 7 else "add"))
    assert {"40"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


def test_launch_dimensions_that_change_from_step_to_step(advice):
    assert "Pad to a few fixed shapes" in advice(steps(shape=lambda step: 64 + step)).fix


def test_one_step_that_differs_is_an_exception(advice):
    rows = steps(name=lambda step, i: "rare" if (step, i) == (2, 7) else "add", count=6)
    assert "Nothing in the trace prevents it" in advice(rows).fix


def test_shapes_that_are_recorded_are_compared(advice):
    def shaped(rows, shape_of):
        number = 0
        for row in rows:
            if row["name"] == "aten::add":
                row["args"]["Input Dims"] = [[shape_of(number), 8]]
                number += 1
        return rows

    assert "Shapes" not in advice(shaped(steps(), lambda _: 4)).fix
    assert "Pad to a few fixed shapes" in advice(shaped(steps(), lambda step: 4 + step)).fix


def test_one_step_cannot_be_compared(advice):
    assert advice(steps(count=1)).fix.startswith("Capture a step as a CUDA graph: ")
    assert "nothing to compare it with" in advice(steps(count=1)).fix


def test_a_trace_without_steps_has_no_step_to_capture(advice, snapshot):
    # The window begins with the first activity; its launch counts as well: 4 times 40.
    rows = [row for row in steps(read(12)) if not row["name"].startswith("ProfilerStep")]
    finding = advice(rows)
    assert finding.edit == "graph"
    assert {"40", "160"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


SIZED = [read(i, function="mask", called="nonzero", operator="aten::nonzero") for i in (13, 26)]


def test_an_operator_whose_size_never_changes_goes_first(advice, snapshot):
    # All kernels have 64 blocks in each step.
    finding = advice(steps(*SIZED))
    assert (finding.edit, finding.saves_reason) == ("unblock:mask.nonzero + graph", UNMET)
    assert finding.fix == snapshot


@pytest.mark.parametrize(
    "changes",
    [
        {"name": lambda step, i: f"rows_{step % 2}" if i == 30 else "add"},  # the fourth behind it
        {"shape": lambda step: 64 + step},
        {"shape": lambda _: 1},  # one block says nothing about a size
    ],
)
def test_an_operator_whose_size_changes_stays(advice, changes):
    finding = advice(steps(*SIZED, **changes))
    assert finding.edit == "graph"
    assert "torch.where" not in finding.fix


def freed(number):
    """Memory that is given back, and asked for again, behind the launch of this number."""

    def of_step(step):
        begin = at_launch(step, number) + 9 * US
        return [
            files.python("train.py(50): clear", begin, begin + 9 * US),
            files.call("cudaFree", begin + US, begin + 4 * US),
            files.call("cudaMalloc", begin + 5 * US, begin + 6 * US),
        ]

    return of_step


def test_collectives_are_captured_on_all_ranks(advice, snapshot):
    rows = steps(name=lambda _, i: "ncclDevKernel_AllReduce_Sum" if i == 20 else "add")
    assert advice(rows).fix == snapshot


def test_compiled_code_is_not_told_to_compile(advice):
    def compiled(step):
        begin, end = at_launch(step, 0) - 5 * US, at_launch(step, KERNELS)
        return [files.operator("Torch-Compiled Region: 0/0", begin, end)]

    fix = advice(steps(compiled), before=recorded("2.6.0")).fix
    assert ': `torch.compile(..., mode="reduce-overhead")`.' in fix
    assert "model" not in fix


def replayed(step):
    """A graph of 20 kernels, before the first launch of a step."""
    begin = at_launch(step, 0) - 30 * US
    of_graph = [
        files.kernel(begin + (5 + i) * US, begin + (6 + i) * US, correlation=90_000 + step)
        for i in range(20)
    ]
    return [
        files.launch(begin, begin + 4 * US, 90_000 + step, name="cudaGraphLaunch"),
        *of_graph,
    ]


def test_what_is_replayed_already_is_not_told_to_use_graphs(advice, snapshot):
    finding = advice(steps(replayed, kernels=15), cause="launch_bound")
    assert finding.edit == "graph"
    assert figures(finding.fix) == ["15"]
    assert finding.fix == snapshot


def test_a_graph_beside_many_launches_is_to_become_one_of_all(advice, snapshot):
    # 40 of the 60 activities of a step are launched one by one
    finding = advice(steps(replayed), cause="launch_bound", before=recorded("2.11.0"))
    assert finding.edit == "graph"
    assert {"40", "41"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot
    assert "reduce-overhead" not in finding.fix


def optimized(step):
    """The second half of a step is an optimizer's."""
    begin, end = at_launch(step, 20) - US, at_launch(step, 39) + 15 * US
    return [files.annotation("Optimizer.step#AdamW.step", begin, end)]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (steps(), None),
        (steps(optimized), UNMET),  # it may not be capturable
        (steps(shape=lambda step: 64 + step), UNMET),
        (steps(count=1), UNMET),  # nothing to compare with
    ],
)
def test_a_graph_has_a_price_where_the_trace_shows_that_it_is_possible(advice, rows, reason):
    assert advice(rows).saves_reason == reason


def test_one_launch_of_compiled_code_beside_a_replay(advice, snapshot):
    # GIVEN code that the compiler wrote, which launches one kernel that brings in the input
    written = "/tmp/torchinductor_me/ab/cabc.py(88): call"

    def compiled(step):
        begin, end = at_launch(step, 0) - 5 * US, at_launch(step, 1)
        return [
            files.operator("Torch-Compiled Region: 0/0", begin, end),
            files.python(written, begin + US, end - US),
            files.operator("aten::_foreach_copy_", begin + 2 * US, end - 2 * US),
        ]

    # THEN no line of that code is named
    rows = steps(replayed, compiled, kernels=1)
    at = (
        "A step replays a graph and launches 1 more, mostly at `aten::_foreach_copy_` in train "
        "(train.py)"
    )
    assert advice(rows, cause="launch_bound", before=recorded("2.11.0")).fix == snapshot
    before_marks = advice(rows, cause="launch_bound", before=recorded("2.0.1"))
    assert before_marks.fix.startswith(f"{at}. Capture the other launches in the graph")


def test_a_part_that_a_call_cuts_out_of_a_module(advice, snapshot):
    def module(step):
        begin, end = at_launch(step, 0) - 5 * US, at_launch(step, KERNELS)
        return [files.python("nn.Module: Net_0", begin, end)]

    check = read(10, function="check", called="all", operator="aten::is_nonzero")
    finding = advice(steps(module, check))
    assert "29 of 40 launches (forward, `Net`)" in finding.fix
    assert finding.fix == snapshot


def test_another_thread_that_launches(advice):
    def elsewhere(step):
        begin = at_launch(step, 5)
        return [
            row
            for i in range(4)
            for row in work(
                begin + (100 * i + 10) * US,
                begin + (100 * i + 11) * US,
                launched=begin + 100 * i * US,
                correlation=70_000 + 100 * step + i,
                tid=300,
                stream=9,
            )
        ]

    finding = advice([files.thread_name("worker", tid=300), *steps(elsewhere)])
    assert "Launch from one thread: " in finding.fix
    assert "worker" in finding.fix
