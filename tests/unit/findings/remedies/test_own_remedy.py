"""The recipe of ``tracelab.findings.remedy``: a remedy is one entry."""

import inspect
import re
import textwrap

import pytest

from tests.build.files import US, operator, python, write
from tests.build.finding_events import work
from tests.figures import figures
from tracelab import Instead, Remedy, analyze
from tracelab.findings import remedy as recipe

KERNELS = 10


@pytest.fixture
def own_remedy():
    """The remedy of the recipe, from its text."""
    text = re.search(r"\n( +Remedy\(.*?\n +\))\n\n", inspect.getdoc(recipe), re.DOTALL)[1]
    return eval(textwrap.dedent(text), {"Remedy": Remedy, "Instead": Instead})


def test_remedy_of_the_recipe_is_recognized(own_remedy, tmp_path, snapshot):
    # GIVEN an optimizer's loop that launches a kernel of 5 us every 20 us, and 200 us of compute
    # that some other function launches late
    end = 20 * KERNELS * US
    loop = "torch/optim/adam.py(345): _single_tensor_adam"
    rows = [python("train.py(3): step", 0, end + 400 * US), python(loop, 0, end)]
    for i in range(KERNELS):
        start = (20 * i + 10) * US
        rows += [
            operator("aten::mul_", start - 5 * US, start - US),
            *work(start, start + 5 * US, "mul", launched=start - 4 * US, correlation=i + 1),
        ]
    rows += work(end + 20 * US, end + 220 * US, launched=end + 15 * US, correlation=KERNELS + 1)

    # WHEN
    report = analyze(write(tmp_path / "hand.json", rows), remedies=(own_remedy,))

    # THEN the gaps of 15 us between its kernels are one finding, the 25 us behind them another
    by_remedy = {x.remedy: x for x in report.findings if x.rule == "TL301"}
    assert by_remedy.keys() == {own_remedy.id, None}
    found, rest = by_remedy[own_remedy.id], by_remedy[None]
    assert found.cost_ns == 15 * US * (KERNELS - 1)
    assert rest.cost_ns == 25 * US
    assert found.title == snapshot
    assert figures(found.fix) == ["2.0"]
    assert found.fix == snapshot
    assert found.source == f"{own_remedy.source} ({own_remedy.url})"
    assert found.edit == f"fuse:remedy:{own_remedy.id}"
