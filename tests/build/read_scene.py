"""For tests of the reader: a small scene, traces of any bytes, and how two traces compare."""

from __future__ import annotations

from pathlib import Path

from tests.build.files import (
    US,
    annotation,
    copy,
    kernel,
    launch,
    operator,
    read,
    thread_name,
)
from tracelab.model.trace import Trace

ARRAYS = (
    "start_ns",
    "duration_ns",
    "category",
    "name_index",
    "thread_index",
    "device_number",
    "stream_number",
    "correlation",
    "wait_stream_number",
    "wait_correlation",
    "cuda_event_number",
    "copied_bytes",
    "message_row",
    "file_index",
)


def read_bytes(folder: Path, content: bytes) -> Trace:
    path = folder / "bytes.json"
    path.write_bytes(content)
    return read(path)


def assert_equal(one: Trace, other: Trace) -> None:
    assert {name: getattr(one, name)[:].tolist() for name in ARRAYS} == {
        name: getattr(other, name)[:].tolist() for name in ARRAYS
    }
    for name in ("origin_ns", "strings", "threads", "objects"):
        assert getattr(one, name) == getattr(other, name)
    assert dict(one.losses) == dict(other.losses)


SCENE = [
    thread_name("main"),
    annotation("ProfilerStep#1", 4_359_759_616_840_547, 4_359_759_616_940_797),
    operator("aten::mm é", 4_359_759_616_841_500, 4_359_759_616_851_500),
    launch(4_359_759_616_842 * US, 4_359_759_616_847_001, 17),
    kernel(
        4_359_759_616_850_125,
        4_359_759_616_870_125,
        "k<}, {>",
        correlation=17,
        shape=[{"ph": "X"}, {"a": "]}"}],
    ),
    {"ph": "s", "id": 17, "pid": 0, "tid": 7, "ts": 4359759616842, "cat": "ac2g", "name": "ac2g"},
    copy(4_359_759_616_870_125, 4_359_759_616_873_125, stream=20, bytes=4096),
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 4359759616999},
]
