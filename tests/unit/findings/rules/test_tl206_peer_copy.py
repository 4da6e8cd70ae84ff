"""TL206: a copy of 50 us between GPU 0 and GPU 1, which both compute before and after it."""

import pytest

from tests.build.files import US, copy
from tests.build.finding_events import P2P, wait, work
from tracelab.findings.finding import CRITICAL


def peer_copy(*, stream, resume, receiver=None):
    """Both GPUs compute until 210, and from `resume` on for 200 us; the copy runs from 210 on.

    The receiver may resume at another time.
    """
    return [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(10 * US, 210 * US, launched=3 * US, correlation=2, device=1),
        *work(210 * US, 260 * US, P2P, launched=6 * US, correlation=3, maker=copy, stream=stream),
        *work(resume * US, (resume + 200) * US, launched=9 * US, correlation=4),
        *work(
            (receiver or resume) * US,
            ((receiver or resume) + 200) * US,
            launched=12 * US,
            correlation=5,
            device=1,
        ),
    ]


def test_copy_in_default_streams(findings):
    # Both stand still for 50 of 450 us: the sender's kernel behind it, the receiver's by itself.
    [finding] = findings(*peer_copy(stream=7, resume=260))

    assert (finding.rule, finding.cause, finding.severity) == ("TL206", "default_stream", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (50 * US, 50 * US)
    assert finding.where.activity == P2P


@pytest.mark.parametrize(
    ("stream", "sender", "receiver"), [(7, 260, 210), (20, 210, 260)], ids=["sender", "receiver"]
)
def test_copy_that_blocks_one_side(summaries, stream, sender, receiver):
    assert summaries(*peer_copy(stream=stream, resume=sender, receiver=receiver)) == [
        ("TL206", "default_stream", CRITICAL, 50)
    ]


def test_copy_in_a_side_stream_that_the_sender_waits_for(summaries):
    waiting = wait(8 * US, 10, stream=7, of=20, recorded=8 * US)

    assert summaries(*peer_copy(stream=20, resume=260, receiver=210), *waiting) == [
        ("TL206", "default_stream", CRITICAL, 50)
    ]


def test_is_silent_where_both_sides_have_a_side_stream(summaries):
    assert summaries(*peer_copy(stream=20, resume=210)) == []
