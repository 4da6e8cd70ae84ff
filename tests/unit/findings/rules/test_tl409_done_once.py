"""TL409: steps of 100 us, of which the GPU spends 60 on adapters next to their layer."""

from tests.build.files import US, python
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

LORA = "peft/tuners/lora/layer.py(1074): forward"


def inference(*, forward=LORA, steps=4):
    events = []
    for i in range(steps):
        at = 100 * i
        events += [
            python("train.py(3): embed", (at + 0.5) * US, (at + 21) * US),
            python(forward, (at + 1) * US, (at + 20) * US),
            python("nn.Module: Linear_0", (at + 2) * US, (at + 9) * US),
            python("nn.Module: Linear_1", (at + 10) * US, (at + 19) * US),
            *work((at + 10) * US, (at + 50) * US, launched=(at + 3) * US, correlation=2 * i + 1),
            *work((at + 50) * US, (at + 110) * US, launched=(at + 11) * US, correlation=2 * i + 2),
        ]
    return events


def test_adapters_that_are_not_merged(findings):
    [finding] = findings(*inference())

    assert (finding.rule, finding.cause, finding.severity) == ("TL409", "unprepared", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns, finding.where.count) == (240 * US, 240 * US, 4)
    assert (finding.remedy, finding.edit) == (
        "unmerged-adapters",
        "remove:remedy:unmerged-adapters",
    )
    assert finding.where.function == "embed"


def test_is_silent_about_other_layers(summaries):
    assert summaries(*inference(forward="model.py(9): forward")) == []
