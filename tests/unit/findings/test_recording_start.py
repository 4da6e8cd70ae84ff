"""What is said of idle time from the start of a recording, in steps of one kernel of 100 us."""

import pytest

from tests.build.files import US, step, write
from tests.build.finding_events import work
from tracelab import analyze


def steps(*launched_us):
    """Steps that begin 2 us before their launch, whose kernel starts 3 us after it or later."""
    rows, free_us = [], 0
    ends_us = [at - 2 for at in launched_us[1:]] + [launched_us[-1] + 10]
    for number, (at, end_us) in enumerate(zip(launched_us, ends_us, strict=True)):
        starts_us = max(at + 3, free_us)
        free_us = starts_us + 100
        rows.append(step(number, (at - 2) * US, end_us * US))
        rows += work(starts_us * US, free_us * US, "add", launched=at * US, correlation=number + 1)
    return rows


@pytest.fixture
def report_of(tmp_path):
    return lambda *rows: analyze(write(tmp_path / "hand.json", rows))


def test_a_late_second_launch_is_of_the_start(report_of):
    # The host launches each 80 us, but the second time after 150: the GPU waits 50 us for that, and
    # 5 us of the first step for its first kernel.
    report = report_of(*steps(10, 160, 240, 320, 400, 480))
    [note] = report.notes
    [steady] = report.steady
    share = 55 * US / (steady.end_ns - steady.start_ns)
    assert f"For {100 * share:.1f} % of the time" in note.text


def test_a_host_that_is_ahead_at_once_leaves_nothing_to_say(report_of):
    assert report_of(*steps(10, 90, 170, 250, 330, 410)).notes == ()
