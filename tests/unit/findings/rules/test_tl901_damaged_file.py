"""TL901: damage."""

from types import SimpleNamespace

import pytest

from tests.build.files import US, kernel, launch, step, text
from tests.build.finding_events import clean
from tests.build.rows import kernel as kernel_row, timeline
from tracelab.findings.finding import INFO, WARNING
from tracelab.findings.rules.trace_quality import RULES

[RULE] = [rule for rule in RULES if rule.id == "TL901"]


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
    context = SimpleNamespace(
        trace=SimpleNamespace(losses={loss: 3}), timeline=timeline(kernel_row(0, 5))
    )

    [candidate] = RULE.find(context)

    assert (candidate.where.count, candidate.severity_override) == (3, severity)


def test_calls_whose_work_is_lost_are_a_warning_where_they_are_many(lacks):
    assert lacks(*clean(), launch(150 * US, 152 * US, 3)) == [("TL901", WARNING, 1)]


def test_lost_work_of_steps_that_are_left_out_is_only_mentioned(lacks):
    # Steps of 400 us, of which the last lost its only kernel.
    rows = [step(number, 400 * US * number, 400 * US * (number + 1)) for number in range(3)]
    rows += [row | {"ts": row["ts"] + 400 * i} for i in range(2) for row in unique(clean(), i)]
    assert ("TL901", INFO, 1) in lacks(*rows, launch(810 * US, 812 * US, 9))


def test_arrows_that_end_nowhere_say_that_activities_are_lost(lacks):
    arrow = {"ph": "f", "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "bp": "e"}
    begin = arrow | {"ph": "s", "pid": 100, "tid": 100, "ts": 1, "id": 1}
    whole = arrow | {"id": 1, "ts": 10}  # where the first kernel starts
    # The second kernel of the graph is lost; of a call that launched nothing no arrow begins.
    lost, of_no_launch = arrow | {"id": 1, "ts": 12}, arrow | {"id": 5, "ts": 12}
    assert lacks(*clean(), begin, whole, of_no_launch) == []
    assert lacks(*clean(), begin, whole, lost) == [("TL901", WARNING, 1)]


def unique(events, number):
    """The events with correlations of their own."""
    return [
        event | {"args": args | {"correlation": 10 * number + args["correlation"]}}
        if "correlation" in (args := event.get("args", {}))
        else event
        for event in events
    ]
