"""Events of any form and with any fault: read, mended, or counted as a loss.

Those of PyTorch's own CUPTI collector become those that Kineto writes.
"""

from __future__ import annotations

import json
import random
from unittest import mock

import orjson
import pytest
from hypothesis import given, strategies as st

from tests.build.files import (
    US,
    complete_event,
    copy,
    kernel,
    launch,
    operator,
    read as read_file,
    trace as trace_of,
)
from tests.build.read_scene import SCENE, assert_equal, read_bytes
from tests.examples import examples
from tracelab.model.kernel_kinds import copies_pageable_memory, copy_direction
from tracelab.model.losses import LOSSES
from tracelab.model.trace import ABSENT, Category
from tracelab.read.cache import load_trace
from tracelab.read.json import array as json_array
from tracelab.read.json.columns import Columns
from tracelab.read.json.events import annotation_of, decode, kineto_name
from tracelab.read.streams import Source


def test_the_order_of_keys_means_nothing(tmp_path):
    expected = trace_of(tmp_path, *SCENE)
    shuffle = random.Random(5)
    for _ in range(20):
        events = [dict(shuffle.sample(list(e.items()), len(e))) for e in SCENE]
        assert_equal(trace_of(tmp_path, *events), expected)


def test_the_last_of_duplicate_keys_counts(tmp_path):
    content = b'[{"ph":"X","name":"a","name":"b","ts":1,"ts":5,"dur":2,"dur":3}]'
    trace = read_bytes(tmp_path, content)
    assert (trace.name_of(0), trace.origin_ns, trace.duration_ns.tolist()) == ("b", 5000, [3000])


GOOD = json.dumps(operator("good", US, 3 * US))


# The text of an event that is left out, and the one loss that it counts as.
LEFT_OUT = {
    "garbage": ("{oops}", "unparsable_events"),
    "cut": ('{"ph": "X", "name": "a", "ts', "unparsable_events"),
    "too_deep": ('{"ph": "X", "args": ' + "[" * 2000 + "]" * 2000 + "}", "unparsable_events"),
    "infinite": (GOOD.replace('"ts": 1', '"ts": 1e999'), "absurd_times"),
    "no_name": ('{"ph": "X", "ts": 1, "dur": 2}', "incomplete_events"),
    "no_ts": ('{"ph": "X", "name": "a", "dur": 2}', "incomplete_events"),
    "no_dur": ('{"ph": "X", "name": "a", "ts": 2}', "incomplete_events"),
    "null_name": (GOOD.replace('"good"', "null"), "incomplete_events"),
    "null_ts": (GOOD.replace('"ts": 1', '"ts": null'), "incomplete_events"),
    "null_dur": (GOOD.replace('"dur": 2', '"dur": null'), "incomplete_events"),
    "negative": (GOOD.replace('"dur": 2', '"dur": -0.001'), "negative_durations"),
    "negative_text": (GOOD.replace('"dur": 2', '"dur": "-5"'), "negative_durations"),
    "wrapped_counter": (GOOD.replace('"dur": 2', '"dur": 1.8e16'), "absurd_times"),
    "wrapped_integer": (GOOD.replace('"dur": 2', '"dur": 18446744073709551615'), "absurd_times"),
    "wrapped_negative": (GOOD.replace('"dur": 2', '"dur": -1.8e16'), "absurd_times"),
    "huge_time": (GOOD.replace('"ts": 1', '"ts": 1e300'), "absurd_times"),
    "huge_integer": (GOOD.replace('"ts": 1', '"ts": ' + "9" * 400), "absurd_times"),
    "large_integer": (GOOD.replace('"ts": 1', '"ts": ' + "9" * 30), "absurd_times"),
    "far_time": (GOOD.replace('"ts": 1', f'"ts": {2**52 + 1}'), "absurd_times"),
    "no_number": (GOOD.replace('"ts": 1', '"ts": "soon"'), "absurd_times"),
    "nan_text": (GOOD.replace('"ts": 1', '"ts": "NaN"'), "absurd_times"),
    "wild_text": (GOOD.replace('"ts": 1', '"ts": "1e999999999999999999999"'), "absurd_times"),
    "true": (GOOD.replace('"ts": 1', '"ts": true'), "absurd_times"),
    "list": (GOOD.replace('"ts": 1', '"ts": [1]'), "absurd_times"),
    "huge_and_negative": (
        GOOD.replace('"ts": 1', '"ts": 1e300').replace('"dur": 2', '"dur": -2'),
        "absurd_times",
    ),
    "no_lane": (
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}',
        "activities_without_lane",
    ),
    "negative_without_lane": (
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -2}',
        "negative_durations",
    ),
    "no_phase": ('{"name": "a", "ts": 1, "dur": 2}', "unknown_phases"),
    "phase": (GOOD.replace('"X"', '"Y"'), "unknown_phases"),
    "phases": (GOOD.replace('"X"', '"XX"'), "unknown_phases"),
    "phase_list": (GOOD.replace('"X"', '["X"]'), "unknown_phases"),
    "phase_null": (GOOD.replace('"X"', "null"), "unknown_phases"),
    "a_number": ("17", "unknown_phases"),
    "a_null": ("null", "unknown_phases"),
    "a_list": ('[{"ph": "X"}]', "unknown_phases"),
    "end": ('{"ph": "E", "ts": 1, "pid": 77, "tid": 1}', "unmatched_begin_end"),
    "begin": ('{"ph": "B", "ts": 1, "pid": 78, "tid": 1}', "unmatched_begin_end"),
}


MENDED = {
    "nan": '{"ph": "X", "name": "a", "ts": 1, "dur": 2, "args": {"x": nan}}',
    "quotes": '{"ph": "X", "name": "a "b" c", "pid": 1, "ts": 1, "dur": 2}',
    "utf8": '{"ph": "X", "name": "\udcff", "pid": 1, "ts": 1, "dur": 2}',
}


OTHERS = {
    "metadata": '{"ph": "M", "name": "process_name", "args": {"name": "x"}}',
    "flow": '{"ph": "s", "id": 1, "ts": 1}',
    "instant": '{"ph": "i", "name": "i", "ts": 1}',
    "counter": '{"ph": "C", "name": "c", "ts": 1}',
}


@pytest.mark.parametrize("fault", LEFT_OUT)
def test_each_loss_is_counted_once_under_its_name(tmp_path, fault):
    """GIVEN a good event, a faulty one and a good one
    THEN the good ones are there, and the fault is counted exactly once."""
    bad, loss = LEFT_OUT[fault]
    trace = read_bytes(tmp_path, f"[{GOOD}, {bad}, {GOOD}]".encode())
    assert dict(trace.losses) == {loss: 1}
    assert loss in LOSSES
    assert trace.name_index.tolist() == [trace.name_index[0]] * 2
    assert trace.start_ns.tolist() == [0, 0]
    assert trace.objects == (2 if loss == "unparsable_events" else 3)


# Right behind damage, what has no phase looks like a part of the damaged event.
KINDS = sorted({"good", *LEFT_OUT, *MENDED, *OTHERS} - {"no_phase", "a_number", "a_null", "a_list"})


@examples(200)
@given(
    st.lists(st.sampled_from(KINDS), max_size=20),
    st.sampled_from([", ", ",\n", ","]),
    st.integers(1, 500) | st.just(1 << 19),
)
def test_nothing_is_dropped_silently(scratch, kinds, separator, piece_bytes):
    """GIVEN events with any faults, in any order
    THEN events kept, counted losses and events of other phases add up."""
    texts = {"good": GOOD} | {k: bad for k, (bad, _) in LEFT_OUT.items()} | MENDED | OTHERS
    array = separator.join([GOOD, *(texts[kind] for kind in kinds), GOOD])
    with mock.patch.object(json_array, "PIECE_BYTES", piece_bytes):
        trace = read_bytes(
            scratch, f'{{"traceEvents": [{array}]}}'.encode("utf-8", "surrogateescape")
        )
    losses = dict(trace.losses)
    assert losses.pop("repairs", 0) == sum(kind in MENDED for kind in kinds)
    assert len(trace) == 2 + sum(kind == "good" or kind in MENDED for kind in kinds)
    expected = [LEFT_OUT[kind][1] for kind in kinds if kind in LEFT_OUT]
    assert losses == {loss: expected.count(loss) for loss in expected}
    others = sum(kind in OTHERS for kind in kinds)
    assert trace.objects == len(kinds) + 2 - expected.count("unparsable_events")
    assert len(trace) + others + len(expected) == len(kinds) + 2


# --- the layout of PyTorch's own collector ---

COPIES = [
    ({"copy kind": "HtoD", "src kind": "pinned", "dst kind": "device"}, "HtoD (Pinned -> Device)"),
    ({"copy kind": 2, "src kind": 3, "dst kind": 1}, "DtoH (Device -> Pageable)"),
    ({"copy kind": 9, "src kind": 1, "dst kind": 2}, "HtoH (Pageable -> Pinned)"),
    ({"copy kind": "PtoP", "src kind": "device", "dst kind": "device"}, "PtoP (Device -> Device)"),
    ({"copy kind": "AtoD", "src kind": "array", "dst kind": "device"}, "AtoD (Array -> Device)"),
    (
        {"copy kind": "DtoD", "src kind": "managed_static", "dst kind": "device_static"},
        "DtoD (Managed Static -> Device Static)",
    ),
]


@pytest.mark.parametrize(("arguments", "name"), COPIES)
def test_a_copy_has_the_name_that_kineto_gives_it(arguments, name):
    assert kineto_name("Memcpy", arguments) == f"Memcpy {name}"
    assert copy_direction(f"Memcpy {name}")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"copy kind": "XtoY", "src kind": "managed", "dst kind": "hbm5"}, "copy kind XtoY"),
        ({"copy kind": 42}, "copy kind 42"),
        ({"copy kind": [1]}, "copy kind [1]"),
        ({"copy kind": True}, "copy kind True"),
        ({"copy kind": None, "src kind": {"a": 1}}, "copy kind None"),
    ],
)
def test_a_copy_of_an_unknown_kind_says_so(arguments, name):
    assert kineto_name("Memcpy", arguments) == f"Memcpy ({name})"
    assert copy_direction(f"Memcpy ({name})") == ""


def test_other_events_keep_their_names():
    assert kineto_name("Memcpy", {"bytes": 8}) == "Memcpy"
    assert kineto_name("gemm", {"copy kind": "HtoD"}) == "gemm"
    assert kineto_name("Memset", {"memory kind": "hbm5"}) == "Memset (hbm5)"


def test_pageable_memory_is_known_by_the_argument():
    arguments = {"copy kind": "DtoH", "src kind": "device", "dst kind": "pageable"}
    assert copies_pageable_memory(kineto_name("Memcpy", arguments))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"stream": 7, "graph node id": 3, "host fn": "callback"}, ""),
        ({"str": "forward"}, "forward"),
        ({"name": "block 3", "dtype": "bf16"}, "block 3, dtype=bf16"),
        ({"annotation": "backward"}, "backward"),
        ({"annotation": '[{"str": "outer"}, {"name": "inner"}]'}, "outer / inner"),
        ({"annotation": "[1, 2"}, "[1, 2"),
        ({"annotation": [None, "a"]}, "a"),
        # Of a collective only what the program added.
        ({"Collective name": "allreduce", "dtype": "Float", "Seq": 3, "str": "norm"}, "norm"),
        ({"annotation": "x" * 1000}, "x" * 256),
    ],
)
def test_what_a_node_has_beside_the_collectors_arguments_is_its_annotation(arguments, text):
    assert annotation_of(arguments) == text


def test_a_graph_node_is_read_in_its_cuda_stream(tmp_path):
    drawn = {"stream": 3, "original_stream": 22, "graph id": 2, "graph node id": 5, "str": "fwd"}
    node = kernel(10 * US, 20 * US, correlation=4)
    node["args"] |= drawn
    plain = kernel(30 * US, 40 * US, stream=22, correlation=5)
    read = trace_of(tmp_path, node, plain)
    assert read.stream_number[:].tolist() == [22, 22]
    assert read.graph_node_row[:].tolist() == [0, ABSENT]
    nodes = read.graph_nodes
    assert nodes.annotations[nodes.annotation_index[0]] == "fwd"


@pytest.mark.parametrize(
    ("written", "annotation"),
    [
        # Cuspy writes an annotation of `mark_stream` over the stream, Kineto beside it.
        ({"stream": 60, "name": "branch"}, "branch"),
        ({"stream": 22, "annotated_stream": 60, "heads": "8", "name": "branch"}, "branch, heads=8"),
        ({"stream": 22, "occupancy": {"blockLimitWarps": 2}, "inContext": 1}, ""),
    ],
)
def test_a_stream_that_an_annotation_names_is_not_the_cuda_stream(tmp_path, written, annotation):
    node = kernel(10 * US, 20 * US, stream=22, correlation=4)
    node["args"] |= {"graph node id": 5, **written}
    read = trace_of(tmp_path, node)
    assert read.stream_number[:].tolist() == [22]
    texts = (*read.graph_nodes.annotations, "")
    assert texts[read.graph_nodes.annotation_index[0]] == annotation


def link(link_id, before, after):
    """The flow from the end of a node to the start of another, as it is drawn."""
    end_us = before["ts"] + before["dur"]
    flow = {"id": link_id, "cat": "ac2g", "name": "ac2g"}
    begin = flow | {"ph": "s", "pid": before["pid"], "tid": before["tid"], "ts": end_us}
    end = flow | {"ph": "f", "bp": "e", "pid": after["pid"], "tid": after["tid"], "ts": after["ts"]}
    return [begin, end]


def test_arrows_of_our_own_lose_nothing(tmp_path):
    """GIVEN a trace with tracelab's arrows, whose ids grow with the number of a process
    THEN none counts as one whose end is missing."""
    first, second = kernel(10 * US, 20 * US), kernel(30 * US, 40 * US)
    for number, node in enumerate((first, second)):
        node["args"] |= {"graph id": 1, "graph node id": number}
    arrow = [end | {"cat": "tracelab.critical_path"} for end in link(2**40 + 1, first, second)]
    missing = [end | {"ts": end["ts"] + 1, "id": 2**40 + 2} for end in arrow]
    read = trace_of(tmp_path, first, second, *arrow, *missing)
    assert read.losses == {}


def test_host_and_event_nodes_have_a_category_and_a_place(tmp_path):
    events = [
        kernel(0, 9 * US, "HostNode: log", cat="graph_host_node", stream=7, correlation=4),
        kernel(9 * US, 9 * US, "EventRecord", cat="graph_event_node", stream=13, correlation=4),
        launch(0, US, 4, name="cudaGraphLaunch"),
    ]
    read = trace_of(tmp_path, *events)
    assert read.category.tolist() == [
        Category.GRAPH_HOST_NODE,
        Category.GRAPH_EVENT_NODE,
        Category.RUNTIME,
    ]
    assert read.stream_number[:].tolist() == [7, 13, ABSENT]
    assert read.correlation[:].tolist() == [4, 4, 4]


def test_what_is_not_known_is_counted_by_its_name(tmp_path):
    new_copy = copy(10 * US, 20 * US, "Memcpy", correlation=1)
    new_copy["args"] |= {"copy kind": "XtoY"}
    events = [
        kernel(0, 5 * US),
        new_copy,
        copy(20 * US, 30 * US, "Memcpy"),
        complete_event("f", "graph_foo_node", 0, 5 * US, device=0, stream=7),
        complete_event("g", "graph_foo_node", 5 * US, 6 * US),
        complete_event("h", "cpu_instant_event", 5 * US, 6 * US),
        complete_event("sync_7", "cuda_sync", 0, 5 * US, device=0, stream=7),
        complete_event("Event Sync", "cuda_sync", 0, 5 * US, device=0, stream=7),
    ]
    read = trace_of(tmp_path, *events)
    assert {loss: dict(names) for loss, names in read.loss_names.items()} == {
        "unknown_categories": {"graph_foo_node": 2},
        "copies_without_direction": {"Memcpy (copy kind XtoY)": 1, "Memcpy": 1},
        "unknown_waits": {"sync_7": 1},
    }
    assert read.losses == {
        "unknown_categories": 2,
        "copies_without_direction": 2,
        "unknown_waits": 1,
    }


@pytest.mark.parametrize("cut", range(5))
def test_what_is_not_known_has_its_time_on_a_gpu_wherever_chunks_are_cut(cut):
    """By its own arguments, or because it is in the row of a GPU's activities."""
    events = [
        kernel(0, 5 * US, device=1, stream=7),
        complete_event("f", "foo", 5 * US, 7 * US, pid=9, tid=9, device=0, stream=3),
        complete_event("f", "foo", 7 * US, 8 * US, pid=1, tid=7),
        complete_event("f", "foo", 7 * US, 8 * US, pid=100, tid=100, device=0),
    ]
    first, following = Columns(), Columns()
    first.add(decode(json.dumps(events[:cut]).encode()))
    following.add(decode(json.dumps(events[cut:]).encode()))
    first.add_all(following)
    read = first.finish(Source("hand.json", None, named=True), {}, {})
    assert read.loss_names["unknown_categories"] == {"foo": 3}
    assert read.unknown_gpu_ns == {"foo": {0: 2_000, 1: 1_000}}


def test_what_is_not_known_and_never_ends_has_no_time(tmp_path, monkeypatch):
    """GIVEN 3,000 events of a new category that take 92 days each, more than int64 holds
    THEN they are counted, and the report and the entry of the cache can be written."""
    monkeypatch.setattr("tracelab.read.cache.MIN_FILE_BYTES", 0)
    monkeypatch.setattr("tracelab.read.cache.folder", lambda: tmp_path / "cache")
    endless = complete_event("f", "foo", 0, 8 * 10**15, device=0, stream=7)
    path = tmp_path / "hand.json"
    path.write_text(json.dumps({"traceEvents": [kernel(0, 5 * US), *([endless] * 3000)]}))
    source = Source(str(path), None, named=True)
    for _ in range(2):  # from the file, and from the cache
        read = load_trace(source)
        assert read.loss_names["unknown_categories"] == {"foo": 3000}
        assert read.unknown_gpu_ns == {}


@pytest.mark.parametrize(("start_us", "dur_us"), [(0, 10**13), (0, -1), ("soon", 1)])
def test_unknown_events_with_other_faults_are_counted_once(tmp_path, start_us, dur_us):
    event = complete_event("f", "foo", 0, 1, device=0, stream=7) | {"ts": start_us, "dur": dur_us}
    read = trace_of(tmp_path, kernel(0, 5 * US), event)
    assert sum(read.losses.values()) == 1
    assert read.loss_names == {}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
def test_arguments_of_any_type_do_no_harm(tmp_path, separators):
    """What is unusual anywhere in a piece of the file changes nothing else in it."""
    node = kernel(0, 5 * US, stream=7)
    node["args"] |= {"graph node id": {"x": 1}, "graph id": "9", "original_stream": [1]}
    good = copy(10 * US, 20 * US, "Memcpy", stream=13)
    good["args"] |= {"copy kind": "HtoD", "src kind": "pinned", "dst kind": "device"}
    path = tmp_path / "hand.json"
    path.write_text(json.dumps({"traceEvents": [node, good]}, separators=separators))
    loaded = read_file(path)
    assert loaded.name_of(len(loaded) - 1) == "Memcpy HtoD (Pinned -> Device)"


@pytest.mark.parametrize("key", ["annotation", "str", "own", "copy kind", "src kind"])
def test_values_that_nest_deep_are_an_ellipsis(tmp_path, key):
    """GIVEN a node and a copy with a value of 1,000 lists in each other, as orjson still reads it
    THEN both are read, and the value is not."""
    node, moved = kernel(0, 5 * US), copy(10 * US, 20 * US, "Memcpy")
    deep = "[" * 1000 + "]" * 1000
    node["args"] |= {"graph node id": 1, key: "DEEP"}
    moved["args"] |= {"copy kind": 42, key: "DEEP"}
    text = json.dumps({"traceEvents": [node, moved]}).replace('"DEEP"', deep)
    path = tmp_path / "hand.json"
    path.write_text(text)
    assert len(read_file(path)) == 2
    assert kineto_name("Memcpy", {"copy kind": orjson.loads(deep)}) == "Memcpy (copy kind …)"
    assert annotation_of({"own": orjson.loads(deep), "str": "forward"}) == "forward, own=…"


@pytest.mark.parametrize("cut", range(1, 8))
def test_nodes_are_the_same_in_a_file_that_is_read_in_chunks(cut):
    """Two replays of two nodes, their flows after them: chunks are cut anywhere between."""

    def node(start_us, lane, number, replay, **annotation):
        event = kernel(start_us * US, (start_us + 5) * US, stream=lane, correlation=replay)
        event["args"] |= {"graph id": 1, "graph node id": number, **annotation}
        return event

    nodes = [
        node(10, 7, 1, 4, str="forward"),
        node(20, 13, 2, 4, str="loss"),
        node(30, 7, 1, 5, str="forward"),
        node(40, 13, 2, 5),
    ]
    flows = link(2**40, nodes[0], nodes[1]) + link(2**40 + 1, nodes[2], nodes[3])
    events = [*nodes, *flows]
    whole, first, following = Columns(), Columns(), Columns()
    whole.add(decode(json.dumps(events).encode()))
    first.add(decode(json.dumps(events[:cut]).encode()))
    following.add(decode(json.dumps(events[cut:]).encode()))
    first.add_all(following)
    source = Source("hand.json", None, named=True)
    expected, read = (columns.finish(source, {}, {}) for columns in (whole, first))
    assert said_of_nodes(read) == said_of_nodes(expected)
    assert said_of_nodes(read) == [
        "forward",
        "loss",
        "forward",
        "",
    ]


def said_of_nodes(trace):
    """The annotation of each node."""
    nodes = trace.graph_nodes
    rows = [row for row in trace.graph_node_row[:].tolist() if row != ABSENT]
    texts = (*nodes.annotations, "")
    return [texts[index] for index in nodes.annotation_index[rows].tolist()]
