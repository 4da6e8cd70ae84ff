"""What a file says beside its events, whatever it writes there."""

from __future__ import annotations

import os

import pytest

from tests.build.files import (
    read,
    write,
)
from tests.build.read_scene import SCENE
from tracelab.model.trace import FileInfo
from tracelab.read.json.metadata import read_file_info
from tracelab.read.streams import Source


def info(metadata, rank=None) -> FileInfo:
    return read_file_info(metadata, Source("a.json", rank, named=True))


def recorded(**facts) -> FileInfo:
    return info({"tracelab": facts})


def test_a_file_that_says_nothing():
    assert info({}) == FileInfo()


@pytest.mark.parametrize("nothing", [None, 7, "text", [], ["text", 7], {}, {"rank": "x"}])
@pytest.mark.parametrize(
    "key",
    [
        "distributedInfo",
        "deviceProperties",
        "tracelab",
        "hip_runtime_version",
        "cuda_runtime_version",
    ],
)
def test_what_is_written_in_another_way_says_nothing(key, nothing):
    if key.endswith("version") and nothing == 7:
        pytest.skip("a version")
    assert info({key: nothing}) == FileInfo()


def test_all_that_a_capture_says():
    assert info(
        {
            "distributedInfo": {"rank": 3, "world_size": 8},
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1}, {"name": "x"}, 7],
            "cuda_runtime_version": 13000,
            "tracelab": {
                "torch": "2.13.0",
                "source_folders": os.pathsep.join(["/home/me", "", "//host/share", "/opt/train"]),
                "unprofiled_step_ms": "9.5",
                "unprofiled_host_step_ms": "4.5",
                "unprofiled_block_steps": "3",
            },
        }
    ) == FileInfo(
        rank=3,
        rank_source="metadata",
        world_size=8,
        software={"torch": "2.13.0", "cuda": "13.0"},
        device_names={0: "NVIDIA H200"},
        source_folders=("/home/me", "/opt/train"),
        unprofiled_step_ns=9_500_000.0,
        unprofiled_host_step_ns=4_500_000.0,
        unprofiled_block_steps=3,
    )


@pytest.mark.parametrize("rank", [5, None])
@pytest.mark.parametrize("size", ["two", None, 2.0, "8"])
def test_a_number_of_ranks_that_is_not_one(size, rank):
    assert info({"distributedInfo": {"world_size": size}}, rank).world_size is None


def test_the_recorders_version_of_cuda_goes_before_the_profilers():
    ours = {"tracelab": {"cuda": "13.0", "torch": "2.13.0"}, "cuda_runtime_version": 12040}
    assert list(info(ours).software.items()) == [("torch", "2.13.0"), ("cuda", "13.0")]
    assert dict(info({"cuda_runtime_version": 12040}).software) == {"cuda": "12.4"}
    assert dict(info({"hip_runtime_version": 60300000}).software) == {"hip": "6.3.0"}


@pytest.mark.parametrize(
    ("collector", "known"),
    [("kineto", "kineto"), ("cuspy", "cuspy"), ("\x1b[1m", ""), (7, ""), (None, "")],
)
def test_who_recorded_the_gpu(collector, known):
    assert recorded(collector=collector).collector == known


@pytest.mark.parametrize("step_ms", [0, -1, "soon", "", "nan", "inf", "-inf", "1e305", None, [1]])
def test_a_step_without_the_profiler_that_is_not_a_time(step_ms):
    assert recorded(unprofiled_step_ms=step_ms).unprofiled_step_ns is None


@pytest.mark.parametrize("step_ms", [0.25, "0.25", "250e-3"])
def test_a_step_without_the_profiler(step_ms):
    assert recorded(unprofiled_step_ms=step_ms).unprofiled_step_ns == 250_000.0


@pytest.mark.parametrize("steps", [0, -1, "2.5", "many", "", "²", None, 10**9])
def test_a_number_of_steps_that_is_none(steps):
    assert recorded(unprofiled_block_steps=steps).unprofiled_block_steps is None


def test_what_was_read_cannot_be_changed():
    read = info({"cuda_runtime_version": 12040})
    for mapping in (read.software, read.device_names):
        with pytest.raises(TypeError):
            mapping["x"] = "y"


@pytest.mark.parametrize(
    ("name", "after", "expected"),
    [
        ("a.json", {"distributedInfo": {"rank": 3, "world_size": 8}}, (3, "metadata")),
        ("rank5.json", {"distributedInfo": {"rank": 3}}, (3, "metadata")),
        ("rank5.json", {"distributedInfo": {"rank": 0, "world_size": 2}}, (0, "metadata")),
        # Alone in its job it is rank 0 in any case: the name may count independent replicas.
        ("rank5.json", {"distributedInfo": {"rank": 0, "world_size": 1}}, (5, "filename")),
        ("a.json", {"distributedInfo": {"rank": 0, "world_size": 1}}, (0, "metadata")),
        ("rank5.json", {"distributedInfo": {}}, (5, "filename")),
        ("rank5.json", {"distributedInfo": {"rank": None}}, (5, "filename")),
        ("rank5.json", {"distributedInfo": [1]}, (5, "filename")),
        ("rank5.json", {}, (5, "filename")),
        ("a.json", {}, (None, "none")),
    ],
)
def test_rank_comes_from_the_metadata_or_the_name(tmp_path, name, after, expected):
    trace = read(write(tmp_path / name, SCENE, after=after))
    assert (trace.info.rank, trace.info.rank_source) == expected
    assert dict(trace.metadata) == after


@pytest.mark.parametrize(
    ("listed", "used", "names"),
    [
        ({0: "A100", 1: "V100"}, [1], {0: "A100", 1: "V100"}),  # the list's own numbers
        ({0: "MI300X"}, [9], {9: "MI300X"}),  # roctracer counts the processors as well
        ({0: "A100", 1: "A100"}, [4], {4: "A100"}),  # alike, whichever it is
        ({0: "A100", 1: "V100"}, [3, 6], {3: "A100", 6: "V100"}),  # all were used: in order
        ({0: "A100", 1: "V100"}, [1, 2, 3], {}),  # which is which is not known
        ({}, [1], {}),
    ],
)
def test_names_of_devices_that_events_number_otherwise(listed, used, names):
    devices = [{"id": number, "name": name, "numSms": 100} for number, name in listed.items()]
    source = Source("a.json", None, named=True)
    read = read_file_info({"deviceProperties": devices}, source, devices=used)
    assert dict(read.device_names) == names
    assert set(read.multiprocessors) == set(names or (used if listed else ()))  # all have as many
