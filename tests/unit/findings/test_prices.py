"""What findings save, by a replay of hand-made steps.

A step of 915 us, in us: the host launches a kernel of 400 (0 to 5), which runs from 5 to 405; reads
a value of it (10 to 415), is busy until 510, and launches another kernel of 400 (510 to 515), which
runs from 515 to 915. Without the read the GPU never waits: a step takes 800, and two short pauses.
"""

import json
from dataclasses import replace

import pytest

from tests.build import files
from tests.build.rows import US
from tracelab import analyze, load_report, whatif
from tracelab.base.intervals import Intervals
from tracelab.base.options import Options
from tracelab.findings.candidates import Candidate
from tracelab.findings.finding import (
    CRITICAL,
    GENERIC,
    INFO,
    SPECIFIC,
    UNMET,
    WARNING,
    Finding,
    Where,
    add_saving,
    call_site_of,
)
from tracelab.findings.prices import NoPlace
from tracelab.findings.registry import RULES
from tracelab.findings.rule import Rule

STEP = 915


def steps(
    *,
    count=5,
    functions=("read",),
    steps_are_named=True,
    operator="aten::item",
    blocks=lambda _: 64,
):
    """Some such steps; in each of these functions a value is read, one after the other.

    The operator reads it; how many blocks the kernels have is a function of the step.
    """
    events = []
    for number in range(count):
        at = number * STEP
        own = [
            files.python("train.py(3): train", 1, STEP - 402),
            files.launch(0, 5, 10 * number + 1),
            files.kernel(5, 405, correlation=10 * number + 1, grid=[blocks(number), 1, 1]),
            files.launch(510, 515, 10 * number + 2),
            files.kernel(515, 915, correlation=10 * number + 2, grid=[blocks(number), 1, 1]),
        ]
        for index, function in enumerate(functions):
            begin = 10 if index == 0 else 415 + 5 * index
            end = 415 if index == 0 else begin + 4
            own += [
                files.python(f"train.py({9 * index + 9}): {function}", begin - 1, end + 1),
                files.operator(operator, begin, end),
                files.call("cudaStreamSynchronize", begin, end),
            ]
        if steps_are_named:
            own.append(files.step(number, 0, 913))
        events += [shifted(event, at) for event in own]
    return events


def shifted(event, at):
    """An event of a step, in us, as one of the file."""
    return event | {"ts": event["ts"] * US + at, "dur": event["dur"] * US}


@pytest.fixture
def report_of(tmp_path):
    def report(events, options=None, **more):
        return analyze(files.write(tmp_path / "hand.json", events), options or Options(), **more)

    return report


def of_program(report):
    return [finding for finding in report.findings if finding.about == "program"]


def test_a_finding_saves_what_the_replay_says(report_of):
    report = report_of(steps())
    first, *_ = of_program(report)
    assert (first.rule, first.edit) == ("TL101", "unblock:read.item")
    assert first.saves_ns == pytest.approx(115 * US, abs=8 * US)
    assert first.saves_low_ns <= first.saves_ns <= first.saves_high_ns
    assert (first.severity, first.saves_reason) == (CRITICAL, None)
    [savings] = report.savings
    assert savings.step_ns == pytest.approx(STEP * US, abs=2 * US)
    assert savings.saves_ns >= first.saves_ns - US
    assert "unblock:read.item" in savings.edits
    assert not savings.is_of_trace
    assert savings.not_replayed is None


@pytest.mark.parametrize(("unprofiled_us", "saves_us"), [(850, 50), (870, 70)])
def test_a_fix_saves_no_more_than_kernels_leave_of_a_step_without_the_profiler(
    tmp_path, unprofiled_us, saves_us
):
    # GIVEN a step whose kernels take 800 us, and no time of the host to calibrate the replay by
    about = {"tracelab": {"unprofiled_step_ms": unprofiled_us / 1_000}}
    report = analyze(files.write(tmp_path / "hand.json", steps(), before=about))

    # THEN what is predicted of the step with the profiler, 115 us, is not there without it
    [savings] = report.savings
    assert (savings.basis, savings.step_ns) == ("unprofiled", unprofiled_us * US)
    assert savings.saves_ns == saves_us * US
    assert [x.saves_ns for x in of_program(report) if x.rule == "TL101"] == [saves_us * US]


def test_what_steps_differ_by_is_of_the_step_without_the_profiler_too(tmp_path):
    # GIVEN steps of which each is 20 us longer than the one before, for no reason of the read's
    events = []
    for event in steps():
        number = event["ts"] // STEP
        moved = event | {"ts": event["ts"] + 10 * number * (number - 1)}
        if event["name"].startswith("ProfilerStep"):
            moved["dur"] += 20 * number
        events.append(moved)
    # WHEN they take 870 us without the profiler
    recorded = analyze(files.write(tmp_path / "recorded.json", events))
    about = {"tracelab": {"unprofiled_step_ms": 0.87}}
    timed = analyze(files.write(tmp_path / "timed.json", events, before=about))
    # THEN a saving of that is compared with as much less
    (one, *_), (other, *_) = of_program(recorded), of_program(timed)
    share = timed.savings[0].step_ns / recorded.savings[0].step_ns
    assert share == pytest.approx(870 / 953)
    assert one.spread_ns == pytest.approx(40 * US, abs=US)
    assert other.spread_ns == pytest.approx(share * one.spread_ns, abs=1)


def test_without_predictions_findings_have_shares(report_of):
    report = report_of(steps(), Options(prices=False))
    first, *_ = of_program(report)
    assert (first.edit, first.saves_ns, first.saves_reason) == ("unblock:read.item", None, None)
    assert report.savings == ()
    assert report.steady[0].baseline_error is None


def test_findings_of_one_step_save_what_they_save_of_a_steady_step(report_of):
    whole, of_step = report_of(steps()), report_of(steps(), Options(step=2))
    assert of_step.savings == whole.savings
    first, first_of_step = whole.findings[0], of_step.findings[0]
    assert (first_of_step.edit, first_of_step.saves_ns) == (first.edit, first.saves_ns)


def test_without_steps_savings_are_of_the_trace(report_of):
    report = report_of(steps(steps_are_named=False))
    [savings] = report.savings
    assert savings.is_of_trace
    # From the first kernel, 5 us after the host began, to the end of the last.
    assert savings.step_ns == report.windows[0].length_ns == (5 * STEP - 5) * US


def test_what_the_host_did_before_the_first_kernel_is_nobodys_saving(report_of):
    # GIVEN no steps, and 3 ms of allocation before the first launch
    before = [
        files.python("train.py(3): train", 0, 2_999 * US),
        files.call("cudaMalloc", 10, 2_998 * US),
    ]
    later = [event | {"ts": event["ts"] + 3_000 * US} for event in steps(steps_are_named=False)]
    allocate = rule_of("remove:cudaMalloc", function="train", file="train.py")
    plain = report_of(steps(steps_are_named=False))
    # WHEN
    report = report_of([*before, *later], rules=(*RULES, allocate))
    # THEN all savings are those of the trace without it, and to leave it out saves nothing
    assert report.windows[0].length_ns == plain.windows[0].length_ns
    [mine] = [finding for finding in report.findings if finding.rule == "MY1"]
    assert mine.saves_ns == mine.saves_high_ns == 0
    assert [x.saves_ns for x in report.findings if x.rule == "TL101"] == [
        x.saves_ns for x in plain.findings if x.rule == "TL101"
    ]


def test_a_trace_without_launches_says_why(report_of):
    kernels = [files.kernel(x * US, (x + 5) * US) for x in range(0, 100, 10)]
    report = report_of([*kernels, files.operator("aten::item", 0, US)])
    [savings] = report.savings
    assert savings.saves_ns is None
    assert savings.not_replayed


def test_a_saved_report_keeps_what_was_predicted(report_of, tmp_path):
    report = report_of(steps())
    report.save(tmp_path / "report.json")
    assert load_report(tmp_path / "report.json") == report


# --- places ---


def rule_of(edit, *, id="MY1", role=SPECIFIC, is_all=True, part=slice(None), **where):
    """A rule that finds one thing, with this edit, at this place; it has all idle time, or none.

    Or of all of it the gaps of a part.
    """

    def find(context):
        idle = context.idle(0)
        lost = {0: Intervals(idle.starts[part], idle.ends[part])} if is_all else {}
        severity = None if is_all else WARNING
        here = Where(count=1, **where)
        return [Candidate("Title", "cause", here, (), "", lost, {}, severity, edit, role=role)]

    return Rule(id=id, name="", matters="", decides="", find=find)


def finding_of(report_of, rule, **more):
    [finding] = [x for x in report_of(steps(**more), rules=(rule,)).findings if x.rule == "MY1"]
    return finding


@pytest.mark.parametrize("function", ["read", "look"])
def test_the_place_is_the_first_that_is_its_own_alone(report_of, function):
    # GIVEN two functions that read a value: `train` calls both, and `aten::item` is in both
    where = {"operator": "aten::item", "function": function, "file": "train.py", "call": "item"}
    rule = rule_of("unblock:{place}", **where)
    # WHEN / THEN
    finding = finding_of(report_of, rule, functions=("read", "look"))
    assert (finding.edit, finding.saves_reason) == (f"unblock:{function}.item", None)
    assert finding.saves_ns is not None


def test_a_place_that_others_share_says_nothing(report_of):
    rule = rule_of("unblock:{place}", function="train", file="train.py")
    finding = finding_of(report_of, rule, functions=("read", "look"))
    assert (finding.saves_ns, finding.saves_reason) == (None, NoPlace.NO_PLACE)
    assert finding.severity == CRITICAL  # by its share


def test_a_place_that_is_not_in_the_steps_says_nothing(report_of):
    finding = finding_of(report_of, rule_of("unblock:{place}", function="elsewhere"))
    assert (finding.saves_ns, finding.saves_reason) == (None, NoPlace.NOT_IN_STEPS)


def test_an_edit_that_changes_nothing_saves_nothing_known(report_of):
    finding = finding_of(report_of, rule_of("load=0"))
    assert (finding.saves_ns, finding.saves_reason) == (None, NoPlace.NOT_IN_STEPS)


def test_what_saves_nothing_is_for_information(report_of):
    # GIVEN the second of two reads, which blocks for nothing
    where = {"operator": "aten::item", "function": "look", "file": "train.py", "call": "item"}
    rule = rule_of("unblock:{place}", **where)
    finding = finding_of(report_of, rule, functions=("read", "look"))
    assert finding.saves_ns < 0.02 * STEP * US
    assert finding.severity == INFO


def test_what_waiting_for_a_size_costs_is_a_price_where_the_size_never_changes(report_of):
    [same] = sized(report_of, blocks=lambda _: 64)
    assert (same.saves_ns, same.saves_reason) == (pytest.approx(115 * US, abs=8 * US), None)


@pytest.mark.parametrize("blocks", [lambda step: 64 + step, lambda _: "64"])
def test_and_else_a_bound(report_of, blocks):
    """As well where the file is damaged."""
    [bound] = sized(report_of, blocks=blocks)
    assert (bound.saves_ns, bound.saves_low_ns, bound.saves_reason) == (None, None, UNMET)
    assert bound.saves_high_ns >= 107 * US  # 115, and what the replay is uncertain by
    assert bound.severity == WARNING  # 12 % of a step, or nothing


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("blocks", "reason"), [(lambda _: 64, None), (lambda step: 64 + step, UNMET)]
)
def test_a_graph_is_normalized_once_where_it_has_the_same_size_in_each_step(
    report_of, blocks, reason, waits
):
    # GIVEN a step whose read is GCNConv's, with what the CPU does until the next launch, or no read
    events = []
    for event in steps(blocks=blocks):
        if event["name"].endswith(": read"):
            name = "torch_geometric/nn/conv/gcn_conv.py(45): gcn_norm"
            at, correlation = event["ts"] + 451, 1_000 + len(events)
            launch = files.launch(0, 5, correlation), files.kernel(5, 10, correlation=correlation)
            events += [event | {"name": name, "dur": 500}, *(shifted(x, at) for x in launch)]
        elif waits or event["name"] not in ("aten::item", "cudaStreamSynchronize"):
            events.append(event)
    # WHEN / THEN the waits of its masks and its own late launches are one finding
    [finding] = [x for x in of_program(report_of(events)) if x.remedy == "gcn-normalization"]
    assert finding.rule == ("TL101" if waits else "TL301")
    assert (finding.edit, finding.saves_reason) == ("remove:remedy:gcn-normalization", reason)
    # GPU work is 800 of 915 us.
    assert finding.saves_high_ns >= 107 * US


def sized(report_of, **more):
    """The finding of steps that wait for the size of a result."""
    report = report_of(steps(operator="aten::nonzero", **more))
    return [x for x in of_program(report) if x.remedy == "nonzero"]


# --- one cause, one finding ---


def test_findings_of_one_cause_in_one_function_are_one(report_of):
    # The read of a step is an operator's and a call's: two findings of one function have both.
    here, there = {"function": "read"}, {"function": "look"}
    rules = [
        rule_of("unblock:aten::item", id="MY1", **here),
        rule_of("unblock:cudaStreamSynchronize", id="MY1", is_all=False, **here),
        rule_of("unblock:cudaStreamSynchronize", id="MY1", is_all=False, **there),
        rule_of("host:train=0", id="MY1", is_all=False, **here),
    ]
    found = of_program(report_of(steps(), rules=rules))
    assert {(x.where.function, x.edit): x.where.count for x in found} == {
        ("read", "unblock:aten::item + unblock:cudaStreamSynchronize"): 2,
        ("look", "unblock:cudaStreamSynchronize"): 1,
        ("read", "host:train=0"): 1,
    }
    assert found[0].saves_ns == pytest.approx(115 * US, abs=8 * US)


# --- a rebuilding, behind changes of one place ---


def test_findings_of_one_change_at_one_place_are_one(report_of):
    # Two rules blame the same read: its saving is there once, with the time that both have.
    edit = "unblock:cudaStreamSynchronize"
    rules = [
        rule_of(edit, id="MY1", function="read"),
        rule_of(edit, id="MY2", is_all=False, function="read"),
    ]
    report = report_of(steps(), rules=rules)
    alone = report_of(steps(), rules=rules[:1])
    [both], [one] = of_program(report), of_program(alone)
    assert (both.edit, both.saves_ns) == (edit, one.saves_ns)
    assert both.where.count == one.where.count
    assert both.bound_ns >= one.bound_ns


def roles_of(report_of, specific, generic):
    """Rules, their findings' roles and savings in us, of steps with two reads."""
    rules = [
        rule_of(specific, id="ONE1", is_all=False, operator="aten::item", function="read"),
        rule_of(generic, id="ALL1", role=GENERIC),
    ]
    report = report_of(steps(functions=("read", "look")), rules=rules)
    return {x.rule: (x.role, x.saves_ns // US) for x in of_program(report)}, report.savings[0]


def test_a_rebuilding_saves_what_it_adds_to_the_changes_of_one_place(report_of):
    # The first read costs 115 us of a step, the second nothing that is left without the first.
    both, savings = roles_of(
        report_of, "unblock:read.item", "unblock:read.item + unblock:look.item"
    )
    assert list(both) == ["ONE1", "ALL1"]
    assert both["ONE1"] == ("specific", pytest.approx(115, abs=8))
    assert both["ALL1"] == ("rest", pytest.approx(0, abs=8))
    assert savings.saves_ns == pytest.approx(115 * US, abs=8 * US)


def test_a_rebuilding_is_behind_changes_of_one_place_that_are_half_of_the_late_time(report_of):
    # GIVEN two findings of one rule, of which the one of the long gaps saves little
    rules = [
        rule_of("scale=0.9", id="ALL1", part=slice(1, None, 2)),
        rule_of(
            "unblock:read.item + scale=0.1", id="ALL1", part=slice(None, None, 2), role=GENERIC
        ),
    ]
    report = report_of(steps(functions=("read", "look")), rules=rules)
    specific, rest = of_program(report)
    assert (specific.role, rest.role) == ("specific", "rest")
    assert 0.02 * STEP * US < specific.saves_ns < report.savings[0].saves_ns / 3


def test_a_rebuilding_is_first_where_changes_of_one_place_save_less_than_a_third(report_of):
    both, _ = roles_of(report_of, "unblock:look.item", "unblock:read.item")
    assert list(both) == ["ALL1", "ONE1"]
    assert both["ALL1"] == ("generic", pytest.approx(115, abs=8))
    assert both["ONE1"] == ("specific", pytest.approx(0, abs=8))


def copies(*, count=5, step=2_000):
    """Steps that copy a batch of 8 MB and a label of 8 bytes, in us, in one function.

    The copy of the batch (10 to 510) and that of the label (520 to 521) block the host until they
    have ended; then a kernel of 1,000 runs (531 to 1,531), for which the host waits (to 1,536).
    """
    events = []
    for number in range(count):
        own = [
            files.step(number, 0, step - 2),
            files.python("train.py(3): train", 1, step - 4),
            *copied(4, 10, 500, 10 * number + 1, 8_000_000),
            *copied(514, 520, 1, 10 * number + 2, 8),
            files.launch(524, 527, 10 * number + 3),
            files.kernel(531, 1_531, correlation=10 * number + 3),
            files.call("cudaDeviceSynchronize", 530, 1_536),
        ]
        events += [shifted(event, number * step) for event in own]
    return events


def copied(begin, at, length, correlation, size):
    """A copy of pageable memory of `length` at some moment, of which the call begins earlier."""
    end = at + length
    return [
        files.operator("aten::to", begin - 1, end + 2),
        files.call("cudaMemcpyAsync", begin, end + 1, correlation=correlation),
        files.copy(
            at, end, "Memcpy HtoD (Pageable -> Device)", correlation=correlation, bytes=size
        ),
    ]


def test_two_findings_of_one_call_site_save_what_their_own_copies_cost(report_of):
    # GIVEN two findings of one function and operator: one of 8 MB, one of 8 bytes
    report = report_of(copies())
    batch, label = (
        next(x for x in report.findings if (x.rule, x.remedy) == ("TL102", remedy))
        for remedy in ("pageable-batch", None)
    )
    assert call_site_of(batch.where) == call_site_of(label.where)
    # THEN the batch saves the 500 us of its copy, give or take its launch,
    assert batch.saves_ns == pytest.approx(500 * US, abs=10 * US)
    # and the label no more than its call takes, 8 us.
    assert 0 < label.saves_ns <= 8 * US
    assert batch.edit != label.edit
    # AND `whatif` says the same of each, by its number
    for finding in (batch, label):
        number = report.findings.index(finding) + 1
        [predicted] = whatif(report.traces[0].path, fixes=number).predictions
        assert predicted.step_ns - predicted.predicted_ns == finding.saves_ns


def test_a_rebuilding_stands_behind_a_change_that_it_needs_first(report_of):
    # The read saves less than a third of the two: kernels that take a tenth as long save the rest.
    both, _ = roles_of(report_of, "unblock:read.item", "unblock:read.item + scale=0.1")
    assert list(both) == ["ONE1", "ALL1"]
    assert both["ALL1"][0] == "rest"
    assert both["ALL1"][1] > 2 * both["ONE1"][1]


# --- severity ---


def finding(severity=WARNING, spread_ns=None):
    return Finding(
        rule="TL101",
        title="Title",
        severity=severity,
        rank=0,
        step=None,
        cause="host_sync",
        cost_ns=50,
        bound_ns=50,
        where=Where(1),
        evidence=(),
        fix="",
        spread_ns=spread_ns,
    )


@pytest.mark.parametrize(
    ("saved", "spread", "severity"),
    [
        ((100, 90, 110), None, CRITICAL),
        ((20, 15, 30), None, WARNING),
        ((19, 15, 30), None, INFO),
        ((20, 15, 30), 25, INFO),  # steps differ by more
        ((0, 0, 99), None, INFO),
        ((1, 1, 100), None, WARNING),  # it may be anything: by its share
        ((300, 19, 330), None, WARNING),  # what is certain is next to nothing
        ((300, 20, 330), None, CRITICAL),
        ((100, 0, 200), None, WARNING),  # it may be nothing: a warning if its share is one
        ((19, 0, 200), None, INFO),
        ((0, 0, 100), None, INFO),
    ],
)
def test_severity_is_that_of_the_saving(saved, spread, severity):
    judged = add_saving(finding(spread_ns=spread), 1_000, saved)
    assert judged.severity == severity
    assert (judged.saves_ns, judged.saves_low_ns, judged.saves_high_ns) == saved


def test_what_may_save_next_to_nothing_is_a_warning_whatever_its_share():
    assert add_saving(finding(CRITICAL), 1_000, (320, 4, 330)).severity == WARNING
    assert add_saving(finding(INFO), 1_000, (320, 4, 330)).severity == INFO


@pytest.mark.parametrize(
    ("saved", "slowed", "severity"),
    [
        ((50, 0, 60), 1.2, WARNING),
        ((50, 0, 60), 5, INFO),  # who is late there is not known
        ((100, 0, 200), 5, WARNING),
        ((50, 40, 60), 5, WARNING),
    ],
)
def test_a_slow_recording_shows_no_saving_that_may_be_nothing(saved, slowed, severity):
    assert add_saving(finding(), 1_000, saved, slowed).severity == severity


def test_a_rebuilding_that_may_save_nothing_is_no_alarm_whatever_its_share():
    generic = replace(finding(CRITICAL), role=GENERIC)
    assert add_saving(generic, 1_000, (300, 0, 600)).severity == INFO
    assert add_saving(generic, 1_000, (300, 200, 600)).severity == CRITICAL


def test_a_report_of_before_there_were_predictions_loads(report_of, tmp_path):
    report, path = report_of(steps(), Options(prices=False)), tmp_path / "report.json"
    data = json.loads(report.to_json())
    del data["savings"]
    for row in data["findings"]:
        for name in list(row):
            if name.startswith(("saves_", "spread_", "edit")):
                del row[name]
    path.write_text(json.dumps(data))
    old = load_report(path)
    assert old.savings == ()
    assert [x.severity for x in old.findings] == [x.severity for x in report.findings]
    assert "saves" not in str(old)
