"""What was a defect once is none any more, nor are a few new inputs; and a defect is seen."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.mutation import mutate_bytes, mutate_document
from tests.fuzz.run import Runner, run_by_chance
from tests.fuzz.targets import CORPUS, TARGETS
from tracelab.base.errors import UnreadableInputError
from tracelab.measures import window_times

KEPT = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", KEPT, ids=lambda x: f"{x.parent.name}-{x.stem}")
def test_a_former_defect_is_none_any_more(path, tmp_path):
    runner = Runner(TARGETS[path.parent.name], tmp_path)
    runner.give(path.read_bytes())
    assert runner.defects == {}


def test_the_kept_inputs_are_small():
    assert len(KEPT) >= 5
    assert all(path.stat().st_size < 10_000 for path in KEPT)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_some_new_inputs_are_no_defects(target, tmp_path):
    runner, random = Runner(target, tmp_path), Random(7)
    seeds = target.seeds()[:3]
    assert [runner.give(data) for data in seeds[:1]] == [True]
    for _ in range(4):
        runner.give(target.mutate(random.choice(seeds), random))
    assert runner.counts["inputs"] == 5
    assert runner.counts["read"] + runner.counts["refused"] == 5
    assert runner.defects == {}


def test_a_wrong_sum_is_a_defect(monkeypatch, tmp_path):
    def wrong(*given, **named):
        return [
            tuple(replace(device, idle_ns=device.idle_ns + 1) for device in window)
            for window in real(*given, **named)
        ]

    real = window_times.device_metrics
    runner = Runner(TARGETS["report"], tmp_path)
    data = runner.target.seeds()[0]
    assert runner.give(data)
    monkeypatch.setattr(window_times, "device_metrics", wrong)
    assert not runner.give(data)
    [what] = runner.defects
    assert what.startswith("AssertionError")


def test_each_defect_is_kept_once_and_the_rest_is_counted(tmp_path):
    def run(data):
        if data.startswith(b"a"):
            raise UnreadableInputError("no")
        if data.startswith(b"b"):
            raise KeyError(data)

    target = replace(TARGETS["budgets"], run=run, seeds=lambda: [b"aa", b"bb", b"bc", b"cc"])
    runner = Runner(target, tmp_path)
    run_by_chance(runner, 0, Random(0))
    kept = len([path for path in KEPT if path.parent.name == "budgets"])
    assert runner.counts == {"inputs": 4 + kept, "read": 1 + kept, "refused": 1}
    [(what, file)] = runner.defects.items()
    assert what.startswith("KeyError at test_fuzz.py:")
    assert Path(file).read_bytes() == b"bb"


def test_mutants_of_a_document_are_mostly_documents_and_all_differ():
    data = json.dumps(
        {"a": [1, {"b": 2}], "traceEvents": [{"name": "x", "ts": 1, "dur": 2, "args": {"n": 1}}]}
    ).encode()
    made = [mutate_document(data, Random(seed)) for seed in range(200)]
    assert made == [mutate_document(data, Random(seed)) for seed in range(200)]
    assert len({*made}) > 100

    def is_document(one):
        try:
            json.loads(one)
        except ValueError:
            return False
        return True

    assert sum(map(is_document, made)) > 150
    assert {*(mutate_bytes(b"", Random(seed)) for seed in range(20))} > {b""}
