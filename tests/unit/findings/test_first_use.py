"""What a program does once is one finding, and in the saving of no other."""

import pytest

from tests.build import rows
from tests.build.files import call, kernel, launch, operator, step, write
from tests.build.repeated_scenes import Scene
from tests.build.rows import US
from tracelab import analyze, whatif as predict
from tracelab.base.options import Options
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import find_first_use, recognize
from tracelab.measures.idle_causes import bubbles
from tracelab.simulate.recorded import record_program, whole
from tracelab.simulate.sites import Sites

MS = 1_000 * US
LOADS = 343 * MS


def scene_of(*some):
    """A file without steps, and what comes once in it."""
    graph = rows.graph(*some)
    program = whole(graph, record_program(graph))
    once = find_first_use(graph, recognize(graph, REMEDIES), bubbles(graph))
    return Scene(program, Sites(graph, None, program, first_use=once.event_id)), once


def launches(count, *, name="gemm", at=0, correlation=0):
    """Launches of 5 us each 25 us, with a kernel of 3 us right behind."""
    for i in range(count):
        begin = at + 25 * US * i
        yield rows.operator("aten::add", begin, begin + 6 * US)
        yield rows.launch(begin, begin + 5 * US, correlation + i)
        yield rows.kernel(begin + 8 * US, begin + 11 * US, name, correlation=correlation + i)


def with_a_first_launch(before=40, after=40):
    """Launches of one kernel, 343 ms for the first launch of another one, and more of that."""
    at = 25 * US * before
    return [
        *launches(before),
        rows.launch(at, at + LOADS, before),
        rows.kernel(at + LOADS + 3 * US, at + LOADS + 6 * US, "new", correlation=before),
        *launches(after, name="new", at=at + LOADS + 20 * US, correlation=before + 1),
    ]


@pytest.mark.parametrize("edit", ["graph", "fuse", "host=0", "host:cudaLaunchKernel=0"])
def test_no_edit_takes_the_first_launch_of_a_kernel_away(edit):
    scene, once = scene_of(*with_a_first_launch())
    assert once.event_id.tolist() == [3 * 40]
    for ns in (scene.step_ns(edit), *scene.bounds_ns(edit)):
        assert LOADS <= ns < LOADS + 2.1 * MS  # all else takes no more than 2 ms


def test_a_graph_saves_the_launches_beside_a_first_use():
    # 40 launches each 25 us before it, and 40 after it, of which a graph leaves 10 us and the gaps.
    scene, _ = scene_of(*with_a_first_launch())
    saved_us = (scene.step_ns() - scene.step_ns("graph")) / US
    assert 80 * (25 - 3 - 1) < saved_us < 80 * 25


def test_a_trace_of_first_use_is_one_finding_and_nothing_is_predicted(tmp_path):
    events = [
        launch(0, 5 * US, 1),
        kernel(0, 10 * US, correlation=1),
        launch(MS, 21 * MS, 2),
        kernel(21 * MS, 21 * MS + 10 * US, "new", correlation=2),
        operator("aten::addmm", 22 * MS, 37 * MS),
        call("cudaFree", 23 * MS, 30 * MS),
        call("cudaMalloc", 30 * MS, 31 * MS),
        launch(36 * MS, 36 * MS + 5 * US, 3),
        kernel(36 * MS + 10 * US, 36 * MS + 20 * US, correlation=3),
        operator("aten::addmm", 38 * MS, 38 * MS + 10 * US),
        launch(38 * MS + 2 * US, 38 * MS + 5 * US, 4),
        kernel(38 * MS + 10 * US, 38 * MS + 20 * US, correlation=4),
    ]
    path = write(tmp_path / "first.json", events)
    report = analyze(path)
    [found] = [x for x in report.findings if x.about == "program"]
    assert (found.rule, found.cause, found.edit) == ("TL305", "first_use", None)
    # It loads a kernel's code for 20 ms, and cuBLAS begins for 15 but for a kernel of 10 us.
    assert found.bound_ns == (20 + 15) * MS - 10 * US
    assert predict(path, edits=["graph"]).predictions == ()


def frees_in_runs(*runs, name="aten::addmm"):
    """Six runs of an operator for 3 ms, of which some free memory for 2 ms and ask for more."""
    some = [launch(0, 5 * US, 90), kernel(6 * US, MS, correlation=90)]
    for i in range(6):
        at = (1 + 4 * i) * MS
        some.append(operator(name, at, at + 3 * MS))
        if i in runs:
            some.append(call("cudaFree", at + 100 * US, at + 2_100 * US))
            some.append(call("cudaMalloc", at + 2_200 * US, at + 2_300 * US))
        some.append(launch(at + 2_900 * US, at + 2_905 * US, i + 1))
        some.append(kernel(at + 2_910 * US, at + 4 * MS, correlation=i + 1))
    return some


@pytest.mark.parametrize(
    ("runs", "once", "goes_on"),
    [((0,), True, False), (range(6), False, True), ((3, 4), False, True)],
)
def test_what_is_freed_in_the_first_run_of_an_operator_begins_a_library(
    findings, runs, once, goes_on
):
    rules = [x.rule for x in findings(*frees_in_runs(*runs))]
    assert (("TL305" in rules), ("TL103" in rules)) == (once, goes_on)


def test_memory_that_is_freed_in_each_run_is_no_plan(findings):
    # Of the 3 ms of each run the memory takes 2.1.
    found = findings(*frees_in_runs(*range(6), name="aten::miopen_convolution"))
    assert [x.rule for x in found if x.remedy and "plan" in x.remedy] == []


def test_a_loop_that_empties_the_cache_goes_on(findings):
    # Outside all operators, each 4 ms, with steps: memory is given back and asked for again.
    some = []
    for i in range(5):
        at = 4 * i * MS
        some += [
            step(i, at, at + 4 * MS),
            call("cudaFree", at + 100 * US, at + 1_100 * US),
            operator("aten::addmm", at + 1_200 * US, at + 1_900 * US),
            call("cudaMalloc", at + 1_300 * US, at + 1_800 * US),
            launch(at + 1_850 * US, at + 1_855 * US, i + 1),
            kernel(at + 1_860 * US, at + 4 * MS, correlation=i + 1),
        ]
    found = [(x.rule, x.where.count) for x in findings(*some, options=Options())]
    assert ("TL103", 8) in found
    assert "TL305" not in [rule for rule, _ in found]


def test_what_is_loaded_in_something_that_goes_on_is_no_first_use():
    # In each of four steps something is compiled, which loads a module.
    some = []
    for i in range(5):
        at = 10 * i * MS
        some += [
            rows.step(i, at, at + 10 * MS),
            rows.operator("entire_frame_compile (dynamo_timed)", at + MS, at + 8 * MS),
            rows.call("cuModuleLoadData", at + 2 * MS, at + 5 * MS),
            *launches(1, at=at + 9 * MS, correlation=i),
        ]
    graph = rows.graph(*some)
    recognized = recognize(graph, REMEDIES)
    assert {"recompilation", "kernel-loading"} <= set(recognized.places)
    assert find_first_use(graph, recognized, bubbles(graph)).parts == ()


def test_memory_of_a_loop_that_empties_the_cache_before_its_first_recorded_call_goes_on(findings):
    # The step before the recording emptied the cache, so its first step asks for memory again.
    some = []
    for i in range(5):
        at = 4 * i * MS
        some += [
            step(i, at, at + 4 * MS),
            launch(at, at + 5 * US, 2 * i),
            kernel(at + 10 * US, at + 100 * US, correlation=2 * i),
            call("cudaMalloc", at + 200 * US, at + 1_700 * US),
            launch(at + 1_850 * US, at + 1_855 * US, 2 * i + 1),
            kernel(at + 1_860 * US, at + 3 * MS, correlation=2 * i + 1),
            call("cudaFree", at + 3_100 * US, at + 3_900 * US),
        ]
    [found] = [x for x in findings(*some) if x.cause == "allocator"]
    assert found.where.count == 5 + 4  # behind the last call the GPU has no more work in the file
    assert [x for x in findings(*some) if x.rule == "TL305"] == []
