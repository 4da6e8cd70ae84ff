"""TL407: an embedding that is used twice in a step, and an optimizer behind its gradients."""

import pytest

from tests.build.files import HOST, US, annotation, operator
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

AUTOGRAD = 200
NODE = "autograd::engine::evaluate_function: EmbeddingBackward0"
GRADIENT, ADAM = "aten::embedding_dense_backward", "Optimizer.step#Adam.step"


def training(*, fill_us=40, sum_us=130, optimizer_us=1_000, optimizer=ADAM, by=GRADIENT):
    """Two gradients, each filled and then of 10 us for its rows; their sum, and the optimizer."""
    events, start = [], 300

    def launch(at, lasts, name, tid=AUTOGRAD):
        nonlocal start
        times = (start * US, (start + lasts) * US)
        events.extend(work(*times, name, launched=at * US, correlation=at + 1, tid=tid))
        start += lasts

    for at in (0, 100):
        events += [
            operator(NODE, at * US, (at + 90) * US, tid=AUTOGRAD),
            operator(by, (at + 1) * US, (at + 50) * US, tid=AUTOGRAD),
            operator("aten::fill_", (at + 2) * US, (at + 10) * US, tid=AUTOGRAD),
        ]
        launch(at + 3, fill_us, "FillFunctor<float>")
        launch(at + 20, 10, "compute_grad_weight")
    if sum_us:
        events.append(operator("aten::add_", 160 * US, 170 * US, tid=AUTOGRAD))
        launch(161, sum_us, "CUDAFunctor_add<float>")
    events.append(annotation(optimizer, 200 * US, 250 * US))
    launch(210, optimizer_us, "multi_tensor_apply_kernel", HOST)
    return events


def test_what_is_done_with_the_whole_table(findings):
    # Twice 40 us, and the sum. As it takes 3.25 times as long as a fill, there is one table, and
    # its part of the optimizer's 1,000 us is 22 times 40.
    [finding] = findings(*training())
    assert (finding.rule, finding.cause, finding.severity) == (
        "TL407",
        "table_gradients",
        CRITICAL,
    )
    assert (finding.cost_ns, finding.bound_ns) == (1_210 * US, (80 + 130 + 880) * US)
    assert (finding.where.count, finding.edit) == (4, "sparse-gradients")
    assert "sparse=True" in finding.fix_short


@pytest.mark.parametrize(
    ("program", "bounds"),
    [
        # Two tables, and less of the optimizer than they would take.
        (training(sum_us=0), [80 + 1_000]),
        (training(optimizer="Optimizer.step#SGD.step"), [80 + 130 + 144]),
        (training(by="aten::_embedding_bag_dense_backward"), [80 + 130 + 880]),
        (training(fill_us=10, sum_us=30), []),  # a small vocabulary
        (training(sum_us=260), []),  # as many sums as gradients: a layer has the same weight
        (training(by="aten::index_put_"), []),
    ],
    ids=["two tables", "SGD", "bag", "few rows", "tied", "none"],
)
def test_how_much_of_the_time_it_is(summaries, program, bounds):
    assert [bound for *_, bound in summaries(*program)] == bounds
