"""What programs that replay CUDA graphs are told; the fixed twin of each is told nothing."""

import itertools

import pytest

from tests.build import cupti_collector, replays
from tests.build.files import write
from tests.figures import figures
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.findings.finding import INFO


@pytest.fixture
def alarms(tmp_path):
    """The findings above info about a program, in Kineto's layout or in the newer collector's."""

    def find(program, *, collector=False):
        path, events = tmp_path / "hand.json", replays.run(program)
        if collector:
            cupti_collector.write(cupti_collector.rewritten({"traceEvents": events}), path)
        else:
            write(path, events)
        report = analyze(str(path), Options(cache=False))
        return [x for x in report.findings if x.severity != INFO]

    return find


@pytest.mark.parametrize(
    ("program", "rule", "cause", "remedy", "function", "edit"),
    [
        (replays.late, "TL301", "slow_host", None, "schedule", "python:schedule=0"),
        (replays.small_graphs, "TL301", "launch_bound", None, "decode", "graph"),
        (replays.piecewise, "TL301", "launch_bound", None, "decode", "graph"),
        (
            replays.read_each_step,
            "TL101",
            "host_sync",
            "replay-result-read",
            "decode",
            "unblock:decode.item",
        ),
        (
            replays.synchronized,
            "TL101",
            "host_sync",
            "replays-synchronized",
            "decode",
            "unblock:decode.synchronize",
        ),
        (
            replays.copied_and_awaited,
            "TL101",
            "host_sync",
            "replay-result-read",
            "decode",
            "unblock:decode.synchronize",
        ),
        (
            replays.copied_and_synchronized,
            "TL101",
            "host_sync",
            "replay-result-read",
            "decode",
            "unblock:decode.synchronize",
        ),
        (
            replays.awaited_behind_too_slowly,
            "TL301",
            "slow_host",
            None,
            "sample",
            "python:sample=0",
        ),
        (replays.copied_first, "TL201", "same_stream", None, "decode", "prefetch:decode"),
        (replays.copied_late, "TL201", "event_wait", None, "decode", "prefetch:decode"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_defect_is_the_only_finding_with_its_place_and_price(
    alarms, program, rule, cause, remedy, function, edit
):
    [finding] = alarms(program)
    assert (finding.rule, finding.cause, finding.remedy) == (rule, cause, remedy)
    assert (finding.where.function, finding.edit) == (function, edit)
    assert finding.saves_ns > 0
    assert "reduce-overhead" not in finding.fix  # it uses graphs already


@pytest.mark.parametrize(
    "program",
    [replays.late, replays.piecewise, replays.read_each_step, replays.copied_late, replays.ahead],
    ids=lambda program: program.__name__,
)
def test_findings_are_the_same_in_the_collectors_layout(alarms, program):
    def told(findings):
        return [(x.rule, x.cause, x.remedy, x.edit, x.saves_ns, x.fix) for x in findings]

    assert told(alarms(program, collector=True)) == told(alarms(program))


@pytest.mark.parametrize(
    "program",
    [
        replays.ahead,
        replays.in_a_row,
        replays.one_graph,
        replays.whole,
        replays.copied_ahead,
        replays.awaited_behind,
    ],
    ids=lambda program: program.__name__,
)
def test_fixed_twins_are_told_nothing(alarms, program):
    assert alarms(program) == []


def test_without_python_functions_the_work_is_before_the_replay(alarms, monkeypatch, snapshot):
    # GIVEN a recording without stacks
    events = [x for x in replays.run(replays.late) if x["cat"] != "python_function"]
    monkeypatch.setattr(replays, "run", lambda _: events)

    # THEN it is known that the host did not launch, and not what it did
    [finding] = alarms(replays.late)
    assert (finding.rule, finding.cause, finding.edit) == ("TL301", "slow_host", None)
    assert finding.title == snapshot


def test_several_graphs_are_to_become_one(alarms, snapshot):
    [finding] = alarms(replays.small_graphs)
    assert finding.where.call == "replay"
    assert figures(finding.fix) == ["8"]
    assert finding.fix == snapshot


def test_what_is_launched_beside_graphs_is_to_be_captured(alarms, snapshot):
    [finding] = alarms(replays.piecewise)
    assert figures(finding.fix) == ["4", "12"]
    assert finding.fix == snapshot


def test_one_replay_a_step_that_is_launched_too_late_is_to_hold_several_steps(alarms, snapshot):
    # GIVEN a graph of 6 us whose call takes 10
    [finding] = alarms(lambda machine: machine.replays([2, 2]))

    # THEN nothing can be merged, and nothing is predicted
    assert (finding.rule, finding.cause, finding.edit) == ("TL301", "launch_bound", None)
    assert finding.fix == snapshot
    assert "Capture several steps in one graph: " in finding.fix


def test_a_graph_does_not_go_beyond_a_call_that_waits(alarms, snapshot):
    # GIVEN small graphs, and a synchronize between two halves of them
    def program(machine):
        replays.small_graphs(machine)
        machine.synchronizes()
        replays.small_graphs(machine)

    fixes = {finding.rule: finding.fix for finding in alarms(program)}
    assert figures(fixes["TL301"]) == ["16", "1", "2"]
    assert fixes["TL301"] == snapshot


def test_reads_of_a_program_that_launches_kernel_by_kernel_are_as_before(alarms):
    # GIVEN as many kernels launched one by one as in the graph
    def program(machine):
        machine.replays([5] * 8)
        machine.launches([5] * 12)
        machine.reads()

    [remedy] = {finding.remedy for finding in alarms(program) if finding.rule == "TL101"}
    assert remedy == "scalar-read"


def test_a_wait_for_a_result_is_never_to_be_left_out(alarms):
    # GIVEN the same waits, of which the file does not say what they waited for
    def unrecorded(program):
        def as_recorded(machine):
            program(machine)
            machine.events[:] = [x for x in machine.events if x["name"] != "Event Sync"]

        return as_recorded

    # THEN the copy behind the next replay was under way when they returned
    for program in (replays.awaited_behind, replays.awaited_behind_too_slowly):
        assert "TL101" not in {finding.rule for finding in alarms(unrecorded(program))}
    [finding] = alarms(unrecorded(replays.copied_and_awaited))
    assert (finding.rule, finding.remedy) == ("TL101", "replay-result-read")


def test_a_wait_of_replays_and_of_a_copy_is_to_come_later(alarms):
    # GIVEN a copy in the stream of the replays, and waits of which each is for one of them
    def program(machine):
        machine.replays([10] * 5)
        machine.copies_out()
        machine.synchronizes()
        machine.replays([10] * 5)
        machine.synchronizes()

    # THEN the places, whose lines are not known, are one: what it says must hold of both
    [finding] = [x for x in alarms(program) if x.rule == "TL101"]
    assert finding.remedy == "replay-result-read"


@pytest.mark.parametrize(
    ("behind", "expected"),
    [(0, {("TL101", "synchronize-for-copy")}), (1, set())],
    ids=["at once", "one step late"],
)
def test_a_wait_for_a_copy_of_an_eager_program_is_not_to_be_left_out(alarms, behind, expected):
    # GIVEN kernels that are over soon, and the copy of their result of this step or the one before
    def program(machine):
        machine.launches([30] * 4)
        machine.copies_out()
        machine.waits_for_event(behind)
        machine.works(60, "serve.py(20): sample")

    assert {(finding.rule, finding.remedy) for finding in alarms(program)} == expected


@pytest.mark.parametrize(("work", "cause"), [(19, "launch_bound"), (21, "slow_host")])
def test_host_work_between_replays_is_named_from_20_us_on(alarms, work, cause):
    # GIVEN a graph of 1 us that starts 6 us after its call; from its end on the host works on, and
    # takes 3 us from there to the next `replay`
    def program(machine):
        machine.replays([1])
        machine.works(6 + 1 + work - 3, "serve.py(20): sample")

    # THEN
    assert {(x.rule, x.cause) for x in alarms(program)} == {("TL301", cause)}


def test_what_changes_from_step_to_step_is_said_before_it_is_captured(alarms, snapshot):
    # GIVEN a kernel beside the graph that is another one in each step
    names = itertools.count()

    def program(machine):
        machine.replays([2] * 10)
        machine.launches([4] * 8, name=f"aten::of_length_{next(names)}")

    [finding] = alarms(program)
    assert finding.edit == "graph"
    assert finding.fix == snapshot
    assert ": `of_length_" in finding.fix


def test_the_first_launch_of_a_file_without_steps_counts(alarms, monkeypatch, snapshot):
    # GIVEN a graph of 14 kernels, whose launch is before the first activity, and 10 launches
    def program(machine):
        machine.replays([1] * 14)
        machine.launches([1] * 10)

    events = [x for x in replays.run(program, steps=1) if "ProfilerStep" not in x["name"]]
    monkeypatch.setattr(replays, "run", lambda _: events)

    # THEN most of it is replayed
    [finding] = alarms(program)
    assert {"10"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


def test_without_steps_nobody_knows_what_is_one_graph(alarms, monkeypatch, snapshot):
    events = [x for x in replays.run(replays.small_graphs) if "ProfilerStep" not in x["name"]]
    monkeypatch.setattr(replays, "run", lambda _: events)
    [finding] = alarms(replays.small_graphs)
    assert finding.edit is None
    assert finding.fix == snapshot
