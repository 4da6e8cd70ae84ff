"""Events of any form and with any fault: read, mended, or counted as a loss."""

from __future__ import annotations

import json
import random
from unittest import mock

import pytest
from hypothesis import given, strategies as st

from tests.build.files import (
    US,
    operator,
    trace as trace_of,
)
from tests.build.read_scene import SCENE, assert_equal, read_bytes
from tests.examples import examples
from tracelab.model.losses import LOSSES_BY_NAME
from tracelab.read.json import array as json_array


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
    assert loss in LOSSES_BY_NAME
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
