"""Where the events of a file stand, and which of them are chosen."""

from pathlib import Path

import numpy as np
import pytest

from tests.build import files
from tests.build.files import US
from tests.bundled_traces import PATHS
from tracelab.base.errors import UnreadableInputError
from tracelab.read.reader import EventArray, Head, Selection, locate_events
from tracelab.read.streams import Source, open_source


def located(content: bytes, folder: Path) -> EventArray:
    path = folder / "in.json"
    path.write_bytes(content)
    return locate_events(Source(str(path), None, named=True))


@pytest.mark.parametrize("layout", files.LAYOUTS)
def test_the_array_is_between_its_brackets(layout, tmp_path):
    events = [files.kernel(US * i, US * i + 500, "]}, {") for i in range(5)]
    content = files.text(events, layout=layout, before={"a": "["}, after={"b": "]"})
    array = located(content, tmp_path)
    assert content[array.begin - 1 : array.begin] == b"["
    assert array.is_bare == layout.startswith("bare")
    assert array.breaks_off == ("open" in layout)
    if not array.breaks_off:
        assert content[array.end : array.end + 1] == b"]"
    assert not array.losses
    assert array.threads == {("0", "7"): (0, 7)}


@pytest.mark.parametrize("path", PATHS[::20], ids=lambda path: path.name)
def test_that_of_a_capture(path):
    source = Source(str(path), None, named=True)
    array = locate_events(source)
    with open_source(source) as stream:
        content = stream.read()
    assert content[array.begin - 1 : array.begin] == b"["
    assert content[array.end : array.end + 1] == b"]"
    assert b"{" not in content[content.rindex(b"}", 0, array.end) : array.end]


def test_ids_are_as_written(tmp_path):
    ids = [(100, 7), ("Spans", "x"), (-1, 2**31), (1.5, None), ("100", 8)]
    events = [{"ph": "X", "pid": pid, "tid": tid} for pid, tid in ids]
    events += [{"ph": "M", "pid": [1], "tid": {}}]
    array = located(files.text(events), tmp_path)
    assert array.threads == {
        ("100", "7"): (100, 7),
        ("Spans", "x"): ("Spans", "x"),
        ("-1", str(2**31)): (-1, 2**31),
        ("1.5", ""): (1.5, None),
        ("100", "8"): ("100", 8),
        ("", ""): (None, None),
    }


def test_a_file_that_breaks_off_ends_after_its_last_whole_event(tmp_path):
    content = b'{"traceEvents": [{"ph": "X"}, {"ph": "M"}, {"ph"'
    array = located(content, tmp_path)
    assert array.breaks_off
    assert content[: array.end].rstrip(b", ") == b'{"traceEvents": [{"ph": "X"}, {"ph": "M"}'


@pytest.mark.parametrize("after", [b', "a": "x', b', "a": 1', b","])
def test_what_follows_the_events_may_break_off(after, tmp_path):
    content = b'{"traceEvents": [{"ph": "X"}]' + after
    array = located(content, tmp_path)
    assert array.breaks_off
    assert content[array.end :] == b"]" + after


def test_without_events_there_is_nothing_to_find(tmp_path):
    with pytest.raises(UnreadableInputError):
        located(b'{"events": []}', tmp_path)


SELECTION = Selection(
    file_index=np.array([3, 5, 9]), correlation=np.array([7, 42]), start_us=100.0, end_us=200.0
)


def test_complete_events_are_chosen_one_by_one():
    assert SELECTION.chosen(0, 5) == {3}
    assert SELECTION.chosen(5, 5) == {5, 9}
    assert SELECTION.chosen(10, 5) == set()


@pytest.mark.parametrize(
    ("head", "is_kept"),
    [
        (Head(ph="M"), True),
        (Head(ph="B", ts=5), True),
        (Head(ph="X", ts=150), False),
        (Head(ph="i", ts=100), True),
        (Head(ph="i", ts=200), False),
        (Head(ph="C", ts="150.5"), True),
        (Head(ph="C", ts="soon"), False),
        (Head(ph="i"), False),
        (Head(ph="s", cat="ac2g", id=42, ts=5), True),
        (Head(ph="f", cat="ac2g", id=43, ts=5), False),
        (Head(ph="f", cat="ac2g", id=99, ts=5), False),
        (Head(ph="f", cat="ac2g", id="42", ts=5), False),
        (Head(ph="s", cat="fwdbwd", id=42, ts=5), False),
        (Head(ph="s", cat="fwdbwd", id=1, ts=150), True),
    ],
)
def test_others_are_kept_by_what_they_are(head, is_kept):
    assert SELECTION.keeps(head) is is_kept
