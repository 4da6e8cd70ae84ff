"""Scenes are plain data: they can be saved and read again, and moved to another clock."""

import pickle
from functools import cache

import msgspec
import numpy as np
import pytest

from tests.bundled_traces import FOLDER
from tracelab.analysis.analysis import analyze_source
from tracelab.base.options import Options
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.read.sources import find_sources
from tracelab.render.scene import NAME_COLUMNS, TEXT_COLUMNS

NAMES = ("train_step_sinful", "graphs_forked", "ddp_hook_side_stream_rank0")


@cache
def scene_of(name):
    [source] = find_sources([str(FOLDER / f"{name}.pt.trace.json.gz")])
    return scene_of_file(analyze_source(source, Options(cache=False)))


def plain(scene):
    return msgspec.to_builtins(scene, enc_hook=lambda array: array.tolist())


def test_a_scene_is_saved_and_sent_as_it_is():
    scene = scene_of("events_item")
    data = plain(scene)
    assert msgspec.json.decode(msgspec.json.encode(data)).keys() == data.keys()
    assert plain(pickle.loads(pickle.dumps(scene))) == data


@pytest.mark.parametrize("name", NAMES)
def test_columns_refer_to_what_is_there(name):
    scene = scene_of(name)
    rows = sum(map(len, scene.lanes_of_type("stream")))
    calls = sum(map(len, scene.lanes_of_type("host")))
    most = {"row": rows, "source": rows, "call": calls, "line": len(scene.lines)}
    most |= dict.fromkeys(NAME_COLUMNS, len(scene.names))
    most |= dict.fromkeys(TEXT_COLUMNS, len(scene.texts))
    for lane in scene.lanes:
        assert (np.diff(lane.start_ns) >= 0).all()
        assert lane.kind.max(initial=0) < len(lane.kinds)
        for key, column in lane.more.items():
            assert len(column) == len(lane)
            if key in most:
                assert ((column >= -1) & (column < most[key])).all(), (lane.id, key)


def test_a_moved_scene_has_all_its_times_on_the_other_clock():
    scene = scene_of("events_item")
    later = scene.moved_to_clock(((7, 0),))
    assert later.steps == {n: (x + 7, y + 7) for n, (x, y) in scene.steps.items()}
    assert later.start_ns == scene.start_ns + 7
    for before, after in zip(scene.lanes, later.lanes, strict=True):
        assert (after.start_ns - before.start_ns == 7).all()
        assert (after.end_ns - before.end_ns == 7).all()
    assert (later.places.start_ns - scene.places.start_ns == 7).all()
    assert later.clock == ((7, 0),)
