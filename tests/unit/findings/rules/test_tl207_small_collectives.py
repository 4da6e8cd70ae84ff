"""TL207: all-reduces of 4 kB, each of which takes 10 us."""

from tests.build.files import US, kernel, launch, operator, step
from tests.build.finding_events import ALL_REDUCE, OTHER_THREAD, work
from tests.figures import figures
from tracelab.findings.finding import CRITICAL

ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def of_size(elements):
    return {
        "Collective name": "allreduce",
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "dtype": "Float",
        "Process Group Name": "0",
    }


def one_after_another(*, count, elements=1_000, length=10, compute_between=0, late=()):
    """A product of 100 us, and as it ends the first of some all-reduces in the same stream."""
    rows = work(10 * US, 110 * US, launched=0, correlation=1)
    now, number = 110, 1
    for i in range(count):
        number += 1
        end = now + (500 if i in late else length)
        rows += work(
            now * US,
            end * US,
            ALL_REDUCE,
            launched=(now - 8) * US,
            correlation=number,
            **of_size(elements),
        )
        now = end
        for _ in range(compute_between):
            number += 1
            rows += work(now * US, (now + 2) * US, launched=(now - 7) * US, correlation=number)
            now += 2
    return [*rows, *work((now + 1) * US, (now + 901) * US, launched=now * US, correlation=99)]


def of_tl207(found):
    return [row for row in found if row[0] == "TL207"]


def test_all_but_one_of_a_row_cost_their_latency(summaries):
    # Of 21 all-reduces 20 save 10 us each.
    assert of_tl207(summaries(*one_after_another(count=21))) == [
        ("TL207", "latency", CRITICAL, 200)
    ]


def test_says_how_many_there_are_and_what_is_their_latency(findings, snapshot):
    [finding] = [x for x in findings(*one_after_another(count=21)) if x.rule == "TL207"]

    assert finding.title == snapshot
    assert finding.where.count == 20
    assert finding.fix == snapshot
    assert {"20", "10 µs"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot
    assert finding.edit is None


def test_what_waits_for_a_peer_is_not_saved(summaries):
    # One of 21 takes 500 us: 490 of them it waited for a peer, and 10 are its latency.
    [(*_, bound)] = of_tl207(summaries(*one_after_another(count=21, late=(5,))))

    assert bound == 200


def test_is_silent_where_each_waits_for_a_peer(summaries):
    assert of_tl207(summaries(*one_after_another(count=21, length=300))) == []


def test_is_silent_of_large_ones(summaries):
    assert of_tl207(summaries(*one_after_another(count=21, elements=250_000))) == []


def test_is_silent_of_a_single_small_one(summaries):
    assert of_tl207(summaries(*one_after_another(count=1))) == []


def test_is_silent_where_the_next_layer_needs_each(summaries):
    assert of_tl207(summaries(*one_after_another(count=21, compute_between=3))) == []


def backward(*, is_overlapped):
    """Two backward passes, each with eight gradients whose all-reduces run in a side stream."""
    rows, number = [], 0
    for pass_number in range(2):
        now = 1_000 * pass_number
        rows += [
            step(pass_number, now * US, (now + 900) * US),
            operator("autograd::engine::evaluate_function: MmBackward0", now * US, (now + 1) * US)
            | {"tid": OTHER_THREAD},
        ]
        for _ in range(8):
            length = 90 if is_overlapped else 50
            rows.append(operator(ACCUMULATE, (now + 5) * US, (now + 10) * US, tid=OTHER_THREAD))
            rows += work(
                (now + 4) * US,
                (now + 4 + length) * US,
                launched=(now + 2) * US,
                correlation=number + 1,
                tid=OTHER_THREAD,
            )
            rows += [
                launch((now + 6) * US, (now + 8) * US, number + 2, tid=OTHER_THREAD),
                kernel(
                    (now + 60) * US,
                    (now + 70) * US,
                    ALL_REDUCE,
                    stream=20,
                    correlation=number + 2,
                    **of_size(1_000),
                ),
            ]
            number, now = number + 2, now + 100
    return rows


def test_gradients_of_a_backward_pass_are_in_a_row(findings):
    # In each of two passes seven all-reduces of 10 us run beside nothing.
    [finding] = [x for x in findings(*backward(is_overlapped=False)) if x.rule == "TL207"]

    assert finding.bound_ns == 140 * US
    assert finding.where.count == 14


def test_is_silent_where_the_backward_pass_covers_them(summaries):
    assert of_tl207(summaries(*backward(is_overlapped=True))) == []
