"""A trace with tracks in it: its own bytes stay, and of a step only what belongs to it."""

import gzip
import json
import tracemalloc
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from tests.build import files
from tests.build.files import US
from tests.build.perfetto import events_of, is_ours, require_figures, tracks_in, written
from tests.bundled_traces import FOLDER
from tests.examples import examples
from tracelab.base.errors import OutputError, UnreadableInputError
from tracelab.outputs.perfetto import splice
from tracelab.read.reader import locate_events, read_trace
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


def test_what_is_no_json_is_repaired_or_left_out(tmp_path):
    content = (
        b'{"rank": 1, "traceEvents": [{"ph": "X", "args": {"a": nan, "b": -inf}}, {oops}, '
        b'{"ph": "M"}], "c": 1}'
    )
    written = json.loads(spliced(content, tmp_path), parse_constant=pytest.fail)
    events = written.pop("traceEvents")
    assert written == {"rank": 1, "c": 1}
    assert [event["ph"] for event in events] == ["X", "M", "X", "X"]


MUTATIONS = (
    b"",
    b'"',
    b"{",
    b"]}",
    b",",
    b"\\",
    b"\n",
    b"\xff",
    b"\xc3",
    b"\0",
    b"nan",
    b"[" * 300,
)


@examples(200)
@given(st.integers(0, 10**6), st.integers(0, 20), st.sampled_from(MUTATIONS))
def test_of_a_damaged_file_comes_json_or_nothing(place, length, inserted):
    """GIVEN a file with some bytes in place of others, wherever THEN what is written is JSON."""
    place %= len(WHOLE)
    content = WHOLE[:place] + inserted + WHOLE[place + length :]
    with TemporaryDirectory() as folder, suppress(UnreadableInputError):
        events = parsed(spliced(content, Path(folder)))
        assert events[-len(OURS) :] == [json.loads(line) for line in OURS]


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


def at(ph, time_us, **fields):
    return {"ph": ph, "name": ph, "pid": files.HOST, "tid": files.HOST, "ts": time_us, **fields}


def arrow(ph, time_us, number, cat="ac2g"):
    return at(ph, time_us, id=number, cat=cat)


# The second step, of 100 us; the first kernel, launched between the steps, reaches into it.
KEPT = [
    files.thread_name("python"),
    files.python("train.py(1): main", 0, 300 * US),
    files.launch(80 * US, 82 * US, 1),
    arrow("s", 80, 1),
    files.kernel(85 * US, 150 * US, "first", correlation=1, note="]}, {"),
    arrow("f", 85, 1),
    files.step(2, 100 * US, 200 * US),
    at("i", 120, s="t"),
    at("C", 130, args={"n": 1}),
    files.operator("aten::mm", 118 * US, 126 * US),
    files.launch(120 * US, 124 * US, 2),
    arrow("s", 120, 2),
    files.kernel(150 * US, 190 * US, "second", correlation=2),
    arrow("f", 150, 2),
    at("B", 5),
    at("E", 290),
]
LEFT_OUT = [
    files.step(1, 0, 79 * US),
    files.launch(10 * US, 12 * US, 3),
    arrow("s", 10, 3),
    files.kernel(20 * US, 40 * US, "zeroth", correlation=3),
    arrow("f", 20, 3),
    arrow("s", 50, 1, cat="fwdbwd"),
    at("i", 20, s="t"),
    at("C", 250, args={"n": 1}),
    files.operator("aten::add", 250 * US, 260 * US),
    files.kernel(220 * US, 240 * US, "later", correlation=4),
    files.launch(210 * US, 214 * US, 4),
]


@pytest.mark.parametrize("layout", ["kineto", "minified", "indent_1", "bare_open_comma"])
def test_what_overlaps_the_step_is_kept_with_its_launches(layout, tmp_path):
    # Mixed, so that every second one is another's.
    mixed = [x for i, kept in enumerate(KEPT) for x in (kept, *LEFT_OUT[i : i + 1])]
    path = files.write(tmp_path / "in.json", mixed, layout=layout, after={"name": "x"})
    report = written(path, out := tmp_path / "out.json", step=2)
    events = events_of(out)
    own = [event for event in events if not is_ours(event)][: len(KEPT)]
    assert own == json.loads(json.dumps(KEPT), parse_float=str)
    tracks = tracks_in(events)
    require_figures(tracks, report, origin_ns=0, rank=0)
    assert [x[2] for x in tracks["Steps"]] == ["step 2"]
    if not layout.startswith("bare"):
        assert json.loads(out.read_bytes())["name"] == "x"


@pytest.mark.slow
def test_each_kept_event_has_its_bytes(tmp_path):
    path = FOLDER / "train_step_sinful.pt.trace.json.gz"
    report = written(path, out := tmp_path / "out.json", step=4)
    before, after = events_of(path), events_of(out)
    own = [x for x in after if not is_ours(x) and x["pid"] != 13873]
    whole = iter(before)
    assert all(event in whole for event in own)  # in the same order
    assert 0.15 * len(before) < len(own) < 0.3 * len(before)
    require_figures(tracks_in(after), report, read_trace(path).origin_ns, 0)
    kernels = [x for x in own if x.get("cat") == "kernel"]
    launched = {x["args"]["correlation"] for x in own if x.get("cat", "")[:5] == "cuda_"}
    assert len(kernels) > 300
    assert {x["args"]["correlation"] for x in kernels} <= launched


def test_the_text_of_an_event_is_untouched(tmp_path):
    strange = '{"ph" : "X","cat":"kernel", "name":"\\u0067emm", "pid":0,"tid":7, "ts":1e2 ,'
    strange += '"dur":5.0,"args":{"device":0,"stream":7,"correlation":2,"x":[1.50,  {"a":"}, {"}]}}'
    others = files.step(1, 90 * US, 99 * US), files.launch(91 * US, 92 * US, 2)
    events = [json.dumps(event) for event in others]
    path = tmp_path / "in.json"
    path.write_text('{"a": 1, "traceEvents": [' + ",".join((*events, strange)) + "]}")
    written(path, out := tmp_path / "out.json", step=1)
    assert strange in out.read_text()
    assert out.read_text().startswith('{"a": 1, "traceEvents": [')
