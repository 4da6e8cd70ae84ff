"""Waits in a row: without one of them the next one waits instead.

A step of 1,000 us, in us: the host launches a kernel of 400 (0 to 5), which runs from 8 to 408;
waits for it in two places, one right after the other (10 to 413, and 420 to 422); is busy until
510, and launches another kernel of 400 (510 to 515), which runs from 518 to 918.
"""

from __future__ import annotations

import pytest

from tests.build import files
from tests.build.files import US
from tests.build.finding_events import work
from tracelab import analyze
from tracelab.base.options import Options

STEP = 1_000
ONE, OTHER = "unblock:one.synchronize", "unblock:other.synchronize"


def waits(function, line, begin, end):
    """A function that waits for the GPU."""
    return [
        files.python(f"train.py({line}): {function}", (begin - 1) * US, (end + 1) * US),
        files.python("torch/cuda/__init__.py(980): synchronize", begin * US - 500, end * US + 500),
        files.call("cudaDeviceSynchronize", begin * US, end * US),
    ]


def steps(*, first=(10, 413), second=420, between=(), count=5):
    """Some such steps; the first wait is from and until `first`, the other one from `second` on."""
    rows = []
    for step in range(count):
        at = STEP * step
        rows += [
            files.step(step, at * US, (at + STEP - 5) * US),
            files.python("train.py(3): train", (at + 1) * US, (at + STEP - 10) * US),
            *work((at + 8) * US, (at + 408) * US, launched=at * US, correlation=10 * step + 1),
            *waits("one", 20, at + first[0], at + first[1]),
            *waits("other", 30, at + second, at + second + 2),
            *work(
                (at + 518) * US,
                (at + 918) * US,
                launched=(at + 510) * US,
                correlation=10 * step + 2,
            ),
        ]
        for begin, end in between:
            rows += work(
                (at + begin + 3) * US,
                (at + end) * US,
                launched=(at + begin) * US,
                correlation=10 * step + 3,
            )
    return rows


@pytest.fixture
def findings(tmp_path):
    """The blocking calls that are found, by the function that makes them."""

    def find(rows, **options):
        report = analyze(files.write(tmp_path / "hand.json", rows), Options(**options))
        return {x.where.function: x for x in report.findings if x.rule == "TL101"}

    return find


def test_waits_in_a_row_have_one_edit_and_one_price(findings, snapshot):
    found = findings(steps())
    assert found["one"].edit == f"{ONE} + {OTHER}"
    assert found["one"].fix == snapshot
    # Without both the two kernels of 400 us follow one another, with short pauses; the host needs
    # less, 1,000 - 403 - 2.
    assert found["one"].saves_ns == pytest.approx((STEP - 800) * US, abs=8 * US)
    if "other" in found:
        assert found["other"].saves_ns == found["one"].saves_ns


def test_without_the_other_the_wait_only_moves(tmp_path):
    path = files.write(tmp_path / "hand.json", steps())
    alone = analyze(path, Options(edits=(ONE,))).whatif.predictions[0]
    # From 413 to 420 the host does what it otherwise does after the wait.
    assert alone.step_ns - alone.predicted_ns <= 10 * US


def test_a_host_that_the_profiler_slowed_finds_the_gpu_done_at_both(findings):
    # The kernel ends at 408, the first wait begins at 415 and takes 2 us, the second one at 423:
    # nothing is launched in the 6 us between the two, less than a hundredth of a step.
    found = findings(steps(first=(415, 417), second=423))
    assert found["one"].edit == f"{ONE} + {OTHER}"
    # Not where the host needs 30 us in between, more than a fiftieth.
    assert findings(steps(first=(415, 417), second=447))["one"].edit == ONE


def test_waits_with_work_in_between_stand_alone(findings):
    # The host works for 270 us, more than half of what it waited.
    assert findings(steps(second=650))["one"].edit == ONE
    # It launches a kernel of 300 us for which the second call waits.
    assert findings(steps(second=420, between=[(414, 716)]))["one"].edit == ONE


def test_what_the_host_needs_at_once_is_not_left_out(findings):
    rows = steps()
    for step in range(5):
        at = STEP * step
        rows.append(files.operator("aten::is_nonzero", (at + 419.6) * US, (at + 422.4) * US))
    assert findings(rows)["one"].edit == ONE
