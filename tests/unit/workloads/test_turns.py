"""Variants take turns: programs that only say what they are told stand in for them."""

import sys
from contextlib import contextmanager

import pytest

from tests.build import workload_turns as turns
from tests.build.workload_turns import take_turns, takes_turns_with
from tracelab.workloads.catalog import CATALOG, Entry

# Writes down what it is told; a step takes as many milliseconds as its name says.
PROGRAM = """
import sys
name, log = sys.argv[1], sys.argv[2]
print("ready", flush=True)
for line in sys.stdin:
    with open(log, "a") as file:
        print(name, line.strip(), *sys.argv[3:], file=file)
    if line == "record\\n":
        print("trace.json", flush=True)
        break
    if name == "0":
        sys.exit(1)
    print(name, flush=True)
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What the programs were told, in order."""
    script, log = tmp_path / "program.py", tmp_path / "log"
    script.write_text(PROGRAM)
    log.touch()
    command = [sys.executable, str(script)]
    monkeypatch.setattr(turns, "_program", lambda entry: [*command, entry.variant, str(log)])

    @contextmanager
    def gpu():
        log.write_text(log.read_text() + "gpu taken\n")
        yield
        log.write_text(log.read_text() + "gpu left\n")

    return gpu(), lambda: log.read_text().splitlines()


def test_variants_take_turns_and_only_those_with_arguments_are_recorded(told):
    gpu, lines = told
    pair = [Entry("any", "3", "", fix="5"), Entry("any", "5", "")]
    assert take_turns(pair, {"5": ["--steps", "4"]}, gpu, rounds=2) == {"3": [3, 3], "5": [5, 5]}

    begin, *settled = lines()[:3]
    assert begin == "gpu taken"
    assert sorted(settled) == ["3 settle --turns", "5 settle --turns --steps 4"]
    assert lines()[3:] == [
        "3 time --turns",
        "5 time --turns --steps 4",
        "3 time --turns",
        "5 time --turns --steps 4",
        "5 record --turns --steps 4",
        "gpu left",
    ]


def test_program_that_ends_early_is_an_error(told):
    gpu, _ = told
    with pytest.raises(RuntimeError, match="no answer"):
        take_turns([Entry("any", "0", "")], {}, gpu)


def test_every_fix_is_a_variant_of_the_same_workload_that_needs_none():
    by_name = {(entry.workload, entry.variant): entry for entry in CATALOG}
    mended = [entry for entry in CATALOG if entry.fix]
    assert len(mended) >= 33
    for entry in mended:
        assert by_name[entry.workload, entry.fix].fix == ""
        assert entry in takes_turns_with(by_name[entry.workload, entry.fix])


def test_variant_without_a_fix_takes_no_turns():
    assert takes_turns_with(Entry("any", "alone", "")) == ()


def test_planned_line_that_is_captured_joins_the_others():
    pytest.importorskip("torch", reason="capturing needs torch")
    from tests.build.capture_workloads import with_captured

    manifest = {"traces": ["a"], "planned": ["b", "c"]}
    assert with_captured(manifest, "b") == {"traces": ["a", "b"], "planned": ["c"]}
    assert with_captured(manifest, "a") == manifest
    assert with_captured({"traces": ["a"], "planned": ["b"]}, "b") == {"traces": ["a", "b"]}
