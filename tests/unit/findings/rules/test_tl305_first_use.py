"""TL305: the cost of a first use, beside steps of 10 ms that go well."""

import pytest

from tests.build.files import US, call, kernel, launch, operator, python, step
from tracelab.findings.finding import INFO, WARNING

MS = 1_000 * US
CUDNN = "aten::_cudnn_attention_forward"


def steps(count, **longer):
    """Steps of 10 ms, in each of which the GPU works 9 ms of a kernel; `in1=[rows(at)]` adds some.

    The host is in the step's function all the time, and launches 0.95 ms after the step's start.
    """
    rows = []
    for i in range(count):
        at = 10 * MS * i
        rows += [
            step(i, at, at + 10 * MS),
            python("train.py(3): train", at, at + 10 * MS),
            *longer.get(f"in{i}", ordinary)(at),
            kernel(at + MS, at + 10 * MS, correlation=at + 1),
        ]
    return rows


def ordinary(at):
    return [launch(at + 950 * US, at + 955 * US, at + 1)]


def summaries_of(findings, rows):
    found = [x for x in findings(*rows) if x.rule == "TL305"]
    return [(x.cause, x.severity, x.cost_ns / US, x.where.count, x.steps_seen) for x in found]


@pytest.mark.parametrize(
    ("launch_us", "expected"),
    [(199, []), (200, [("first_use", INFO, 200, 1, 1)]), (700, [("first_use", INFO, 700, 1, 1)])],
)
def test_the_first_launch_of_a_kernel_that_takes_long_loads_its_code(findings, launch_us, expected):
    # In the second step a new kernel's launch takes long; the GPU idles from the step's start on.
    def loads(at):
        returned = at + (100 + launch_us) * US
        return [
            launch(at + 100 * US, returned, at + 2),
            kernel(returned + 3 * US, returned + 9 * US, "new_kernel", correlation=at + 2),
            *ordinary(at),
        ]

    assert summaries_of(findings, steps(4, in1=loads)) == expected


def test_a_later_launch_that_takes_long_loads_nothing(findings):
    def slow(at):
        return [launch(at + 100 * US, at + 955 * US, at + 1)]

    assert summaries_of(findings, steps(4, in2=slow)) == []


def test_calls_that_load_modules(findings):
    def loads(at):
        return [call("cuLibraryLoadData", at + 100 * US, at + 600 * US), *ordinary(at)]

    assert summaries_of(findings, steps(4, in2=loads)) == [("first_use", INFO, 500, 1, 1)]


def plans(at):
    """Attention that takes 3 ms of the host; the step's kernel starts behind it."""
    return [operator(CUDNN, at - 2_100 * US, at + 900 * US), *ordinary(at)]


def test_attention_that_is_planned_in_every_step_counts_like_any_other_cost(findings):
    # The operator runs from 2.1 ms before each step to 0.9 after its start: 0.9 ms idle of 10. The
    # launch behind it is late by that, 0.05 ms of idle more.
    rows = steps(5, **{f"in{i}": plans for i in range(1, 5)})
    assert summaries_of(findings, rows) == [("planning", WARNING, 3_800, 4, 4)]
    [finding] = [x for x in findings(*rows) if x.rule == "TL305"]
    assert "enable_cudnn_sdp(False)" in finding.fix


def test_what_is_planned_once_is_for_information(findings):
    assert summaries_of(findings, steps(5, in2=plans)) == [("first_use", INFO, 900, 1, 1)]


def test_an_operator_that_has_its_plan_is_quick(findings):
    def quick(at):
        return [operator(CUDNN, at - 1_099 * US, at + 900 * US), *ordinary(at)]

    assert summaries_of(findings, steps(5, in2=quick)) == []


@pytest.mark.parametrize(
    ("where", "expected"), [("in0", []), ("in2", [("first_use", INFO, 400, 2, 1)])]
)
def test_memory_that_one_step_asks_for(findings, where, expected):
    # Before the first kernel of the file the GPU's idle time is the recording's.
    def grows(at):
        return [
            call("cudaMalloc", at + 100 * US, at + 300 * US),
            call("cudaMalloc", at + 500 * US, at + 700 * US),
            *ordinary(at),
        ]

    found = summaries_of(findings, steps(5, **{where: grows}))
    assert [(cause, severity, count) for cause, severity, _, count, _ in found] == [
        (cause, severity, count) for cause, severity, _, count, _ in expected
    ]
