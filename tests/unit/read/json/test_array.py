"""The array reader: whatever the layout and wherever a piece is cut, it gives what JSON says."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import tracemalloc
from typing import Any
from unittest import mock

import orjson
import pytest
from hypothesis import given, strategies as st

from tests.build.files import LAYOUTS, US, complete_event, damaged, kernel, text
from tests.checks import with_each
from tests.examples import examples
from tracelab.base.errors import UnreadableInputError
from tracelab.read.json import array as json_array
from tracelab.read.json.array import ArrayReader

KEY = "traceEvents"
SMALL_PIECES = st.integers(1, 400) | st.sampled_from([64, 4096])


def is_event(element: Any) -> bool:
    return isinstance(element, dict) and "ph" in element


def reader_of(content: bytes) -> ArrayReader:
    return ArrayReader(io.BytesIO(content), "t.json", KEY, orjson.loads, is_event)


def read(content: bytes, piece_bytes: int = 4096) -> tuple[list[Any], dict[str, Any], Any]:
    """Elements, metadata and the losses that are not zero."""
    with mock.patch.object(json_array, "PIECE_BYTES", piece_bytes):
        reader = reader_of(content)
        elements = [element for piece in reader for element in piece]
    return elements, reader.metadata, dict(+reader.losses)


# Texts that look like the structure around them.
nasty_text = st.text(max_size=8) | st.sampled_from(
    [
        "}, {",
        "},\n  {",
        "},{",
        "]}",
        '"}, {"ph": "X"',
        '"traceEvents": [',
        "nan",
        ", nan,",
        "\\",
        "é𝄞",
    ]
)
leaf = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | nasty_text
)
value = st.recursive(
    leaf,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(nasty_text | st.just("ph"), inner, max_size=3)
    ),
    max_leaves=8,
)
element = st.fixed_dictionaries(
    {"ph": st.sampled_from("XMBEi"), "name": nasty_text}, optional={"args": value, "ts": leaf}
)
keys = st.dictionaries(nasty_text.filter(lambda key: key != KEY), value, max_size=2)


@examples(400)
@given(
    st.lists(element | value, max_size=12),
    st.sampled_from(sorted(LAYOUTS)),
    keys,
    keys,
    SMALL_PIECES,
)
def test_every_layout_cut_anywhere_equals_plain_json(events, layout, before, after, piece_bytes):
    content = text(events, layout=layout, before=before, after=after)
    elements, metadata, losses = read(content, piece_bytes)
    # A closed list is what the bare layouts mean.
    closed = content.rstrip(b",\n") + b"]" if layout.startswith("bare_open") else content
    expected = orjson.loads(closed)
    if isinstance(expected, dict):
        assert elements == expected.pop(KEY)
        assert metadata == expected
    else:
        assert elements == expected
        assert metadata == {}
    assert losses == {}


NESTED = [
    complete_event("a", "c", US, 3 * US, list=[{"ph": "X", "a": 1}, {"ph": "X", "b": [{}, {}]}]),
    complete_event(
        "}, {", "c", US, 3 * US, text='{"ph": "X"}, {"ph": "X"}]}', list=[{"ph": "X"}, {"ph": "X"}]
    ),
    complete_event("b", "c", US, 3 * US),
] * 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_objects_in_the_arguments_are_no_elements_at_any_cut(layout):
    """GIVEN events whose arguments hold lists of what looks like events
    WHEN the file is read in pieces of every size
    THEN there are only the outer events."""
    content = text(NESTED, layout=layout, before={"a": [{}, {}]}, after={"z": [{}, {}]})
    for piece_bytes in range(1, 300):
        elements, _, losses = read(content, piece_bytes)
        assert elements == NESTED
        assert losses == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"distributedInfo": {"rank": 3}, "list": [{"a": 1}, {"a": 2}]}),
        ({"distributedInfo": {"rank": 3}, "list": [{"a": 1}, {"a": 2}]}, {}),
        ({"a": 'the text "traceEvents": [ in a string'}, {"b": '], "traceEvents": ['}),
        ({"inner": {"traceEvents": [1, 2]}}, {"inner2": {"traceEvents": [3]}}),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 7, 64, 4096])
def test_metadata_may_stand_before_and_after_the_array(before, after, piece_bytes):
    events = [kernel(US, 3 * US, "k"), kernel(3 * US, 7 * US, "l")]
    elements, metadata, losses = read(text(events, before=before, after=after), piece_bytes)
    assert elements == events
    assert metadata == {**before, **after}
    assert losses == {}


def test_byte_order_mark_and_blanks_before_the_object():
    content = (
        b"\xef\xbb\xbf" + b" \r\n\t" * 100 + text([kernel(US, 3 * US, "k")], layout="one_line")
    )
    assert len(read(content, 64)[0]) == 1


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b" ", b"\t", b"\r", b"\n"])
def test_byte_order_mark_and_blanks_before_a_bare_list(before):
    assert read(before + text([kernel(US, 3 * US, "k")], layout="bare"))[1:] == ({}, {})


def test_separators_may_change_within_a_file():
    a, b, c = (json.dumps(kernel(US, 3 * US, name)) for name in "abc")
    content = f'{{"traceEvents": [{a},{b} ,\n{c} , {a},\t{b}\n]}}'.encode()
    for piece_bytes in range(1, 200):
        assert [e["name"] for e in read(content, piece_bytes)[0]] == list("abcab")


# One damaged text between good events: what comes out of it, and the losses.
GOOD = json.dumps(kernel(US, 3 * US, "good"))
LOST = {"unparsable_events": 1}
DAMAGED = {
    "garbage": ("{oops}", [], {"unparsable_events": 1}),
    "bare_text": ("oops", [], {"unparsable_events": 1}),
    "cut_off": ('{"ph": "X", "name": "a", "ar', [], {"unparsable_events": 1}),
    "missing_brace": ('{"ph": "X", "args": {"a": 1}', [], {"unparsable_events": 1}),
    "wrong_bracket": ('{"ph": "X", "args": {"a": [1, 2}}', [], {"unparsable_events": 1}),
    "nested": (
        '{"ph": "X", "args": [{"a": 1}, {"a": 2}], oops}',
        [],
        {"unparsable_events": 1},
    ),
    "number_too_large": ('{"ph": "X", "ts": 1e999}', [], {"unparsable_events": 1}),
    "half_surrogate": ('{"ph": "X", "name": "\\ud800"}', [], {"unparsable_events": 1}),
    "too_deep": ('{"ph": "X", "a": ' + "[" * 3000 + "]" * 3000 + "}", [], {"unparsable_events": 1}),
    "two_in_a_row": ("{oops}, {oops}", [], {"unparsable_events": 2}),
    "nan": (
        '{"ph": "X", "args": {"a": nan, "b": [-inf, Infinity, NaN]}}',
        [{"ph": "X", "args": {"a": None, "b": [None, None, None]}}],
        {"repairs": 1},
    ),
    "nan_and_objects": (
        '{"ph": "X", "args": [{"a": nan}, {"b": 2}, {"c": 3}]}',
        [{"ph": "X", "args": [{"a": None}, {"b": 2}, {"c": 3}]}],
        {"repairs": 1},
    ),
    "two_mended": (
        '{"ph": "X", "a": nan}, {"ph": "X", "a": inf}',
        [{"ph": "X", "a": None}, {"ph": "X", "a": None}],
        {"repairs": 2},
    ),
    "garbage_then_nan": (
        '{oops}, {"ph": "X", "a": nan}',
        [{"ph": "X", "a": None}],
        {"unparsable_events": 1, "repairs": 1},
    ),
    # pytorch/pytorch#113001: a line of source, and a raw line break, as the name
    "quotes": (
        '{"ph": "X", "cat": "python_function", "name": "lib = Library("_test", "IMPL")\n(1): m", '
        '"pid": 7, "args": {"name": "fine"}}',
        [
            {
                "ph": "X",
                "cat": "python_function",
                "name": 'lib = Library("_test", "IMPL") (1): m',
                "pid": 7,
                "args": {"name": "fine"},
            }
        ],
        {"repairs": 1},
    ),
    # pytorch/kineto#1459: generated code whose file name is a dict
    "quotes_and_colons": (
        '{"ph": "X", "name": "{"device": "cpu", "dtype": "f32"}(12): run", "pid": 7}',
        [{"ph": "X", "name": '{"device": "cpu", "dtype": "f32"}(12): run', "pid": 7}],
        {"repairs": 1},
    ),
    # pytorch/pytorch#98432: paths of Windows
    "backslashes": (
        '{"ph": "X", "name": "torch\\nn\\modules\\__init__.py(219): f", "pid": 7}',
        [{"ph": "X", "name": "torch\\nn\\modules\\__init__.py(219): f", "pid": 7}],
        {"repairs": 1},
    ),
    "backslashes_and_escapes": (
        r'{"ph": "X", "name": "C:\dir \"a\" b\\c d\/e"}',
        [{"ph": "X", "name": 'C:\\dir "a" b\\c d/e'}],
        {"repairs": 1},
    ),
    "backslash_u": (
        '{"ph": "X", "name": "C:\\u123 f"}',
        [{"ph": "X", "name": "C:\\u123 f"}],
        {"repairs": 1},
    ),
    "nan_and_escapes": (
        r'{"ph": "X", "a": nan, "name": "\b\f\n\r\t\/\"\\\u00e9"}',
        [{"ph": "X", "a": None, "name": '\b\f\n\r\t/"\\é'}],
        {"repairs": 1},
    ),
    "control_character": (
        '{"ph": "X", "name": "a\x01\tb"}',
        [{"ph": "X", "name": "a  b"}],
        {"repairs": 1},
    ),
    "broken_utf8": (
        '{"ph": "X", "name": "a\udcffb"}',
        [{"ph": "X", "name": "a\ufffdb"}],
        {"repairs": 1},
    ),
    "doubled_comma": (f"{GOOD},,{GOOD}", [json.loads(GOOD)] * 2, {"repairs": 1}),
    "missing_comma": (f"{GOOD} {GOOD}", [json.loads(GOOD)] * 2, {"repairs": 1}),
}


@with_each(itertools.product(DAMAGED, [",", ", ", ",\n  "], [(0, 4), (3, 3), (4, 0)]))
def test_damage_costs_only_what_is_damaged(case):
    """GIVEN a damaged event among good ones
    WHEN the file is read in pieces of any size
    THEN every good event is there, in order, and the damage is counted once."""
    damage, separator, (before, after) = case
    bad, mended, expected = DAMAGED[damage]
    good = json.loads(GOOD)
    array = separator.join([GOOD] * before + [bad] + [GOOD] * after)
    content = f'{{"a": 1, "traceEvents": [{array}\n], "rank": 5}}'.encode(
        "utf-8", "surrogateescape"
    )
    for piece_bytes in (16, 50, 150, 1000, 100_000):
        elements, metadata, losses = read(content, piece_bytes)
        assert elements == [good] * before + mended + [good] * after
        assert losses == expected
        assert metadata == {"a": 1, "rank": 5}


@pytest.mark.parametrize("key", ["cat", "pid", "tid", "ts", "dur", "args", "id", "s"])
def test_a_name_with_bare_quotes_ends_before_a_key_of_events(key):
    content = f'[{GOOD}, {{"ph": "X", "name": "a "b" c", "{key}": 7}}]'.encode()
    elements, _, losses = read(content)
    assert elements[1:] == [{"ph": "X", "name": 'a "b" c', key: 7}]
    assert losses == {"repairs": 1}


def test_a_name_with_bare_quotes_ends_before_the_phase():
    content = f'[{GOOD}, {{"name": "a "b" c", "ph": "X"}}]'.encode()
    assert read(content)[0][1:] == [{"name": 'a "b" c', "ph": "X"}]


def test_only_the_damaged_event_is_mended():
    """GIVEN a good event whose name looks like a fault, beside a damaged one
    THEN the good one is untouched."""
    good = '{"ph": "X", "name": "f(a, nan, b)\\t"}'
    content = f'[{good}, {{"ph": "X", "a": nan}}, {good}, {{oops}}, {good}]'.encode()
    elements, _, losses = read(content)
    assert [e.get("name") for e in elements] == ["f(a, nan, b)\t", None] + ["f(a, nan, b)\t"] * 2
    assert losses == {"repairs": 1, "unparsable_events": 1}


@pytest.mark.parametrize("end", ["", "\n", ",\n"])
def test_the_last_event_of_an_open_list_is_there_beside_damage(end):
    for piece_bytes in (8, 100, 1000):
        elements, _, losses = read(f"[{GOOD}, {{oops}}, {GOOD}{end}".encode(), piece_bytes)
        assert elements == [json.loads(GOOD), json.loads(GOOD)]
        assert losses == {"unparsable_events": 1}


def test_the_last_event_of_an_open_list_is_mended():
    elements, _, losses = read(f'[{GOOD}, {{"ph": "X", "a": nan}}'.encode())
    assert elements == [json.loads(GOOD), {"ph": "X", "a": None}]
    assert losses == {"repairs": 1}


@pytest.mark.parametrize("end", ["]", "]}", '], "a": [1]}'], ids=["list", "object", "more"])
def test_the_array_ends_behind_its_damaged_last_event(end):
    before = "[" if end == "]" else '{"traceEvents": ['
    elements, _, losses = read(f"{before}{GOOD}, {{oops{end}".encode())
    assert (elements, losses) == ([json.loads(GOOD)], {"unparsable_events": 1})


@examples(300)
@given(
    st.sampled_from(sorted(LAYOUTS)),
    st.lists(
        st.tuples(
            st.sampled_from(["delete", "insert", "flip"]),
            st.integers(0, 10_000),
            st.sampled_from(b'{}[]",:\\0-en \n\x00\xff'),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_damage_is_told_and_reads_the_same_at_any_cut(layout, mutations):
    """GIVEN a trace with a few wrong bytes
    WHEN it is read in pieces of several sizes
    THEN all read the same; without a loss it is what plain JSON says, else something is counted."""
    nested = complete_event(
        "}, {", "c", US, 3 * US, text='"}], {', list=[{"a": 1}, {"b": [{}, {}]}]
    )
    events = [
        nested,
        kernel(1_500, 3_500, "k"),
        {"ph": "M", "name": "x"},
        nested,
        kernel(3 * US, 7 * US, "l"),
    ]
    content = text(events, layout=layout, before={"a": [1]}, after={"rank": {"b": 3}})
    start = content.index(b'"ph"')  # after it, because a wrong header is another file
    content = content[:start] + damaged(content[start:], mutations)

    def outcome(piece_bytes: int) -> Any:
        try:
            return read(content, piece_bytes)
        except UnreadableInputError as error:
            return str(error)

    whole = outcome(1 << 19)
    assert [outcome(piece_bytes) for piece_bytes in (33, 64, 200, 1000)] == [whole] * 4
    if isinstance(whole, str) or whole[2]:
        return
    try:
        plain = orjson.loads(content)
    except orjson.JSONDecodeError:
        plain = orjson.loads(content.rstrip(b", \n") + b"]")  # a list needs no end
    assert whole[0] == (plain[KEY] if isinstance(plain, dict) else plain)


def test_trailing_comma_in_a_closed_list_is_mended():
    for piece_bytes in (8, 1000):
        elements, metadata, losses = read(
            f'{{"traceEvents": [{GOOD}, {GOOD},\n], "rank": 5}}'.encode(), piece_bytes
        )
        assert (len(elements), metadata, losses) == (2, {"rank": 5}, {"repairs": 1})


def test_faults_in_the_metadata_are_mended_or_told():
    def around(before: str, after: str) -> tuple[int, Any, Any]:
        elements, *rest = read(f'{{{before} "traceEvents": [{GOOD}] {after}}}'.encode())
        return len(elements), *rest

    assert around('"a": nan,', ', "b": "C:\\Users\\d"') == (
        1,
        {"a": None, "b": "C:\\Users\\d"},
        {"repairs": 2},
    )
    assert around("", ", oops") == (1, {}, {"unreadable_metadata": 1})
    assert around("", "} more {") == (1, {}, {"unreadable_metadata": 1})
    assert read(f"[{GOOD}] more".encode())[2] == {"unreadable_metadata": 1}


def ends_of_elements(content: bytes) -> list[int]:
    """Where each element of the array ends, found another way."""
    chars = content.decode("latin-1")
    start = chars.index("[", max(0, chars.find(KEY))) + 1
    ends = []
    while opening := re.compile(r"[\s,]*(?=\{)").match(chars, start):
        start = json.JSONDecoder().raw_decode(chars, opening.end())[1]
        ends.append(start)
    return ends


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if "open" not in layout])
def test_a_file_that_ends_early_gives_all_events_before(layout):
    """GIVEN a file cut at every byte
    WHEN it is read in pieces of two sizes
    THEN every event that is complete is there, and the cut is counted."""
    events = [
        complete_event("é}, {", "c", 1_500, 3_500, list=[{"ph": "X"}, {"a": [1]}]) for _ in range(3)
    ]
    content = text(events, layout=layout, before={"a": [1]}, after={"b": {"c": 1}}).rstrip()
    ends = ends_of_elements(content)
    assert len(ends) == 3
    for end in range(len(content)):
        complete = sum(e <= end for e in ends)
        for piece_bytes in (40, 4096):
            try:
                elements, _, losses = read(content[:end], piece_bytes)
            except UnreadableInputError:
                assert complete == 0
                continue
            assert elements == events[:complete]
            # A bare list that stops between two events is a whole one.
            whole = layout == "bare" and content[:end].rstrip(b", \n")[-1:] in (b"[", b"}")
            assert losses == {"truncated": 1} or (whole and losses == {})


def test_damaged_compression_gives_the_events_before():
    """GIVEN compressed files cut at every byte, or with a wrong byte
    THEN the events are a prefix, and no good byte before the damage is thrown away."""
    events = [complete_event(f"name {i * i * 7919}", "c", i * US, (i + 2) * US) for i in range(40)]
    packed = gzip.compress(text(events))
    counts = []
    for end in range(30, len(packed)):
        reader = reader_of(b"")
        reader._stream = gzip.GzipFile(fileobj=io.BytesIO(packed[:end]))
        try:
            elements = [element for piece in reader for element in piece]
        except UnreadableInputError:
            elements = []
        else:
            assert reader.losses["truncated"] == 1
        assert elements == events[: len(elements)]
        counts.append(len(elements))
    assert counts == sorted(counts)
    assert counts[-1] == 40  # only the checksum is missing
    assert counts[len(counts) // 2] > 5


def test_an_error_of_the_disk_is_an_early_end():
    class Failing(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError("input/output error")
            return super().read1(size)

    content = text([kernel(US, 3 * US, "k"), kernel(US, 3 * US, "l")])
    reader = reader_of(b"")
    reader._stream = Failing(content[:-70])
    assert [e["name"] for piece in reader for e in piece] == ["k"]
    assert dict(reader.losses)["truncated"] == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n\t ", "the file is empty"),
        (b"hello", "neither a JSON object nor a list"),
        (b"12", "neither a JSON object nor a list"),
        (b'"text"', "neither a JSON object nor a list"),
        (b"\x00\x00", "neither a JSON object nor a list"),
        (b"{}", 'this JSON has no "traceEvents" list'),
        (b'{"a": 1}', 'this JSON has no "traceEvents" list'),
        (b'{"traceEvents": {"a": 1}}', 'this JSON has no "traceEvents" list'),
        (b'{"traceEvents": null}', 'this JSON has no "traceEvents" list'),
        (b'{"traceEvents": "[]"}', 'this JSON has no "traceEvents" list'),
        (b'{"a": {"traceEvents": []}}', 'this JSON has no "traceEvents" list'),
        (b'{"a": 1', "it ends before the first event, or is not valid JSON"),
        (b"{oops, ", "it ends before the first event, or is not valid JSON"),
        (b'{oops, "traceEvents": []}', "it ends before the first event, or is not valid JSON"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(content, reason):
    for piece_bytes in (1, 4096):
        with pytest.raises(UnreadableInputError) as caught:
            read(content, piece_bytes)
        assert str(caught.value).startswith(f"t.json: {reason}")
        assert "\n" not in str(caught.value)


def test_what_never_becomes_an_event_is_given_up(monkeypatch):
    """GIVEN small limits
    WHEN a header, an element or a stretch of damage goes beyond them
    THEN nothing more is read: refused without an event, else counted as the end."""
    monkeypatch.setattr(json_array, "LIMIT_BYTES", 2000)
    monkeypatch.setattr(json_array, "_DAMAGE_LIMIT_BYTES", 1000)
    long = b'"' + b"x" * 3000 + b'"'
    for content in (
        b'{"a": ' + long + b', "traceEvents": []}',
        b'[{"a": ' + long + b"}]",
        b"[" + b"{'ph': 'X'}, " * 200,
    ):
        with pytest.raises(UnreadableInputError, match=r"^t\.json: no(ne of its events| )"):
            read(content, 64)
    good = GOOD.encode()
    for tail in (b'{"a": ' + long + b"}]", b"{'ph': 'X'}, " * 200, b"\0" * 3000):
        elements, _, losses = read(b"[" + b", ".join([good, good, tail]), 64)
        assert len(elements) == 2
        assert losses == {"truncated": 1}
    elements, metadata, losses = read(b'{"traceEvents": [' + good + b'], "a": ' + long + b"}", 64)
    assert (len(elements), metadata, losses) == (1, {}, {"truncated": 1})


# Limits, each just below and just above.

MIB = 1 << 20


def outcome(content: str) -> tuple[int, dict[str, int]]:
    """The number of elements and the losses, in pieces of the usual size."""
    elements, _, losses = read(content.encode(), json_array.PIECE_BYTES)
    return len(elements), losses


def empty_objects(count: int) -> str:
    """A list of objects, each of which looks like the end of the element that it is in."""
    return f"[{', '.join(['{}'] * count)}]"


def test_a_list_that_begins_with_more_than_4_mib_of_no_objects_is_another():
    # What is looked at doubles from 512 KiB on: 4 MiB are no more than the limit, 8 MiB are.
    def numbers(size: int) -> str:
        return f"[{'1,' * (size // 2)}{GOOD}, {GOOD}]"

    assert outcome(numbers(5 * MIB)) == (5 * MIB // 2 + 2, {})
    with pytest.raises(
        UnreadableInputError, match=r"^t\.json: a list of something other than events"
    ):
        outcome(numbers(9 * MIB))


@pytest.mark.parametrize(("objects", "expected"), [(7, (3, {"repairs": 1})), (8, (2, LOST))])
def test_the_eighth_place_that_looks_like_an_end_is_the_last_that_is_tried(objects, expected):
    broken = f'{{"ph": "X", "a": nan, "b": {empty_objects(objects)}}}'
    assert outcome(f"[{GOOD}, {broken}, {GOOD}]") == expected


@pytest.mark.parametrize(("length", "expected"), [(0, (3, {"repairs": 1})), (1, (2, LOST))])
def test_a_damaged_element_of_more_than_256_kib_is_not_mended(length, expected):
    broken = '{"ph": "X", "a": nan, "b": "%s"}'
    broken %= "x" * (256 * 1024 + length - len(broken) + 2)
    assert outcome(f"[{GOOD}, {broken}, {GOOD}]") == expected


@pytest.mark.parametrize(("objects", "expected"), [(3, (3, {"repairs": 1})), (4, (2, LOST))])
def test_of_one_stretch_of_damage_2_mib_are_tried(objects, expected):
    # Each place where the element may end costs three times its 200,000 bytes: after the fourth it
    # is given up.
    long = "x" * 200_000
    broken = f'{{"ph": "X", "a": nan, "c": "{long}", "b": {empty_objects(objects)}}}'
    assert outcome(f"[{GOOD}, {broken}, {GOOD}]") == expected


@pytest.mark.parametrize(("size", "loss"), [(5, "repairs"), (9, "unreadable_metadata")])
def test_beside_the_array_8_mib_are_mended(size, loss):
    long = "x" * size * MIB
    assert outcome(f'{{"traceEvents": [{GOOD}], "a": nan, "b": "{long}"}}') == (1, {loss: 1})


@pytest.mark.parametrize(
    ("broken", "expected"),
    [(63, (3, {"unparsable_events": 63, "repairs": 1})), (64, (2, {"unparsable_events": 65}))],
)
def test_after_64_damaged_elements_none_is_mended(broken, expected):
    content = ", ".join([GOOD, *["{oops}"] * broken, '{"ph": "X", "a": nan}', GOOD])
    assert outcome(f"[{content}]") == expected


@pytest.mark.parametrize(("length", "is_read"), [(0, True), (1, False)])
def test_after_64_damaged_elements_one_of_more_than_16_kib_is_none(length, is_read):
    large = '{"ph": "X", "name": "%s"}'
    large %= "x" * (16 * 1024 + length - len(large) + 2)
    content = ", ".join([GOOD, *["{oops}"] * 64, large, GOOD])
    assert outcome(f"[{content}]") == (2 + is_read, {"unparsable_events": 65 - is_read})


@pytest.mark.parametrize(("objects", "is_read"), [(1, True), (2, False)])
def test_after_64_damaged_elements_one_ends_at_the_second_place_or_is_none(objects, is_read):
    nested = f'{{"ph": "X", "b": {empty_objects(objects)}}}'
    content = ", ".join([GOOD, *["{oops}"] * 64, nested, GOOD])
    assert outcome(f"[{content}]") == (2 + is_read, {"unparsable_events": 65 - is_read})


@pytest.mark.parametrize(
    ("others", "losses"), [(63, {"unparsable_events": 1}), (64, {"truncated": 1})]
)
def test_the_end_behind_a_damaged_element_is_sought_among_64_brackets(others, losses):
    content = f'{{"traceEvents": [{GOOD}, {{oops], "a": "{"]," * others}"}}'
    assert outcome(content) == (1, losses)


@pytest.mark.parametrize(("size", "is_read"), [(3, True), (5, False)], ids=["3 MiB", "5 MiB"])
def test_after_more_than_2_mib_of_damage_nothing_more_is_read(size, is_read):
    # What is held doubles: just below 2 MiB more is read, up to 4 MiB; there it is given up.
    broken = f"{{oops{'s' * 128 * 1024}}}"
    content = ", ".join([GOOD, *[broken] * (8 * size), GOOD])
    losses = {"unparsable_events": 8 * size} if is_read else {"truncated": 1}
    assert outcome(f"[{content}]") == (1 + is_read, losses)


class Endless(io.BufferedIOBase):
    """A trace of `count` events of about 1 kB that never exists as a whole."""

    def __init__(self, count: int) -> None:
        self._event = (json.dumps(kernel(US, 3 * US, "k", text="x" * 900)) + ",\n").encode()
        self._left = count
        self._rest = b'{"traceEvents": ['

    def read1(self, size: int = -1, /) -> bytes:
        while len(self._rest) < size and self._left:
            self._left -= 1
            self._rest += self._event if self._left else self._event.rstrip(b",\n") + b"]}"
        part, self._rest = self._rest[:size], self._rest[size:]
        return part


def peak_of(events: int, piece_bytes: int) -> int:
    """Most bytes in memory at once while reading, each piece dropped after use."""
    with mock.patch.object(json_array, "PIECE_BYTES", piece_bytes):
        tracemalloc.start()
        try:
            reader = ArrayReader(Endless(events), "t.json", KEY, orjson.loads, is_event)
            assert sum(map(len, reader)) == events
            assert dict(+reader.losses) == {}
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_does_not_grow_with_the_file():
    """GIVEN traces of 1 MB and of 20 MB
    WHEN they are read in pieces of 64 KiB
    THEN both need the same memory, and it follows the size of the pieces."""
    small, large = (peak_of(events, 64 * 1024) for events in (1_000, 20_000))
    assert abs(large - small) < 100_000
    assert large < 4_000_000  # the decoder itself takes about 20 times its text
    assert peak_of(20_000, 16 * 1024) < large / 2
