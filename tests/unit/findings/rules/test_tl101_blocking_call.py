"""TL101: the GPU computes until 110 us and again from 130 on, because the host waited until 116."""

import pytest

from tests.build.files import US, annotation, call, copy, kernel, launch, operator, python
from tests.build.finding_events import D2H_PAGEABLE, blocking, work
from tracelab.findings.finding import WARNING


def test_blocking_call(findings, snapshot):
    # 20 of 320 us.
    item = [
        operator("aten::item", 3 * US, 117 * US),
        call("cudaStreamSynchronize", 4 * US, 116 * US),
    ]

    [finding] = findings(*blocking(*item))

    assert (finding.rule, finding.cause, finding.severity) == ("TL101", "host_sync", WARNING)
    assert (finding.cost_ns, finding.bound_ns) == (20 * US, 20 * US)
    assert (finding.where.operator, finding.where.api) == ("aten::item", "cudaStreamSynchronize")
    assert finding.where.count == 1
    assert finding.evidence == (3,)
    assert finding.title == snapshot
    assert "loss.detach()" in finding.fix


def test_says_where_in_the_program_the_call_is(findings, snapshot):
    # The source is not there, so the line of the call stays unknown.
    item = [
        python("train.py(3): step", US, 118 * US),
        python("<built-in method item of Tensor object at 0x7f>", 2 * US, 118 * US),
        operator("aten::item", 3 * US, 117 * US),
        call("cudaStreamSynchronize", 4 * US, 116 * US),
    ]

    [finding] = findings(*blocking(*item))

    assert finding.title == snapshot
    where = finding.where
    assert (where.function, where.file, where.line, where.call) == (
        "step",
        "train.py",
        None,
        "item",
    )


@pytest.mark.parametrize(
    ("called", "operator_name", "remedy"),
    [
        ("<built-in method item of Tensor object at 0x7f>", "aten::item", "scalar-read"),
        ("<built-in method nonzero of Tensor object at 0x7f>", "aten::nonzero", "nonzero"),
        (None, "aten::is_nonzero", "tensor-condition"),
        ("torch/cuda/__init__.py(980): synchronize", None, "synchronize"),
        ("<built-in method tolist of Tensor object at 0x7f>", "aten::to", None),
    ],
)
def test_what_to_do_depends_on_what_was_called(findings, called, operator_name, remedy):
    rows = [python("train.py(3): step", US, 118 * US)]
    if called is not None:
        rows.append(python(called, 2 * US, 118 * US))
    if operator_name is not None:
        rows.append(operator(operator_name, 3 * US, 117 * US))

    [finding] = findings(*blocking(*rows, call("cudaStreamSynchronize", 4 * US, 116 * US)))

    assert finding.remedy == remedy
    assert finding.fix


def test_is_silent_without_the_call(summaries):
    assert (
        summaries(
            *work(10 * US, 110 * US, launched=0, correlation=1),
            *work(110 * US, 310 * US, launched=4 * US, correlation=2),
        )
        == []
    )


def test_is_silent_where_the_queue_is_full(summaries):
    # The call returns at 112; what was launched before it runs until 310.
    rows = [
        *work(10 * US, 110 * US, launched=0, correlation=1),
        *work(110 * US, 310 * US, launched=3 * US, correlation=2),
    ]

    assert (
        summaries(
            *rows,
            call("cudaStreamSynchronize", 6 * US, 112 * US),
            *work(310 * US, 360 * US, launched=114 * US, correlation=3),
        )
        == []
    )


def test_has_one_finding_for_calls_from_one_place(findings):
    # Twice 20 us, before 130 and before 350, by the same call in no operator; two others of
    # another operator lose 10 us each.
    rows = [
        *work(10 * US, 110 * US, launched=0, correlation=1),
        call("cudaStreamSynchronize", 4 * US, 116 * US),
        *work(130 * US, 330 * US, launched=118 * US, correlation=2),
        call("cudaStreamSynchronize", 122 * US, 332 * US),
        *work(350 * US, 450 * US, launched=340 * US, correlation=3),
        operator("aten::nonzero", 344 * US, 456 * US),
        call("cudaStreamSynchronize", 345 * US, 455 * US),
        *work(460 * US, 560 * US, launched=457 * US, correlation=4),
    ]

    assert [(x.where.operator, x.where.count, x.bound_ns / US) for x in findings(*rows)] == [
        (None, 2, 40),
        ("aten::nonzero", 1, 10),
    ]


@pytest.mark.parametrize("name", ["item", "_local_scalar_dense", "is_nonzero"])
def test_leaves_scalars_from_pageable_memory_to_the_call_that_reads_them(summaries, name):
    # GIVEN .item(): a copy of 4 us into pageable memory from 111 on, whose call waits from 104 to
    # 120, and a synchronize from 121 to 126; the GPU is idle in [110, 111) and [115, 135)
    rows = [
        *work(10 * US, 110 * US, launched=0, correlation=1),
        operator(f"aten::{name}", 102 * US, 130 * US),
        call("cudaMemcpyAsync", 104 * US, 120 * US, correlation=2),
        copy(111 * US, 115 * US, name=D2H_PAGEABLE, correlation=2),
        call("cudaStreamSynchronize", 121 * US, 126 * US),
        *work(135 * US, 435 * US, launched=132 * US, correlation=3),
    ]

    # THEN the one pays 1 us and [115, 121), the other [121, 135): one place, 16 + 5 us blocked
    assert summaries(*rows) == [("TL101", "host_sync", WARNING, 21)]


def test_regions_that_count_the_steps_are_one_place(alarms):
    # 300 regions, each of its own name, with a call that costs 20 of 60 us.
    rows = []
    for i in range(300):
        at = 60 * i
        rows += [
            annotation(f"iteration {i}", at * US, (at + 59) * US),
            launch(at * US, (at + 2) * US, 10 * i + 1),
            kernel((at + 5) * US, (at + 40) * US, correlation=10 * i + 1),
            launch((at + 4) * US, (at + 44) * US, 10 * i + 2, name="cudaStreamSynchronize"),
        ]
    assert next((rule, cause) for rule, cause, _ in alarms(*rows)) == ("TL101", "host_sync")
