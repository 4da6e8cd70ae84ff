"""A note on a kernel that fills the time with few blocks: steps of 100 us, 90 of them a kernel."""

import pytest

from tests.build import files
from tests.build.files import US
from tests.build.finding_events import work
from tests.figures import figures
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.findings.rules import serialized_streams as module

GPU = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]}
STEPS = 4


@pytest.fixture
def notes(tmp_path):
    """The notes on a file of steps with a kernel each, whose grids are given, and other work."""

    def find(*grids, others=(), before=None, of_step=None):
        rows = []
        for number in range(STEPS):
            begin = 100 * number * US
            rows += [
                files.step(number, begin, begin + 99 * US),
                *work(
                    begin + 5 * US,
                    begin + 95 * US,
                    "void at::native::scan<float>(float*)",
                    launched=begin + US,
                    correlation=1 + number,
                    grid=grids[number % len(grids)],
                ),
            ]
        path = files.write(tmp_path / "hand.json", [*rows, *others], before=before or GPU)
        report = analyze(path, Options(cache=False, prices=False, step=of_step))
        return [note.text for note in report.notes]

    return find


def test_most_multiprocessors_are_empty_all_the_time(notes, snapshot):
    # Four kernels of 90 us, in steps that last until 399: 360 of 399.
    [text] = notes([32, 1, 1])
    assert figures(text) == ["90.2 %", "0", "32", "100", "132"]
    assert text == snapshot


def test_grids_of_all_launches_count(notes, snapshot):
    [text] = notes([8, 2, 1], [8, 4, 2])
    assert {"16", "64", "68", "132"} <= {*figures(text)}
    assert text == snapshot
    assert "its 1 block leaves at least 131 of 132" in notes([1, 1, 1])[0]


def test_of_many_launches_only_the_first_are_looked_at(notes, monkeypatch, snapshot):
    monkeypatch.setattr(module, "_MAX_LAUNCHES", 3)
    [text] = notes([8, 1, 1], [9, 1, 1], [7, 1, 1], [67, 1, 1])
    assert {"3", "7", "9", "123", "132"} <= {*figures(text)}
    assert text == snapshot


def test_nothing_is_said_of_a_single_step(notes):
    assert notes([32, 1, 1], of_step=1) == []


def test_half_of_the_multiprocessors_is_the_limit(notes):
    assert len(notes([66, 1, 1])) == 1
    assert notes([67, 1, 1]) == []
    assert notes([32, 1, 1], [67, 1, 1]) == []


def test_nothing_is_said_where_other_work_runs_beside_it(notes):
    beside = [
        row
        for number in range(STEPS)
        for row in work(
            (100 * number + 10) * US,
            (100 * number + 40) * US,
            launched=(100 * number + 3) * US,
            correlation=50 + number,
            stream=20,
        )
    ]
    assert notes([32, 1, 1], others=beside) == []


@pytest.mark.parametrize("grid", [None, [], [32, "1", 1]])
def test_nothing_is_said_where_the_file_does_not_say_how_many_there_are(notes, grid):
    assert notes(grid) == []
    assert notes([32, 1, 1], before={"schemaVersion": 1}) == []
