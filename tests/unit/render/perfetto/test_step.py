"""What of a file is kept where only one step is asked for."""

import json

import pytest

import tracelab
from tests.build import files
from tests.build.files import US
from tests.build.perfetto import events_of, is_ours, require_figures, tracks_in, written
from tests.bundled_traces import FOLDER


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
    require_figures(tracks_in(after), report, tracelab.read_trace(path).origin_ns, 0)
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
