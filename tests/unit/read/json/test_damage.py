"""Where the events begin, whatever is wrong before them."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from unittest import mock

import pytest

from tests.build.files import LAYOUTS, kernel, text
from tests.build.rows import US
from tracelab.base.errors import UnreadableInputError
from tracelab.read.json import damage as json_header
from tracelab.read.json.array import ArrayReader
from tracelab.read.json.damage import first_event, outermost_array, salvage
from tracelab.read.json.events import decode, is_event

TRACES = Path(__file__).parents[4] / "traces"
KEY = "traceEvents"


def read(content):
    """The number of events, the losses, and what stands beside the events."""
    reader = ArrayReader(io.BytesIO(content), "t.json", KEY, decode, is_event)
    count = sum(map(len, reader))
    return count, dict(+reader.losses), reader.metadata


@pytest.fixture(scope="module")
def real():
    """The header of a real trace with some of its events, and where its list begins."""
    content = gzip.decompress((TRACES / "events_item.pt.trace.json.gz").read_bytes())
    begin = content.index(b"[", content.index(b'"traceEvents"')) + 1
    end = content.rindex(b"}", begin, begin + 3_000) + 1
    while True:
        try:
            json.loads(small := content[:end] + b"]}")
        except ValueError:
            end = content.rindex(b"}", begin, end - 1) + 1
        else:
            return small, begin


@pytest.mark.parametrize("byte", [b"?", b'"', b"{", b"}", b"[", b",", b"\\", b"\0", b"\xff", b""])
def test_no_byte_of_a_header_costs_an_event(real, byte):
    """GIVEN a real trace
    WHEN any one byte before the list of its events is another, or missing
    THEN all events are read, and what JSON no longer is is told."""
    content, begin = real
    expected, _, metadata = read(content)
    assert expected > 8
    for place in range(begin - 1):
        damaged = content[:place] + byte + content[place + 1 :]
        try:
            count, losses, found = read(damaged)
        except UnreadableInputError:
            # All of it is one element of a list then.
            assert (byte, content[:place].strip()) == (b"[", b"")
            continue
        if not content[:place].strip() and byte == b"[":
            continue
        is_json = valid(damaged)
        if b'"traceEvents": [' in damaged[: begin + 1]:
            assert count == expected
        else:
            assert expected - count <= 1 or b"[ [" in damaged or b"[[" in damaged
        assert losses or is_json
        if not is_json:
            # What is whole beside the damage is kept, or it is told that it may be missing.
            assert found == metadata or losses


def valid(content):
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if "bare" not in layout])
def test_one_byte_of_a_large_header_in_every_layout(layout):
    """GIVEN 2,060 events below a header of 26 KB with a wrong byte THEN all of them are read."""
    events = [kernel(i * US, (i + 1) * US) for i in range(2_060)]
    header = {"deviceProperties": [{"id": i, "name": "H200"} for i in range(600)], "rank": 3}
    content = text(events, layout=layout, before=header)
    place = content.index(b'"H200"', 9_000)
    count, losses, metadata = read(content[:place] + b"?" + content[place + 1 :])
    assert (count, losses) == (2_060, {"unreadable_metadata": 1})
    assert metadata["rank"] == 3


@pytest.mark.slow
def test_the_loss_is_told_and_the_rank_is_kept(tracelab, tmp_path):
    content = gzip.decompress((TRACES / "fsdp_item_rank1.pt.trace.json.gz").read_bytes())
    place = content.index(b"deviceProperties")
    path = tmp_path / "trace.json"
    path.write_bytes(content[:place] + b'"' + content[place + 1 :])
    report = json.loads(tracelab("analyze", path, "--json", "-").out)
    [trace] = report["traces"]
    assert trace["losses"]["unreadable_metadata"] == 1
    assert (trace["rank"], trace["rank_source"]) == (1, "metadata")
    assert "rank or versions may be missing" in tracelab("analyze", path).out


class TestOutermostArray:
    @pytest.mark.parametrize(
        ("content", "rest"),
        [
            (b'{"b": [1]}', b"1]}"),
            (b'{"a": {"b": [2]}, "b" :\n[1]}', b"1]}"),
            (b'{"a": "\\"b\\": [2", "b": [1]}', b"1]}"),
            (b'{"a": ["b", {"b": [2]}], "b": [1]}', b"1]}"),
            (b'{"a": {"b": [2]}}', None),
            (b'{"b": 1}', None),
            (b"", None),
            (b'{"b', None),
        ],
    )
    def test_is_that_of_the_object_itself(self, content, rest):
        begin = outermost_array(content, "b")
        assert (None if begin is None else content[begin:]) == rest


class TestFirstEvent:
    @pytest.mark.parametrize(
        ("content", "rest"),
        [
            (b'{"a": ?, "e": [{"x": 1', b'{"x": 1'),
            (b'{"a": ?, "e": [], "e": [ {"x": 1', b' {"x": 1'),
            (b'{"a": ?, "e": [{?}], "e": [{"x": 1', b'{"x": 1'),
            (b'{"a": ?, "o": [ {"id": 1}], "x": [{"name": "}", "ph": "X"', None),
            (
                b'{"a": ?, "o": [ {"id": 1}], "x": [{"name": "n", "ph": "X"',
                b'{"name": "n", "ph": "X"',
            ),
            (b'{"a": ?, "e": {"x": 1', None),
        ],
    )
    def test_is_in_the_list_or_looks_like_one(self, content, rest):
        begin = first_event(content, "e")
        assert (None if begin is None else content[begin:]) == rest


def test_salvage_keeps_the_first_of_a_name_and_whole_values():
    assert salvage(b'{"a": [1, ?], "b": {"c": {"a": 2}}, "a": 3, "d": tru, "e": nan}') == {
        "b": {"c": {"a": 2}},
        "a": 3,
        "e": None,
    }


def test_an_integer_of_any_length_is_salvaged():
    header = b'{"rank": 3, "size": %b, "job": {"pid": -%b}, ?' % (b"9" * 5000, b"1" * 19)
    assert salvage(header) == {"rank": 3, "size": float("inf"), "job": {"pid": -1e19 / 9}}


def test_what_is_salvaged_is_scanned_a_few_times_only():
    """GIVEN a thousand nested keys whose values do not end THEN most of them are given up."""
    header = b'{"x": ?, "k": ' + b'{"a": ' * 900 + b"[1" + b",1" * 50_000 + b"?"
    scanned = []

    def scan(text, begin):
        try:
            value, end = json.JSONDecoder().raw_decode(text, begin)
        except json.JSONDecodeError as error:
            scanned.append(error.pos - begin)
            raise
        return value, end

    with mock.patch.object(json_header, "_value_at", scan):
        assert salvage(header) == {}
    assert sum(scanned) < 10 * len(header)


@pytest.mark.parametrize(("letters", "is_found"), [(2_000, True), (2_001, False)])
def test_an_event_says_its_phase_within_2000_letters(letters, is_found):
    event = b'{%b"ph": "X"' % (b" " * letters)
    assert first_event(b'{"a": ?, "x": [' + event, "e") == (15 if is_found else None)


@pytest.mark.parametrize(("letters", "is_found"), [(100, True), (101, False)])
def test_a_key_of_more_than_100_letters_is_none(letters, is_found):
    assert salvage(b'{?, "%b": 3' % (b"k" * letters)) == ({"k" * letters: 3} if is_found else {})


@pytest.mark.parametrize(("beyond", "is_found"), [(0, True), (1, False)])
def test_only_the_first_mib_of_a_header_is_salvaged(beyond, is_found):
    # The value is the last byte of the MiB, or the first one after it.
    begin, end = b'{?, "a": "', b'", "rank": 3'
    header = begin + b"x" * ((1 << 20) + beyond - len(begin) - len(end)) + end
    assert salvage(header).get("rank") == (3 if is_found else None)


@pytest.mark.parametrize(("values", "is_found"), [(8, True), (9, False)])
def test_a_header_is_scanned_eight_times_at_most(values, is_found):
    # Each of these values goes on to the header's end, where it breaks off.
    nested = b'"a": {' * (values - 1) + b'"a": [' + b"1," * 10_000
    header = b"{?, " + nested + b'"rank": 3'
    assert salvage(header) == ({"rank": 3} if is_found else {})


@pytest.mark.parametrize(("values", "is_found"), [(8, True), (9, False)])
def test_a_value_that_is_nested_too_deep_counts_as_10_000_bytes(values, is_found):
    # GIVEN a header of 10,000 bytes, which is scanned eight times at most
    header = b"{?, " + b'"deep": 1, ' * values
    header = header.ljust(10_000 - len(b'"rank": 3')) + b'"rank": 3'

    def value_at(text, begin):
        if text[begin] == "1":
            raise RecursionError
        return json.JSONDecoder().raw_decode(text, begin)

    # THEN
    with mock.patch.object(json_header, "_value_at", value_at):
        assert salvage(header) == ({"rank": 3} if is_found else {})


def test_an_object_around_the_trace_is_read_with_a_loss():
    event = '{"ph": "X", "name": "a", "ts": 1, "dur": 1}'
    assert read(f'{{"result": {{"traceEvents": [{event}]}}}}'.encode())[:2] == (
        1,
        {"unreadable_metadata": 1},
    )


def test_an_object_whose_brace_is_a_bracket_has_a_damaged_header():
    event = '{"ph": "X", "name": "a", "ts": 1, "dur": 1}'
    content = f'["rank": 3, "traceEvents": [{event}]}}'.encode()
    assert read(content) == (1, {"unreadable_metadata": 1}, {"rank": 3})
