"""Which values the host needs at once, and what is said about calls that wait for them.

A loop of three rounds in a step: a kernel, a read of its result, work of the host, a copy to the
GPU. Launches are 10 us apart, but for the work of the host.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.build import files
from tests.build.files import US
from tests.build.finding_events import D2H_PAGEABLE, H2D_PAGEABLE
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.findings.advice.needs import Need, cannot_go, choose_fix, host_needs
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule

ROUND, STEP = 400, 1_600


def rollout(
    *, work_us=200, read_bytes=512, written_bytes=2_048, backward=False, loads=False, steps=2
):
    """Some steps of three rounds; what each round reads may feed its copy to the GPU.

    In a round, in us: a kernel (launched at 0), another one (10), a copy to the host (20) that
    blocks until 30, the host's work, a copy to the GPU that blocks for 5.
    """
    rows = []
    for step in range(steps):
        rows.append(files.step(step, STEP * step * US, (STEP * step + STEP - 10) * US))
        for number in range(3):
            at = STEP * step + ROUND * number
            copied = at + 30 + work_us
            first = 1 + 100 * step + 10 * number
            rows += launched(at, at + 3, at + 8, first)
            rows += launched(at + 10, at + 13, at + 18, first + 1)
            rows += copy("cpu", at + 20, at + 30, first + 2, D2H_PAGEABLE, read_bytes)
            rows += copy("to", copied, copied + 5, first + 3, H2D_PAGEABLE, written_bytes)
            if backward:
                name = "autograd::engine::evaluate_function: MmBackward0"
                rows.append(files.operator(name, (at + 9) * US, (at + 14) * US, tid=300))
                rows += launched(at + 11, at + 18, at + 19, first + 4, tid=300)
            if loads:
                name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
                rows.append(files.annotation(name, (at + 35) * US, (at + 60) * US))
    return rows


def launched(at, begin, end, correlation, **thread):
    return [
        files.launch(at * US, (at + 2) * US, correlation, **thread),
        files.kernel(begin * US, end * US, correlation=correlation),
    ]


def copy(called, begin, end, correlation, name, count):
    """A pageable copy that `train` makes; its call blocks until it is done."""
    return [
        files.python("train.py(3): train", (begin - 1) * US, (end + 1) * US),
        files.python(
            f"<built-in method {called} of Tensor object at 0x7f>", (begin - 1) * US, (end + 1) * US
        ),
        files.operator("aten::to", begin * US - 500, end * US + 500),
        files.launch(begin * US, end * US, correlation, name="cudaMemcpyAsync"),
        files.copy((begin + 1) * US, (end - 1) * US, name, correlation=correlation, bytes=count),
    ]


@pytest.fixture
def needs(tmp_path):
    """The need of each blocking call of the trace of some events, by start."""

    def find(rows):
        found = []

        def look(context):
            found.extend(Need(need) for need in host_needs(context.graph).tolist())
            return []

        path = files.write(tmp_path / "hand.json", rows)
        rule = Rule(id="MY1", name="", matters="", decides="", find=look)
        analyze(path, Options(prices=False), rules=(rule,))
        return found

    return find


def test_the_host_computes_the_next_input_from_a_read(needs):
    assert needs(rollout()) == 2 * 3 * [Need.INPUT, Need.NONE]


@pytest.mark.parametrize(
    "not_fed",
    [
        {"work_us": 20},  # two launches are 10 us apart in the median: the host computes nothing
        {"written_bytes": 4_000_000},  # a batch of data is not computed from 512 bytes
        {"backward": True},  # a loss is read
        {"loads": True},
    ],
)
def test_the_next_batch_is_not_computed_from_a_read(needs, not_fed):
    assert set(needs(rollout(**not_fed))) == {Need.NONE}


def test_what_goes_back_can_stay_on_the_gpu(needs):
    assert needs(rollout(work_us=15, written_bytes=512, steps=1)) == 3 * [Need.RETURNED, Need.NONE]
    # Where the host computes for long, it computes something else of it.
    assert needs(rollout(written_bytes=512, steps=1)) == 3 * [Need.INPUT, Need.NONE]


def test_what_the_next_step_copies_is_its_batch(needs):
    # The copy of each round comes after the end of its step.
    rows = [row for row in rollout(steps=1) if not row["name"].startswith("ProfilerStep")]
    rows += [
        files.step(number, (ROUND * number - 1) * US, (ROUND * number + 100) * US)
        for number in range(3)
    ]
    assert set(needs(rows)) == {Need.NONE}


def test_the_last_read_of_a_step_feeds_the_next_one(needs):
    # Steps begin with a copy: that of the round before.
    rows = [row for row in rollout() if not row["name"].startswith("ProfilerStep")]
    rows += [files.step(0, 0, 1_020 * US), files.step(1, 1_021 * US, 2_800 * US)]
    assert needs(rows) == 2 * 3 * [Need.INPUT, Need.NONE]


def test_the_last_read_of_a_file_is_as_the_others(needs):
    rows = [row for row in rollout() if row["ts"] < STEP + 2 * ROUND + 100]
    assert needs(rows) == [*2 * 3 * [Need.INPUT, Need.NONE]][:-1]


@pytest.mark.parametrize(
    ("operator", "need"),
    [
        ("aten::is_nonzero", Need.BRANCH),
        ("aten::nonzero", Need.SIZE),
        ("aten::item", Need.NONE),
    ],
)
def test_what_the_operator_says(needs, operator, need):
    rows = [
        *launched(0, 3, 50, 1),
        files.operator(operator, 9 * US, 61 * US),
        files.call("cudaStreamSynchronize", 10 * US, 60 * US),
        *launched(70, 73, 80, 2),
    ]
    assert needs(rows) == [need]


def test_what_is_said_about_a_place():
    read = np.full(20, Need.NONE, dtype=np.int8)
    read[:1] = Need.BRANCH  # a twentieth says nothing of the place
    otherwise = Instead("Remove it.")
    assert choose_fix(otherwise, read) == otherwise
    assert not cannot_go(read)

    read[:6] = Need.INPUT
    assert cannot_go(read)

    read[:16] = Need.BRANCH
    branch = choose_fix(otherwise, read)
    assert branch != otherwise
    assert cannot_go(read)

    read[:] = Need.SIZE
    assert choose_fix(otherwise, read) not in (otherwise, branch)
    assert not cannot_go(read)


def test_findings_say_what_can_be_moved(tmp_path, snapshot):
    report = analyze(files.write(tmp_path / "hand.json", rollout(steps=4)))
    by_call = {x.where.call: x for x in report.findings if x.rule == "TL102"}
    assert by_call["cpu"].fix == snapshot
    assert (by_call["cpu"].remedy, by_call["cpu"].edit) == ("read-for-next-input", None)
    # What the host just computed cannot be copied one step ahead.
    assert "It cannot be copied ahead" in by_call["to"].fix
    assert (by_call["to"].remedy, by_call["to"].edit) == ("computed-input", "pin:train.to")
