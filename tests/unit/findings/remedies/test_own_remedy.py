"""The recipe of ``tracelab.findings.remedy``: a remedy is one record."""

import inspect
import re
import textwrap

import pytest

from tests.build.call_trees import LAUNCH, function, program
from tests.build.files import US, operator, python, write
from tests.build.finding_events import work
from tests.build.rows import graph
from tests.figures import figures
from tracelab import analyze
from tracelab.findings import remedy as recipe
from tracelab.findings.remedies import load_remedies
from tracelab.findings.remedy import recognize

KERNELS = 10


@pytest.fixture
def record():
    """The record of the recipe, which is a dozen lines."""
    text = re.search(r"\n( +\[\[remedy\]\]\n.*?)\n\n", inspect.getdoc(recipe), re.DOTALL)[1]
    return textwrap.dedent(text)


def test_remedy_of_the_recipe_is_recognized(record, tmp_path, snapshot):
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
    [own_remedy] = load_remedies(record, "mine.toml")
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


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("rules =", "rule =", "no such key: rule"),
        ('url = "', 'url = 3 # "', "Expected `str`, got `int` - at `$.url`"),
        ('text = "', 'txt = "', "Object missing required field `text` - at `$.fixes[0]`"),
        ('name = "', '# name = "', "Object missing required field `name`"),
        ('"launches"', '"lanches"', "no recognizer is called 'lanches' - at `$.occurs`"),
        ('"launches"', '"loops._turns"', "no recognizer is called 'loops._turns' - at `$.occurs`"),
        ('"launches"', "3", "no recognizer is called '3' - at `$.occurs`"),
        ('{ is = "launches", least = 5 }', "3", "no recognizer is called '3' - at `$.occurs`"),
        ("least = 5", "most = 5", "launches: missing a required argument: 'least' - at `$.occurs`"),
    ],
)
def test_a_wrong_record_is_refused_by_name_and_key(record, right, wrong, what):
    assert right in record
    with pytest.raises(ValueError, match=r"^mine\.toml, remedy 1 \(optimizer-loop\): ") as error:
        load_remedies(record.replace(right, wrong), "mine.toml")
    assert str(error.value).partition(": ")[2] == what


def test_lines_of_a_text_are_joined_by_spaces_and_those_of_a_pattern_by_nothing(record):
    frames, name = "_single_tensor_\\w+$'", '"an optimizer that'
    text = record.replace("'torch/optim", "'''\ntorch/\noptim").replace(frames, f"{frames}''")
    text = text.replace(name, '"""\nan optimizer\nthat').replace('a time"', 'a time"""', 1)
    assert text != record
    [one], [other] = load_remedies(record, "mine.toml"), load_remedies(text, "mine.toml")
    assert (one.frames, one.name) == (other.frames, other.name)


def test_a_file_that_is_no_toml_is_refused_by_its_line(record):
    with pytest.raises(ValueError, match=r"^mine\.toml: .* \(at line 1, column 9\)$"):
        load_remedies("[[remedy]\n" + record, "mine.toml")


def test_not_takes_away_what_a_recognizer_would_leave(record):
    def events_of(occurs):
        text = re.sub(r"(?m)^occurs = .*$", f"occurs = {occurs}", record)
        built = graph(*program(function("torch/optim/adam.py(345): _single_tensor_adam", LAUNCH)))
        places = recognize(built, load_remedies(text, "mine.toml")).places
        return len(places.get("optimizer-loop", ()))

    assert events_of('["calls_cuda"]') > 0
    assert events_of('[{ not = "calls_cuda" }]') == 0
    assert events_of('[{ not = "calls_cuda", function = "Free" }]') == events_of("[]")
