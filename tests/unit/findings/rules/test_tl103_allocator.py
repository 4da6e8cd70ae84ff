"""TL103: memory goes back to CUDA and is asked for again, at the cost of [110, 135) us."""

import pytest

from tests.build.files import HOST, US, call, kernel, launch, operator, python, step, thread_name
from tests.build.finding_events import OTHER_THREAD, work
from tracelab.findings.finding import CRITICAL, WARNING

FREES_AND_ALLOCATES = (
    *work(10 * US, 110 * US, launched=0, correlation=1),
    call("cudaFree", 4 * US, 112 * US),
    operator("aten::empty", 112 * US, 131 * US),
    call("cudaMalloc", 113 * US, 130 * US),
    *work(135 * US, 335 * US, launched=132 * US, correlation=2),
)


def test_allocator(findings):
    [finding] = findings(*FREES_AND_ALLOCATES)

    assert (finding.rule, finding.cause, finding.severity) == ("TL103", "allocator", WARNING)
    assert finding.bound_ns == 25 * US
    assert (finding.where.api, finding.where.operator, finding.where.count) == ("cudaFree", None, 2)
    assert finding.edit == "remove:cudaFree + remove:cudaMalloc"


def steps_that_allocate(*allocating):
    """Four steps of 1,000 us, in each of which the GPU idles for 400; these ask for memory then."""
    rows = []
    for i in range(4):
        at = 1_000 * i
        rows += [
            step(i, at * US, (at + 1_000) * US),
            launch((at + 390) * US, (at + 395) * US, i + 1),
            kernel((at + 400) * US, (at + 1_000) * US, correlation=i + 1),
        ]
        if i in allocating:
            rows.append(operator("aten::empty", (at + 20) * US, (at + 280) * US))
            rows.append(call("cudaMalloc", (at + 30) * US, (at + 230) * US))
    return rows


@pytest.mark.parametrize("allocating", [(1, 3), (0, 1, 2, 3)])
def test_blames_who_allocates_if_nobody_frees(findings, allocating):
    # In the first step the GPU's idle time has no beginning in the file.
    finding = next(x for x in findings(*steps_that_allocate(*allocating)) if x.cause == "allocator")

    count = len(set(allocating) - {0})
    assert (finding.rule, finding.bound_ns) == ("TL103", 200 * US * count)
    assert (finding.where.api, finding.where.operator) == ("cudaMalloc", "aten::empty")


@pytest.mark.parametrize("allocating", [(1,), (2,)])
def test_memory_that_few_steps_ask_for_and_nobody_gives_back_is_a_first_use(findings, allocating):
    rules = [(x.rule, x.cause) for x in findings(*steps_that_allocate(*allocating))]
    assert ("TL305", "first_use") in rules
    assert "TL103" not in [rule for rule, _ in rules]


def test_only_step_that_frees_and_allocates_is_no_first_use(findings):
    found = findings(step(0, 0, 400 * US), *FREES_AND_ALLOCATES)

    assert ("TL103", 25 * US) in [(x.rule, x.bound_ns) for x in found]


def test_is_silent_where_the_queue_is_full(summaries):
    rows = [
        *work(10 * US, 110 * US, launched=0, correlation=1),
        *work(110 * US, 310 * US, launched=3 * US, correlation=2),
    ]

    assert (
        summaries(
            *rows,
            call("cudaMalloc", 6 * US, 112 * US),
            *work(310 * US, 360 * US, launched=114 * US, correlation=3),
        )
        == []
    )


# While another thread allocates from 105 to 480, a launch call lasts from 108 to 490 instead of 2:
# of the 1,000 us the GPU is idle from 110 to 495.


def stalled_launch(*, allocates="cudaHostAlloc", name="pt_data_pin", pid=HOST):
    rows = [
        *work(10 * US, 110 * US, launched=0, correlation=1),
        launch(108 * US, 490 * US, 2),
        kernel(495 * US, 1_010 * US, correlation=2),
        call(allocates, 105 * US, 480 * US, pid=pid, tid=OTHER_THREAD),
    ]
    return [*rows, thread_name(f"thread 300 ({name})", pid=pid, tid=OTHER_THREAD)]


def test_allocation_of_dataloaders_pinning_thread_that_stalled_a_launch(findings, snapshot):
    [finding] = findings(*stalled_launch())

    assert (finding.rule, finding.cause, finding.severity) == ("TL103", "allocator", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (382 * US, 375 * US)  # it lasted for 375
    assert (finding.where.api, finding.where.count, finding.evidence) == ("cudaHostAlloc", 1, (4,))
    assert finding.title == snapshot
    assert finding.fix == snapshot


def test_allocation_of_any_other_thread_that_stalled_a_launch(findings):
    [finding] = findings(*stalled_launch(allocates="cudaMalloc", name="loader"))

    assert (finding.rule, finding.bound_ns) == ("TL103", 375 * US)
    assert "DataLoader" not in finding.fix


def test_tells_stalled_launches_from_what_the_launching_thread_allocates(findings):
    # The main thread's own cudaFree lasts from 520 to 1,120; the GPU is idle from 1,010 to 1,130.
    stalled_and_own = findings(
        *stalled_launch(),
        call("cudaFree", 520 * US, 1_120 * US),
        *work(1_130 * US, 1_180 * US, launched=1_125 * US, correlation=3),
    )

    assert [(x.rule, x.where.api, x.where.count, x.bound_ns / US) for x in stalled_and_own] == [
        ("TL103", "cudaHostAlloc", 1, 375),
        ("TL103", "cudaFree", 1, 120),
    ]


def test_does_not_blame_another_process(summaries):
    # Nothing else in the file tells why the launch took so long.
    assert "TL103" not in [rule for rule, *_ in summaries(*stalled_launch(pid=HOST + 1))]


@pytest.mark.parametrize("allocating", [False, True])
def test_an_allocation_of_another_thread_beside_ordinary_launches_is_no_alarm(alarms, allocating):
    # Each step of 1,000 us waits 150 for Python, whose launch takes 5 while memory is pinned.
    rows = []
    for i in range(4):
        at = 1_000 * i
        rows += [
            python("train.py(3): step", at * US, (at + 990) * US),
            launch((at + 140) * US, (at + 145) * US, i + 1),
            kernel((at + 150) * US, (at + 1_000) * US, correlation=i + 1),
        ]
        if allocating:
            rows.append(call("cudaHostAlloc", (at + 10) * US, (at + 310) * US, tid=200))
    assert [(rule, cause) for rule, cause, _ in alarms(*rows)] == [("TL301", "launch_bound")]


def test_allocations_of_the_first_step_are_a_warm_up(alarms):
    rows = []
    for i in range(3):
        at = 1_000 * i
        rows += [
            step(i, at * US, (at + 990) * US),
            launch((at + 300) * US, (at + 305) * US, i + 1),
            kernel((at + 310) * US, (at + 960) * US, correlation=i + 1),
        ]
    rows.append(call("cudaMalloc", 20 * US, 270 * US))
    rows += [launch(2 * US, 4 * US, 90), kernel(5 * US, 15 * US, "first", correlation=90)]
    assert [rule for rule, *_ in alarms(*rows) if rule == "TL103"] == []
