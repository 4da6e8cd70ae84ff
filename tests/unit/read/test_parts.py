"""Files that hold several traces, or one that is packed otherwise than by gzip."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile

import pytest

from tests.build.files import US, annotation, kernel, launch, text
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.read import streams
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources, one_source

WORLD = {"distributedInfo": {"rank": 0, "world_size": 2, "backend": "nccl"}}


def events_of(rank):
    """One kernel, of which the length says the rank."""
    return [
        launch(0, US, correlation=1),
        kernel(2 * US, (12 + rank) * US, correlation=1),
        annotation("[TP07] is no process", 0, US),
    ]


def merged_by_sglang(*labels):
    """As it writes them: the label before each process id."""
    events = [
        event | {"pid": f"[{label}] {event['pid']}"}
        for rank, label in enumerate(labels)
        for event in events_of(rank)
    ]
    return json.dumps({"traceEvents": events} | WORLD).encode()


def merged_by_tracelens(*ranks):
    """As its fusion writes them: numbers of each rank, and what they were before."""
    events = []
    for rank in ranks:
        for event in events_of(rank):
            raw = {"rank": rank, "pid_raw": event["pid"]}
            number = event["args"].get("correlation")
            if number is not None:
                raw |= {"correlation": number + 1000 * rank, "correlation_raw": number}
            events.append(event | {"pid": event["pid"] + 1000 * rank, "args": event["args"] | raw})
    return json.dumps({"traceEvents": events}).encode()


def found(path):
    """Of each trace that a path stands for: its end of the path, rank, and its kernel's length."""
    rows = []
    for source in find_sources([str(path)]):
        trace = read_trace(source)
        lengths_us = {int(x) // US for x in trace.duration_ns if x > US}
        rows.append((source.path.removeprefix(str(path)), trace.info.rank, lengths_us))
    return rows


def test_a_file_merged_by_sglang_is_its_ranks(tmp_path):
    path = tmp_path / "merged-1.trace.json.gz"
    path.write_bytes(gzip.compress(merged_by_sglang("TP00", "TP01")))
    assert found(path) == [("/TP00", 0, {10}), ("/TP01", 1, {11})]
    [one, _] = find_sources([str(path)])
    trace = read_trace(one)
    assert trace.info.world_size == 2
    assert {thread.process for thread in trace.threads} == {"0", "100"}  # the GPU and the host


def test_ranks_of_which_no_number_says_all_are_numbered_in_order(tmp_path):
    path = tmp_path / "merged.json"
    path.write_bytes(merged_by_sglang("TP00-DP01", "TP00-DP00"))
    assert found(path) == [("/TP00-DP00", 0, {11}), ("/TP00-DP01", 1, {10})]


def test_a_file_fused_by_tracelens_is_its_ranks(tmp_path):
    path = tmp_path / "merged_trace.json"
    path.write_bytes(merged_by_tracelens(0, 3))
    assert found(path) == [("/rank0", 0, {10}), ("/rank3", 3, {13})]


def test_a_merged_file_of_one_rank_is_one_trace(tmp_path):
    path = tmp_path / "merged.json"
    path.write_bytes(merged_by_sglang("TP00"))
    assert [source.path for source in find_sources([str(path)])] == [str(path)]


def test_each_rank_of_a_merged_file_that_breaks_off_is_truncated(tmp_path):
    path = tmp_path / "merged.json"
    whole = merged_by_sglang("TP00", "TP01")
    path.write_bytes(whole[: whole.rindex(b'{"ph"')])
    losses = [read_trace(source).losses for source in find_sources([str(path)])]
    assert [x["truncated"] for x in losses] == [1, 1]


def test_a_file_of_several_traces_is_not_one(tmp_path):
    path = tmp_path / "merged.json"
    path.write_bytes(merged_by_sglang("TP00", "TP01"))
    with pytest.raises(UsageError, match="holds 2 traces"):
        one_source(path)


def tar_of(files, mode):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return packed.getvalue()


def zip_of(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


RANKS = {
    "../../job/rank10.json.gz": gzip.compress(text(events_of(10))),
    "/job/rank2.json": text(events_of(2)),
    "job/README": b"not a trace",
}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_a_tar_is_the_traces_in_it(mode, tmp_path):
    path = tmp_path / "job.tar"
    path.write_bytes(tar_of(RANKS, mode))
    assert [(rank, lengths) for _, rank, lengths in found(path)] == [(2, {12}), (10, {20})]
    assert list(tmp_path.iterdir()) == [path]  # nothing is written where members say


def test_a_zip_is_the_traces_in_it(tmp_path):
    path = tmp_path / "job.zip"
    path.write_bytes(zip_of(RANKS))
    assert [(rank, lengths) for _, rank, lengths in found(path)] == [(2, {12}), (10, {20})]


@pytest.mark.parametrize("pack", [lambda files: tar_of(files, "w:gz"), zip_of], ids=["tar", "zip"])
def test_an_archive_that_unpacks_to_too_much_is_refused(pack, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MIN_LIMIT_BYTES", 1 << 16)
    path = tmp_path / "bomb"
    path.write_bytes(pack({"rank0.json": bytes(1 << 22)}))
    with pytest.raises(UnreadableInputError, match="unpacks to more than 200 times its size"):
        find_sources([str(path)])
    with pytest.raises(UnreadableInputError, match=r"unpacks to more than 0\.004 GB"):
        find_sources([str(path)], max_unpacked_bytes=4_000_000)
    assert len(find_sources([str(path)], max_unpacked_bytes=5_000_000)) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (tar_of({"README": b"nothing"}, "w"), "holds no .json file"),
        (tar_of(RANKS, "w")[:1600], "the archive is damaged"),
        (zip_of(RANKS)[:300], "the archive is damaged"),
    ],
    ids=["no trace", "broken-off tar", "broken-off zip"],
)
def test_archives_without_a_trace_or_damaged_are_refused(content, why, tmp_path):
    path = tmp_path / "job"
    path.write_bytes(content)
    with pytest.raises(UnreadableInputError, match=why):
        find_sources([str(path)])


@pytest.mark.parametrize("pack", [lzma.compress, bz2.compress])
@pytest.mark.parametrize("several", [False, True], ids=["one member", "several, padded"])
def test_xz_and_bzip2_are_read(pack, several, tmp_path):
    whole = text(events_of(4))
    pieces = (whole[:200], whole[200:]) if several else (whole,)
    path = tmp_path / "rank4.json.packed"
    path.write_bytes(b"".join(map(pack, pieces)) + bytes(8 if several else 0))
    assert found(path) == [("", 4, {14})]


@pytest.mark.parametrize("pack", [lzma.compress, bz2.compress])
def test_xz_and_bzip2_that_break_off_are_truncated(pack, tmp_path):
    path = tmp_path / "cut.json"
    packed = pack(text([kernel(i * US, i * US + i, f"kernel {i}") for i in range(1, 10_000)]))
    path.write_bytes(packed[: 3 * len(packed) // 4])
    assert read_trace(path).losses["truncated"] == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x28\xb5\x2f\xfd\x04\x00rest of it", "compressed with Zstandard.*zstd -d"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04rest of it", "compressed with 7-Zip.*7z x"),
    ],
)
def test_compressors_that_are_not_read_are_named(content, why, tmp_path):
    path = tmp_path / "step.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableInputError, match=why):
        read_trace(path)
