"""That what is put into a file leaves its bytes alone, whatever stands around its events."""

import gzip
import json
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from tests.build import files
from tests.build.files import US
from tests.examples import examples
from tracelab.base.errors import OutputError, UnreadableInputError
from tracelab.outputs.splice import splice
from tracelab.read.event_array import locate_events
from tracelab.read.streams import Source

NASTY = ["]}", "}, {", ']},"x":[', '"traceEvents": [', "\\", '"', "é𝄞", "nan", "{", "["]
OURS = ['{"ph":"X","name":"ours"}', '{"ph":"X","name":"ours, too"}']


def spliced(content: bytes, folder: Path, lines=OURS, name="out.json") -> bytes:
    """The bytes of a file with our events in it."""
    source = Source(str(folder / "in.json"), None, named=True)
    Path(source.path).write_bytes(content)
    out = folder / name
    splice(source, locate_events(source), iter(lines), out)
    written = out.read_bytes()
    return gzip.decompress(written) if name.endswith(".gz") else written


def without_ours(written: bytes) -> bytes:
    """The same without what was put in, which begins with a comma if there was an event before."""
    text = ",\n".join(OURS).encode()
    before, _, after = written.partition(b"\n" + text + b"\n")
    return before.removesuffix(b",") + after


def parsed(content: bytes) -> list:
    value = json.loads(content)
    return value["traceEvents"] if isinstance(value, dict) else value


@pytest.mark.parametrize("layout", files.LAYOUTS)
@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_every_layout_keeps_its_bytes(layout, name, tmp_path):
    events = [files.kernel(US * i, US * i + 500, text) for i, text in enumerate(NASTY)]
    around = {"before": {"rank": 3, "]": "["}, "after": {"name": "]}", "more": [{"a": []}]}}
    content = files.text(events, layout=layout, **around)
    written = spliced(content, tmp_path, name=name)
    ours = [json.loads(line) for line in OURS]
    assert parsed(written) == [*events, *ours]
    if "open" in layout:
        assert written.startswith(content.rstrip(b",\n"))
    else:
        assert without_ours(written) == content


@pytest.mark.parametrize(
    "content",
    [
        b'{"traceEvents": [{"ph": "X", "ts": 1}]}',
        b'{"traceEvents": [{"ph": "X", "ts": 1}  ]  }  \n',
        b'{"traceEvents":\n[\n{"ph":"X","args":{"a":[{"b":1},{"b":2}]}}\n]\n,\n"x":[1]}',
        b'\xef\xbb\xbf  {"traceEvents": [{"ph": "M"}], "traceName": "a]}"}',
        b'{"x": {"traceEvents": [1]}, "traceEvents": [{"ph": "X"}]}',
        b'[{"ph": "X"}] \n',
    ],
    ids=["minimal", "blanks", "nested", "mark", "same key", "bare"],
)
def test_bytes_around_the_events_stay(content, tmp_path):
    assert without_ours(spliced(content, tmp_path)) == content


def test_an_empty_array_gets_its_first_events(tmp_path):
    written = spliced(b'{"traceEvents": [ ], "rank": 1}', tmp_path)
    assert parsed(written) == [json.loads(line) for line in OURS]
    assert json.loads(written)["rank"] == 1


def test_nothing_to_put_in(tmp_path):
    content = b'{"traceEvents": [{"ph": "X"}]}'
    assert json.loads(spliced(content, tmp_path, lines=())) == json.loads(content)


def test_numbers_that_are_none_in_json_stay(tmp_path):
    content = b'{"traceEvents": [{"ph": "X", "args": {"a": nan, "b": -inf}}, {"ph": "X"}], "c": 1}'
    assert without_ours(spliced(content, tmp_path)) == content


def test_damaged_events_stay_where_they_are(tmp_path):
    content = b'{"traceEvents": [{"ph": "X"}, {oops}, {"ph": "X", "a": "x" y"}, {"ph": "X"}]}'
    assert without_ours(spliced(content, tmp_path)) == content


WHOLE = files.text(
    [files.kernel(US * i, US * i + 500, text) for i, text in enumerate(NASTY)],
    before={"rank": 3},
    after={"name": "]}", "more": [{"a": []}]},
)


@examples(60)
@given(st.integers(0, len(WHOLE)))
def test_a_file_that_breaks_off_is_closed_wherever_it_does(length):
    with TemporaryDirectory() as folder:
        try:
            written = spliced(WHOLE[:length], Path(folder))
        except UnreadableInputError:
            assert length < WHOLE.index(b"{", WHOLE.index(b"traceEvents")) + 200
            return
    events = parsed(written)
    count = len(events) - len(OURS)
    assert events == [*parsed(WHOLE)[:count], *(json.loads(line) for line in OURS)]
    common = written[: written.index(b"\n" + OURS[0].encode())].rstrip(b", \n")
    assert WHOLE.startswith(common)
    assert count == WHOLE[:length].count(b"}\n  }") or count == len(NASTY)


def test_packed_data_that_breaks_off_is_closed(tmp_path):
    events = [files.kernel(US * i, US * i + 500, f"gemm {i}") for i in range(20_000)]
    packed = gzip.compress(files.text(events))
    written = spliced(packed[: len(packed) // 2], tmp_path)
    kept = parsed(written)[: -len(OURS)]
    assert kept == events[: len(kept)]
    assert len(kept) > 5_000


def test_packed_data_without_its_last_bytes_keeps_what_follows_the_events(tmp_path):
    content = files.text([files.kernel(0, US)], after={"name": "x"})
    assert without_ours(spliced(gzip.compress(content)[:-4], tmp_path)) == content


def test_a_file_that_changed_meanwhile_is_no_result(tmp_path):
    source = Source(str(tmp_path / "in.json"), None, named=True)
    Path(source.path).write_bytes(files.text([files.kernel(0, US)]))
    array = locate_events(source)
    Path(source.path).unlink()
    with pytest.raises(UnreadableInputError, match="no such file"):
        splice(source, array, iter(OURS), tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    source = Source(str(tmp_path / "in.json"), None, named=True)
    Path(source.path).write_bytes(files.text([files.kernel(0, US)]))
    with pytest.raises(OutputError, match=r"in\.json"):
        splice(source, locate_events(source), iter(OURS), tmp_path / "in.json" / "out.json")


def test_large_files_are_not_held(tmp_path):
    events = [files.kernel(US * i, US * i + 500, f"gemm {i}") for i in range(60_000)]
    source = Source(files.write(tmp_path / "in.json", events), None, named=True)
    array = locate_events(source)
    tracemalloc.start()
    splice(source, array, iter(OURS), tmp_path / "out.json")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert array.end > 4 * most
