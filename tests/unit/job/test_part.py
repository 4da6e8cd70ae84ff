"""What a rank's file gives to its job. Times are in microseconds unless a test says otherwise."""

from dataclasses import replace

import numpy as np
from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import (
    US,
    annotation,
    call,
    comm,
    copy,
    graph,
    kernel,
    launch,
    operator,
    step,
)
from tests.examples import examples
from tests.reference.ticks import TICK, Account, scaled
from tracelab.job.part import Work, rank_part
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import bubbles
from tracelab.measures.idle_culprits import idle_culprits
from tracelab.model.collectives import collectives
from tracelab.model.kernel_kinds import Kind
from tracelab.model.phases import Phases
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import Baseline


def part_of(*rows):
    made_graph = graph(*rows)
    idle = bubbles(made_graph)
    return rank_part(
        made_graph,
        Phases(made_graph.host),
        collectives(made_graph.host.timeline),
        idle,
        idle_culprits(made_graph, idle),
        exposed(made_graph),
        SourceLines(()),
        3,
        made_graph.host.timeline.windows,
        Baseline(),
        {},
    )


def in_us(*rows):
    return part_of(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))


@examples(100)
@given(random_rows())
def test_work_between_two_moments_adds_up_to_the_time_between_them(rows):
    account = Account(rows)
    if not account.devices:
        return

    part = part_of(*scaled(rows))

    first = account.windows[0].start
    spans = account.of(part.device)
    busy = account.busy(spans)
    compute = account.busy(account.of(part.device, Kind.COMPUTE))
    [before] = part.work_before(np.array([first * TICK]))
    for moments_ns in (part.start_ns, part.end_ns):
        work_ns = part.work_before(moments_ns) - before
        for moment, spent in zip((moments_ns // TICK).tolist(), work_ns.tolist(), strict=True):
            assert sum(spent) == (moment - first) * TICK
            assert spent[Work.COMPUTE] == TICK * sum(t < moment for t in compute)
            idle = sum(t not in busy for t in range(first, moment))
            assert sum(spent[Work.HOST_BLOCKED :]) == TICK * idle


def test_work_before_a_collective_is_what_the_device_did():
    # compute 0-10, idle while the host loads 10-30, copy 30-34, compute 34-40, all-reduce 40-50.
    part = in_us(
        launch(-4, -3, 1),
        kernel(0, 10, correlation=1),
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 29),
        launch(29, 30, 2, name="cudaMemcpyAsync"),
        copy(30, 34, correlation=2),
        launch(31, 32, 3),
        kernel(34, 40, correlation=3),
        launch(33, 34, 4),
        comm(40, 50, correlation=4),
    )

    [start], [end] = part.work_before(part.start_ns) // US, part.work_before(part.end_ns) // US
    assert dict(zip(Work, start.tolist(), strict=True)) == {
        Work.COMPUTE: 16,
        Work.COMM: 0,
        Work.COPY: 4,
        Work.HOST_BLOCKED: 0,
        Work.INPUT: 19,
        Work.HOST_BUSY: 0,
        Work.LAUNCH: 1,
        Work.OTHER_IDLE: 0,
    }
    assert (end - start).tolist() == [0, 10, 0, 0, 0, 0, 0, 0]
    culprit = part.culprits[part.culprit_index[0]]
    assert (culprit.work, culprit.call) == (
        Work.INPUT,
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    )
    assert part.culprit_ns.tolist() == [19_000]
    assert (part.rank, part.device, len(part)) == (3, 0, 1)


def test_culprit_is_the_longest_since_the_operation_before():
    rows = []
    now = 0
    for number, (name, waited) in enumerate(
        (("cudaStreamSynchronize", 20), ("cudaDeviceSynchronize", 5), ("cudaEventSynchronize", 30))
    ):
        rows += [launch(now, now + 1, number + 1), comm(now + 2, now + 6, correlation=number + 1)]
        rows.append(call(name, now + 3, now + 6 + waited))
        now += 6 + waited
    rows += [launch(now, now + 1, 9), comm(now + 2, now + 6, correlation=9)]

    part = in_us(*rows)

    found = [part.culprits[i].call if i != ABSENT else None for i in part.culprit_index]
    assert found == [
        None,
        "cudaStreamSynchronize",
        "cudaDeviceSynchronize",
        "cudaEventSynchronize",
    ]
    assert {part.culprits[i].work for i in part.culprit_index if i != ABSENT} == {Work.HOST_BLOCKED}


def test_exposed_pieces_are_those_of_each_operation():
    part = in_us(
        comm(0, 20, stream=9),
        kernel(5, 10),
        kernel(15, 30),
        comm(40, 45, stream=9),
        copy(50, 60, stream=11),
    )

    pieces = (part.exposed_index, part.exposed_start_ns // US, part.exposed_end_ns // US)
    assert list(zip(*(column.tolist() for column in pieces), strict=True)) == [
        (0, 0, 5),
        (0, 10, 15),
        (1, 40, 45),
    ]


def test_steps_are_those_of_the_file():
    part = in_us(
        step(4, 0, 30), launch(1, 2, 1), comm(3, 9, correlation=1),
        step(5, 30, 60), launch(31, 32, 2), comm(33, 39, correlation=2),
    )  # fmt: skip

    assert part.steps.number.tolist() == [4, 5]
    assert (part.steps.start_ns // US).tolist() == [0, 30]
    assert (part.steps.end_ns // US).tolist() == [30, 60]
    assert part.steps.is_steady.tolist() == [True, True]
    assert part.step_index.tolist() == [0, 1]


def test_file_without_communication_gives_an_empty_part():
    part = in_us(kernel(0, 10))

    assert len(part) == 0
    assert part.work_before(part.start_ns).shape == (0, len(Work))
    assert not len(part.exposed_index)


def test_compute_is_added_up_by_its_call_site_in_the_middle_steady_step():
    rows = []
    for number in range(3):
        now = 100 * number
        rows += [
            step(number, now, now + 60),
            operator("aten::mm", now + 1, now + 6),
            launch(now + 2, now + 3, 10 * number + 1),
            launch(now + 4, now + 5, 10 * number + 2),
            operator("aten::add", now + 7, now + 9),
            launch(now + 7, now + 8, 10 * number + 3),
            kernel(now + 10, now + 20 + number, correlation=10 * number + 1),
            kernel(now + 30, now + 35, correlation=10 * number + 2),
            kernel(now + 40, now + 47, correlation=10 * number + 3),
            launch(now + 50, now + 51, 10 * number + 4),
            comm(now + 52, now + 60, correlation=10 * number + 4),
        ]

    part = in_us(*rows)

    by_operator = {
        site.operator: ns // US
        for site, ns in zip(part.work_sites, part.work_site_ns.tolist(), strict=True)
    }
    assert by_operator == {"aten::mm": 16, "aten::add": 7}
