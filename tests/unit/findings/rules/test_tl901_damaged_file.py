"""TL901: damage."""

from types import SimpleNamespace

import pytest

from tests.build.files import US, kernel, text
from tests.build.finding_events import clean
from tracelab.findings.finding import INFO, WARNING
from tracelab.findings.rules.tl901_damaged_file import RULE


def test_broken_off_file_is_damaged(tmp_path, lacks_of_files):
    path = tmp_path / "cut.json"
    path.write_bytes(text([*clean(), kernel(300 * US, 305 * US, "lost")])[:-40])

    assert lacks_of_files(str(path)) == [("TL901", WARNING, 1)]


def test_every_event_that_was_left_out_counts_as_damage(lacks):
    nameless = {
        key: value for key, value in kernel(300 * US, 305 * US, "k").items() if key != "name"
    }
    odd = kernel(300 * US, 305 * US, "k") | {"ph": "?"}

    assert lacks(*clean(), nameless, odd, odd) == [("TL901", WARNING, 3)]


def test_damage_that_was_mended_is_only_mentioned(tmp_path, lacks_of_files):
    path = tmp_path / "nan.json"
    events = clean()
    events[2]["args"]["occupancy"] = 12345
    path.write_bytes(text(events).replace(b"12345", b"nan"))

    assert lacks_of_files(str(path)) == [("TL901", INFO, 1)]


@pytest.mark.parametrize(
    ("loss", "severity"),
    [
        ("truncated", WARNING),
        ("unparsable_events", WARNING),
        ("repairs", INFO),
        ("incomplete_events", WARNING),
        ("unmatched_begin_end", WARNING),
        ("unknown_phases", WARNING),
        ("unreadable_metadata", WARNING),
        ("activities_without_lane", WARNING),
    ],
)
def test_what_is_damage_and_how_bad_each_is(loss, severity):
    [candidate] = RULE.find(SimpleNamespace(losses={loss: 3}))

    assert (candidate.where.count, candidate.severity_override) == (3, severity)
