"""Each rule on a minimal trace with its defect, and on the same trace without it.

Times are microseconds. Of every trace the whole answer is compared: all findings about time.
"""

import re

import pytest

from tests.build.files import (
    HOST,
    annotation,
    copy,
    event,
    kernel,
    launch,
    operator,
    python,
    read,
    record,
    step,
    sync,
    thread_name,
    write,
)
from tracelab import Options, analyze
from tracelab.findings.candidates import MOST_EVIDENCE, most_expensive
from tracelab.findings.finding import CRITICAL, INFO, WARNING
from tracelab.findings.registry import RULES
from tracelab.findings.wording import short_kernel_name

US = 1000
D2H = "Memcpy DtoH (Device -> Pinned)"
D2H_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"
H2D_PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
P2P = "Memcpy PtoP (Device -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
SMALL, LARGE = {"blocks per SM": 0.3}, {"blocks per SM": 0.8}  # of what the GPU has room for
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
OTHER_THREAD = 300


def work(name, start, dur, launched, correlation, *, maker=kernel, tid=HOST, **more):
    """An activity, and its launch, which takes 2 us."""
    activity = (
        copy(start, dur, name=name, correlation=correlation, **more)
        if maker is copy
        else kernel(name, start, dur, correlation=correlation, **more)
    )
    return [launch(launched, 2, correlation, tid=tid), activity]


def wait(at, correlation, *, stream, of, recorded):
    """A stream that waits, from a call at `at`, for an event of another."""
    return [
        event("cudaEventRecord", "cuda_runtime", recorded, 0.5, correlation=correlation),
        event("cudaStreamWaitEvent", "cuda_runtime", at, 0.5, correlation=correlation + 1),
        sync(
            "Stream Wait Event",
            at,
            0,
            stream=stream,
            correlation=correlation + 1,
            wait_stream=of,
            wait_correlation=correlation,
        ),
    ]


def call(name, start, dur):
    return event(name, "cuda_runtime", start, dur)


@pytest.fixture
def findings(tmp_path):
    """The findings about time of the trace of some events."""

    def find(*events, options=None, **keys):
        path = write(tmp_path / "hand.json", events, **keys)
        report = analyze(path, options) if options else analyze(path)
        return [x for x in report.findings if x.about != "trace"]

    return find


@pytest.fixture
def found(findings):
    """Rule, cause, severity and bound (us) of each finding about time."""

    def find(*events, **keys):
        return [(x.rule, x.cause, x.severity, x.bound_ns / US) for x in findings(*events, **keys)]

    return find


# The rules themselves.


def test_every_rule_is_told_apart_and_explained():
    assert len({x.id for x in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"TL[1239]\d\d", rule.id)
        assert rule.name
        assert rule.matters.endswith((".", ")"))
        assert rule.decides.endswith((".", ")"))


@pytest.mark.parametrize(
    "rule", [x for x in RULES if x.about != "trace"], ids=lambda x: x.id
)
def test_defect_and_fix_are_python(rule):
    assert rule.before != rule.after
    for code in (rule.before, rule.after):
        compile(code, rule.id, "exec")


def test_rules_about_the_trace_show_no_code():
    assert {(x.before, x.after) for x in RULES if x.about == "trace"} == {("", "")}


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, F>(int, F)", None),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("Memset (Device)", "Memset (Device)"),
        ("nvjet_sm90_tst_128x64", "nvjet_sm90_tst_128x64"),
        ("<unnamed>", "<unnamed>"),
    ],
)
def test_kernels_have_short_kernel_names(name, short):
    assert short_kernel_name(name) == (short or "at::native::vectorized_elementwise_kernel")


def test_evidence_is_the_dearest_first_each_once_and_not_all():
    assert most_expensive([4, 7, 5, 7], [10, 30, 10, 20]) == (7, 4, 5)
    assert len(most_expensive(range(100), range(100))) == MOST_EVIDENCE


# TL101: the GPU computes until 110 and again from 130 on, because the host waited until 116.


def blocking(*between, second=118):
    return [
        *work("gemm", 10, 100, 0, 1),
        *between,
        *work("gemm", second + 12, 200, second, 2),
    ]


def test_tl101_blocking_call(findings):
    # 20 of 320 us.
    item = [operator("aten::item", 3, 114), call("cudaStreamSynchronize", 4, 112)]

    [finding] = findings(*blocking(*item))

    assert (finding.rule, finding.cause, finding.severity) == ("TL101", "host_sync", WARNING)
    assert (finding.cost_ns, finding.bound_ns) == (20 * US, 20 * US)
    assert (finding.where.operator, finding.where.api) == ("aten::item", "cudaStreamSynchronize")
    assert finding.where.count == 1
    assert finding.evidence == (3,)
    assert finding.title == "`aten::item` makes the host wait for the GPU (cudaStreamSynchronize)"
    assert "loss.detach()" in finding.fix


def test_tl101_says_where_in_the_program_the_call_is(findings):
    # The source is not there, so the line of the call stays unknown.
    item = [
        python("train.py(3): step", 1, 117),
        python("<built-in method item of Tensor object at 0x7f>", 2, 116),
        operator("aten::item", 3, 114),
        call("cudaStreamSynchronize", 4, 112),
    ]

    [finding] = findings(*blocking(*item))

    assert finding.title == (
        "`item` in step (train.py) makes the host wait for the GPU (cudaStreamSynchronize)"
    )
    where = finding.where
    assert (where.function, where.file, where.line, where.call) == (
        "step",
        "train.py",
        None,
        "item",
    )


def test_tl101_is_silent_without_the_call(found):
    assert found(*work("gemm", 10, 100, 0, 1), *work("gemm", 110, 200, 4, 2)) == []


def test_tl101_is_silent_where_the_queue_is_full(found):
    # The call returns at 112; what was launched before it runs until 310.
    rows = [*work("gemm", 10, 100, 0, 1), *work("gemm", 110, 200, 3, 2)]

    assert found(*rows, call("cudaStreamSynchronize", 6, 106), *work("gemm", 310, 50, 114, 3)) == []


def test_tl101_has_one_finding_for_calls_from_one_place(findings):
    # Twice 20 us, before 130 and before 350, by the same call in no operator; two others of
    # another operator lose 10 us each.
    rows = [
        *work("gemm", 10, 100, 0, 1),
        call("cudaStreamSynchronize", 4, 112),
        *work("gemm", 130, 200, 118, 2),
        call("cudaStreamSynchronize", 122, 210),
        *work("gemm", 350, 100, 340, 3),
        operator("aten::nonzero", 344, 112),
        call("cudaStreamSynchronize", 345, 110),
        *work("gemm", 460, 100, 457, 4),
    ]

    assert [(x.where.operator, x.where.count, x.bound_ns / US) for x in findings(*rows)] == [
        (None, 2, 40),
        ("aten::nonzero", 1, 10),
    ]


def test_tl101_leaves_scalars_from_pageable_memory_to_the_call_that_reads_them(found):
    # GIVEN .item(): a copy of 4 us into pageable memory from 111 on, whose call waits from 104 to
    # 120, and a synchronize from 121 to 126; the GPU is idle in [110, 111) and [115, 135)
    rows = [
        *work("gemm", 10, 100, 0, 1),
        operator("aten::item", 102, 28),
        event("cudaMemcpyAsync", "cuda_runtime", 104, 16, correlation=2),
        copy(111, 4, name=D2H_PAGEABLE, correlation=2),
        call("cudaStreamSynchronize", 121, 5),
        *work("gemm", 135, 300, 132, 3),
    ]

    # THEN the one pays 1 us and [115, 121), the other [121, 135): one place, 16 + 5 us blocked
    assert found(*rows) == [("TL101", "host_sync", WARNING, 21)]


# TL102: a batch of 53 us is copied between two kernels.


def test_tl102_pageable_copy(findings):
    # GIVEN a copy in [112, 165), whose call waits from 104 to 170; the next kernel begins at 175
    rows = [
        *work("gemm", 10, 100, 0, 1),
        operator("aten::copy_", 103, 68),
        event("cudaMemcpyAsync", "cuda_runtime", 104, 66, correlation=2),
        copy(112, 53, name=H2D_PAGEABLE, correlation=2),
        *work("gemm", 175, 225, 172, 3),
    ]

    # THEN lost is all from 110 to 175
    [finding] = findings(*rows)
    assert (finding.rule, finding.cause, finding.severity) == ("TL102", "pageable", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (65 * US, 65 * US)
    assert (finding.where.operator, finding.where.activity) == ("aten::copy_", H2D_PAGEABLE)


def test_tl102_is_silent_where_memory_is_pinned_and_compute_hides_the_copy(found):
    rows = [
        *work("gemm", 10, 100, 0, 1),
        *work("Memcpy HtoD (Pinned -> Device)", 12, 53, 4, 2, maker=copy, stream=20),
        *work("gemm", 110, 225, 8, 3),
    ]

    assert found(*rows) == []


# TL103: memory goes back to CUDA and is asked for again, at the cost of [110, 135).


def test_tl103_allocator(findings):
    rows = [
        *work("gemm", 10, 100, 0, 1),
        call("cudaFree", 4, 108),
        operator("aten::empty", 112, 19),
        call("cudaMalloc", 113, 17),
        *work("gemm", 135, 200, 132, 2),
    ]

    [finding] = findings(*rows)

    assert (finding.rule, finding.cause, finding.severity) == ("TL103", "allocator", WARNING)
    assert finding.bound_ns == 25 * US
    assert (finding.where.api, finding.where.operator, finding.where.count) == ("cudaFree", None, 2)
    assert "1 cudaFree, 1 cudaMalloc" in finding.title


def test_tl103_blames_who_allocates_if_nobody_frees(findings):
    rows = blocking(operator("aten::empty", 3, 114), call("cudaMalloc", 4, 112))

    [finding] = findings(*rows)

    assert (finding.rule, finding.bound_ns) == ("TL103", 20 * US)
    assert (finding.where.api, finding.where.operator) == ("cudaMalloc", "aten::empty")


def test_tl103_is_silent_where_the_queue_is_full(found):
    rows = [*work("gemm", 10, 100, 0, 1), *work("gemm", 110, 200, 3, 2)]

    assert found(*rows, call("cudaMalloc", 6, 106), *work("gemm", 310, 50, 114, 3)) == []


# While another thread allocates from 105 to 480, a launch call lasts from 108 to 490 instead of 2:
# of the 1,000 us the GPU is idle from 110 to 495.


def held_up(*, allocates="cudaHostAlloc", name="pt_data_pin", pid=HOST):
    rows = [
        *work("gemm", 10, 100, 0, 1),
        launch(108, 382, 2),
        kernel("gemm", 495, 515, correlation=2),
        event(allocates, "cuda_runtime", 105, 375, pid=pid, tid=OTHER_THREAD),
    ]
    return [*rows, thread_name(f"thread 300 ({name})", pid=pid, tid=OTHER_THREAD)]


def test_tl103_allocation_of_dataloaders_pinning_thread_that_held_up_a_launch(findings):
    [finding] = findings(*held_up())

    assert (finding.rule, finding.cause, finding.severity) == ("TL103", "allocator", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (385 * US, 385 * US)
    assert (finding.where.api, finding.where.count, finding.evidence) == ("cudaHostAlloc", 1, (4,))
    assert finding.title == (
        "`cudaHostAlloc` in thread pt_data_pin keeps other threads from launching "
        "(1 cudaHostAlloc in all)"
    )
    assert finding.fix.startswith("DataLoader's pin_memory thread asks CUDA for new pinned memory")


def test_tl103_allocation_of_any_other_thread_that_held_up_a_launch(findings):
    [finding] = findings(*held_up(allocates="cudaMalloc", name="loader"))

    assert (finding.rule, finding.bound_ns) == ("TL103", 385 * US)
    assert "DataLoader" not in finding.fix


def test_tl103_tells_held_up_launches_from_what_the_launching_thread_allocates(findings):
    # The main thread's own cudaFree lasts from 520 to 1,120; the GPU is idle from 1,010 to 1,130.
    found = findings(*held_up(), call("cudaFree", 520, 600), *work("gemm", 1_130, 50, 1_125, 3))

    assert [(x.rule, x.where.api, x.where.count, x.bound_ns / US) for x in found] == [
        ("TL103", "cudaHostAlloc", 1, 385),
        ("TL103", "cudaFree", 1, 120),
    ]


def test_tl103_does_not_blame_another_process(found):
    # Nothing else in the file tells why the launch took so long.
    assert "TL103" not in [rule for rule, *_ in found(*held_up(pid=HOST + 1))]


# TL201: a pinned copy of 50 us stands between 200 and 200 us of compute.


def test_tl201_copy_in_the_stream_that_computes(found):
    # 50 of 450 us.
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work("Memcpy HtoD (Pinned -> Device)", 210, 50, 3, 2, maker=copy),
        *work("gemm", 260, 200, 6, 3),
    ]

    assert found(*rows) == [("TL201", "same_stream", CRITICAL, 50)]


def test_tl201_copy_behind_a_blocking_call_names_it(findings):
    # The synchronize ends at 212, the copy runs in [215, 265), and the kernel after it waits.
    rows = [
        *work("gemm", 10, 200, 0, 1),
        operator("aten::nonzero", 3, 210),
        call("cudaStreamSynchronize", 4, 208),
        *work("Memcpy HtoD (Pinned -> Device)", 216, 50, 213, 2, maker=copy, stream=20),
        *wait(217, 10, stream=7, of=20, recorded=216),
        *work("gemm", 266, 200, 218, 3),
    ]

    copied, blocked = findings(*rows)

    assert (copied.rule, copied.cause, copied.bound_ns) == ("TL201", "host_sync", 50 * US)
    assert copied.title.endswith("runs beside no compute, because `aten::nonzero` blocks")
    assert (blocked.rule, blocked.bound_ns) == ("TL101", 6 * US)


def test_tl201_is_silent_beside_compute(found):
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work("Memcpy HtoD (Pinned -> Device)", 12, 50, 3, 2, maker=copy, stream=20),
        *work("gemm", 210, 200, 6, 3),
    ]

    assert found(*rows) == []


def test_tl201_first_copy_alarms_nobody(found):
    rows = [
        *work("Memcpy HtoD (Pinned -> Device)", 10, 50, 0, 1, maker=copy),
        *work("gemm", 60, 400, 3, 2),
    ]

    assert found(*rows) == [("TL201", "true_dependency", INFO, 0)]


# TL202: an all-reduce of 50 us.


def test_tl202_collective_in_the_stream_that_computes(found):
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work(ALL_REDUCE, 210, 50, 3, 2),
        *work("gemm", 260, 200, 6, 3),
    ]

    assert found(*rows) == [("TL202", "same_stream", CRITICAL, 50)]


def test_tl202_compute_that_waits_for_a_collective(found):
    # Of the 30 us that compute after it, it can hide 30.
    rows = [
        *work("gemm", 10, 400, 0, 1),
        *wait(4, 10, stream=20, of=7, recorded=3),
        *work(ALL_REDUCE, 410, 50, 5, 2, stream=20),
        *wait(9, 12, stream=7, of=20, recorded=8),
        *work("gemm", 460, 30, 10, 3),
    ]

    assert found(*rows) == [("TL202", "event_wait", WARNING, 30)]


def test_tl202_is_silent_beside_compute(found):
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work(ALL_REDUCE, 210, 50, 3, 2, stream=20),
        *work("gemm", 210, 200, 6, 3),
    ]

    assert found(*rows) == []


def test_tl202_what_a_stage_receives_alarms_nobody(found):
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work("ncclDevKernel_SendRecv", 210, 50, 3, 2),
        *work("gemm", 260, 200, 6, 3),
    ]

    assert found(*rows) == [("TL202", "true_dependency", INFO, 0)]


# TL203: three kernels of 200 us in turns, the second one in a side stream.


def in_turns(room, *, names=("scan", "scan", "scan")):
    return [
        *work(names[0], 10, 200, 0, 1, **room),
        *wait(4, 10, stream=13, of=7, recorded=3),
        *work(names[1], 210, 200, 5, 2, stream=13, **room),
        *wait(9, 12, stream=7, of=13, recorded=8),
        *work(names[2], 410, 200, 10, 3, **room),
    ]


def test_tl203_streams_in_turns_by_an_event(found):
    # Twice 200 us were lost, but the side stream has only 200 us of work to put beside them.
    assert found(*in_turns(SMALL)) == [("TL203", "event_wait", CRITICAL, 200)]


def test_tl203_promises_the_side_streams_work_once_whatever_the_kernels_are(found):
    # Two findings, because two kernels were waited for: the side stream's 200 us can run beside
    # the first kernel, or the second one beside them, but not both.
    kernels = ("first", "side", "second")

    assert found(*in_turns(SMALL, names=kernels)) == [
        ("TL203", "event_wait", CRITICAL, 200),
        ("TL203", "event_wait", INFO, 0),
    ]


@pytest.mark.parametrize("room", [LARGE, {}, {"blocks per SM": "many"}], ids=str)
def test_tl203_kernels_without_room_alarm_nobody(found, room):
    assert found(*in_turns(room)) == [("TL203", "no_free_sm", INFO, 0)]


def test_tl203_is_silent_where_the_streams_overlap(found):
    rows = [
        *work("scan", 10, 200, 0, 1, **SMALL),
        *work("scan", 12, 200, 5, 2, stream=13, **SMALL),
        *wait(9, 12, stream=7, of=13, recorded=8),
        *work("scan", 212, 200, 10, 3, **SMALL),
    ]

    assert found(*rows) == []


# TL204: compute, launched at 5 in a stream that is free from 60 on, begins after the all-reduce.


def test_tl204_hardware_queue(findings):
    rows = [
        *work("gemm", 10, 50, 0, 1),
        *work(ALL_REDUCE, 60, 200, 3, 2, stream=20),
        *work("gemm", 260, 200, 5, 3),
    ]

    [finding] = findings(*rows)

    assert (finding.rule, finding.cause, finding.severity) == ("TL204", "hardware_queue", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (200 * US, 200 * US)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in finding.fix


def test_tl204_is_silent_where_each_stream_has_a_queue(found):
    rows = [
        *work("gemm", 10, 50, 0, 1),
        *work(ALL_REDUCE, 60, 200, 3, 2, stream=20),
        *work("gemm", 60, 200, 5, 3),
    ]

    assert found(*rows) == []


# TL205: two streams, 200 us each, that no event orders.


def test_tl205_streams_in_turns_by_the_host(findings):
    # The host waits until 212 before it launches the side stream's work, which begins at 216. That
    # idle is the call's; the 200 us before it, in which both could have run, are not.
    rows = [
        *work("scan", 10, 200, 0, 1, **SMALL),
        call("cudaStreamSynchronize", 4, 208),
        *work("scan", 216, 200, 213, 2, stream=13, **SMALL),
    ]

    turns, blocked = findings(*rows)

    assert (turns.rule, turns.cause, turns.severity) == ("TL205", "host_sync", CRITICAL)
    assert turns.bound_ns == 200 * US
    assert turns.title == (
        "`cudaStreamSynchronize`: scan begins only after another stream's scan, which it does not "
        "wait for"
    )
    assert (blocked.rule, blocked.bound_ns) == ("TL101", 6 * US)


def test_tl205_streams_in_turns_by_nothing_that_the_file_shows(found):
    rows = [
        *work("scan", 10, 200, 0, 1, **SMALL),
        *work("scan", 210, 200, 4, 2, stream=13, **SMALL),
    ]

    assert found(*rows) == [("TL205", "hardware_queue", CRITICAL, 200)]


def test_tl205_large_kernels_alarm_nobody(found):
    # 0.3 and 0.8 of the GPU's room do not fit.
    rows = [
        *work("scan", 10, 200, 0, 1, **SMALL),
        *work("scan", 210, 200, 4, 2, stream=13, **LARGE),
    ]

    assert found(*rows) == [("TL205", "no_free_sm", INFO, 0)]


def test_tl205_is_silent_where_the_streams_overlap(found):
    rows = [
        *work("scan", 10, 200, 0, 1, **SMALL),
        *work("scan", 12, 200, 4, 2, stream=13, **SMALL),
    ]

    assert found(*rows) == []


# TL206: a copy of 50 us between GPU 0 and GPU 1, which both compute before and after it.


def peer_copy(*, stream, resume, receiver=None):
    """Both GPUs compute until 210, and from `resume` on for 200 us; the copy runs from 210 on.

    The receiver may resume at another time.
    """
    return [
        *work("gemm", 10, 200, 0, 1),
        *work("gemm", 10, 200, 3, 2, device=1),
        *work(P2P, 210, 50, 6, 3, maker=copy, stream=stream),
        *work("gemm", resume, 200, 9, 4),
        *work("gemm", receiver or resume, 200, 12, 5, device=1),
    ]


def test_tl206_copy_in_default_streams(findings):
    # Both stand still for 50 of 450 us: the sender's kernel behind it, the receiver's by itself.
    [finding] = findings(*peer_copy(stream=7, resume=260))

    assert (finding.rule, finding.cause, finding.severity) == ("TL206", "default_stream", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (50 * US, 50 * US)
    assert finding.where.activity == P2P


@pytest.mark.parametrize(
    ("stream", "sender", "receiver"), [(7, 260, 210), (20, 210, 260)], ids=["sender", "receiver"]
)
def test_tl206_copy_that_holds_up_one_side(found, stream, sender, receiver):
    assert found(*peer_copy(stream=stream, resume=sender, receiver=receiver)) == [
        ("TL206", "default_stream", CRITICAL, 50)
    ]


def test_tl206_is_silent_where_both_sides_have_a_side_stream(found):
    assert found(*peer_copy(stream=20, resume=210)) == []


# TL301: ten kernels of 5 us, launched every 20 us, so that the GPU is idle for 9 x 15 us.


def launched_one_by_one(*, first=0, kernels=10, every=20, tid=HOST):
    """From 10 us after `first`; a launch takes 2 us, and its kernel starts when it is over."""
    return [
        operator("aten::add", first, 10 + every * kernels, tid=tid),
        *(
            row
            for i in range(kernels)
            for row in work(
                "add", first + 10 + every * i, 5, first + 8 + every * i, first + i + 1, tid=tid
            )
        ),
    ]


def test_tl301_launch_bound(findings):
    # 135 of 185 us.
    [finding] = findings(*launched_one_by_one())

    assert (finding.rule, finding.cause, finding.severity) == ("TL301", "launch_bound", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (135 * US, 135 * US)
    assert (finding.where.operator, finding.where.device, finding.where.count) == (
        "aten::add",
        0,
        9,
    )


def test_tl301_is_silent_where_launches_are_ahead(found):
    rows = [row for i in range(10) for row in work("add", 40 + 5 * i, 5, 3 * i, i + 1)]

    assert found(operator("aten::add", 0, 40), *rows) == []


@pytest.mark.parametrize(
    ("unprofiled_ms", "severity", "bound"),
    [
        (0.1, CRITICAL, 50),  # 100 us, of which the GPU was busy for 50
        ("0.053", WARNING, 3),  # of 53 us
        (0.01, INFO, 0),  # less than the GPU was busy: nothing to win at the host
        (5, CRITICAL, 135),
        (0, CRITICAL, 135),  # no such step
        ("nan", CRITICAL, 135),
        ("inf", CRITICAL, 135),
        (None, CRITICAL, 135),
    ],
)
def test_tl301_wins_no_more_than_a_step_loses_without_the_profiler(
    found, unprofiled_ms, severity, bound
):
    about = {"tracelab": {"unprofiled_step_ms": unprofiled_ms}}

    assert found(step(1, 0, 210), *launched_one_by_one(), before=about) == [
        ("TL301", "launch_bound", severity, bound)
    ]


def test_tl301_of_two_steps_counts_the_profiler_twice(found):
    # GIVEN two steps of 10 kernels each, with 15 us between them: 385 us, of which 100 busy
    rows = [*launched_one_by_one(), *launched_one_by_one(first=200)]
    about = {"tracelab": {"unprofiled_step_ms": 0.1}}

    # THEN of 2 x 100 us, 100 are left for the host
    assert found(step(1, 0, 200), step(2, 200, 200), *rows, before=about) == [
        ("TL301", "launch_bound", CRITICAL, 100)
    ]


def test_tl301_of_one_step_cites_what_is_in_it(findings):
    # GIVEN long waits in the first step, shorter ones in the second
    rows = [
        step(1, 0, 400),
        *launched_one_by_one(kernels=4, every=100),
        step(2, 400, 200),
        *launched_one_by_one(first=400),
    ]

    # WHEN
    [finding] = findings(*rows, options=Options(step=2))

    # THEN
    assert finding.step == 2
    assert finding.evidence
    assert all(rows[i]["ts"] + rows[i]["dur"] > 400 for i in finding.evidence)


def test_tl301_leaves_idle_behind_a_blocking_call_to_the_call(found):
    # The host is in an operator from 0 to 200, and blocked in it until 112.
    rows = blocking(operator("aten::item", 0, 200), call("cudaStreamSynchronize", 4, 108))

    assert found(*rows) == [("TL101", "host_sync", WARNING, 20)]


# TL302: the loader takes until 160; the next kernel is launched at 162 and begins at 165.


def loading(first_ends, second):
    return [
        *work("gemm", 10, first_ends - 10, 0, 1),
        annotation(LOADER, 2, 158),
        *work("gemm", second, 200, 162, 2),
    ]


def test_tl302_input_bound(findings):
    # Idle in [60, 165), with the loader until 160: 100 of 355 us.
    [finding] = findings(*loading(60, 165))

    assert (finding.rule, finding.cause, finding.severity) == ("TL302", "input_bound", CRITICAL)
    assert finding.bound_ns == 100 * US
    assert finding.evidence == (2,)
    assert finding.title == f"The GPU waits for the data loader ({LOADER})"


def test_tl302_is_silent_where_the_queue_is_full(found):
    assert found(*loading(210, 210)) == []


def test_tl302_counts_no_loader_of_another_thread_while_the_launching_one_works(found):
    rows = [
        *work("gemm", 10, 50, 0, 1),
        operator("aten::add", 2, 160),
        annotation(LOADER, 2, 158, tid=OTHER_THREAD),
        *work("gemm", 165, 200, 162, 2),
    ]

    assert [x[0] for x in found(*rows)] == ["TL301"]


# Together.


def test_findings_of_several_rules_promise_each_stretch_once(findings):
    # GIVEN a copy between two kernels, a blocking call after the second, ten late launches at last
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work("Memcpy HtoD (Pinned -> Device)", 210, 50, 3, 2, maker=copy),
        *work("gemm", 260, 200, 6, 3),
        call("cudaStreamSynchronize", 12, 450),
        *launched_one_by_one(first=465),
    ]

    # WHEN
    together = findings(*rows)

    # THEN the call pays from 460 to the next launch's start at 475
    assert [(x.rule, x.bound_ns / US) for x in together] == [
        ("TL301", 135),
        ("TL201", 50),
        ("TL101", 15),
    ]


def test_evidence_names_a_copy_and_what_it_held_up(findings, tmp_path):
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work("Memcpy DtoH (Device -> Pinned)", 210, 50, 3, 2, maker=copy),
        *work("gemm", 260, 200, 6, 3),
    ]

    [finding] = findings(*rows)

    trace = read(tmp_path / "hand.json")
    assert [trace.name_of(x) for x in finding.evidence] == [D2H, "gemm"]
    assert finding.evidence == (3, 5)


def test_record_rows_change_nothing(found):
    # CUPTI's row of the record names a stream: what it says is what the wait's row said.
    assert found(*in_turns(SMALL), record(210, 1, 10), record(410, 2, 12, stream=13)) == [
        ("TL203", "event_wait", CRITICAL, 200)
    ]
