"""Which files a path stands for, and what their bytes are."""

from __future__ import annotations

import builtins
import gzip
import os
import sys
import zlib
from pathlib import Path

import pytest

from tests.build.files import US, operator, read, text
from tracelab.base.errors import MissingSupportError, UnreadableInputError
from tracelab.read import sources, streams
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources
from tracelab.read.streams import Source, open_source


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def found_in(folder: Path, *paths: str | Path) -> list[str]:
    return [os.path.relpath(s.path, folder) for s in find_sources(map(str, paths or [folder]))]


def refusal(*paths: str | Path) -> str:
    with pytest.raises(UnreadableInputError) as caught:
        find_sources(map(str, paths))
    return str(caught.value)


# --- which files ----------------------------------------------------------------------------


def test_a_named_file_is_itself_whatever_its_ending(tmp_path):
    touch(tmp_path, "trace.txt", "b.json")
    assert find_sources([str(tmp_path / "trace.txt"), str(tmp_path / "b.json")]) == (
        Source(str(tmp_path / "trace.txt"), None, named=True),
        Source(str(tmp_path / "b.json"), None, named=True),
    )
    assert find_sources([]) == ()


def test_a_folder_stands_for_its_traces_at_any_depth(tmp_path):
    """GIVEN a folder with traces as several profilers name them, other JSON and other files
    THEN it stands for the traces, in order, and not for what is only named like one."""
    touch(tmp_path, "b.pt.trace.json", "a/c.pt.trace.json.gz", "a/d/e.pt.trace.json", "report.json")
    touch(
        tmp_path, "1.5-TP-0.trace.json.gz", "i/rank0_trace.json", "trace.json", "a/config.json.gz"
    )
    touch(tmp_path, "f.pftrace", "a/g_rank1.pftrace.gz")
    touch(tmp_path, "a.pt.trace.json.bak", "notes.txt", "snapshot.pickle", "memory.html")
    (tmp_path / "folder.pt.trace.json").mkdir()
    assert found_in(tmp_path) == [
        "1.5-TP-0.trace.json.gz",
        "a/c.pt.trace.json.gz",
        "a/d/e.pt.trace.json",
        "a/g_rank1.pftrace.gz",
        "b.pt.trace.json",
        "f.pftrace",
        "i/rank0_trace.json",
        "trace.json",
    ]
    assert {source.named for source in find_sources([str(tmp_path)])} == {False}


@pytest.mark.parametrize(
    ("content", "is_found"),
    [
        (text([operator("o", US, 3 * US)]), True),
        (text([operator("o", US, 3 * US)], layout="bare"), True),
        (text([operator("o", US, 3 * US)], before={"distributedInfo": {"pg": "x" * 70_000}}), True),
        (gzip.compress(text([operator("o", US, 3 * US)]), mtime=0), True),
        (gzip.compress(text([operator("o", US, 3 * US)]), mtime=0)[:-20], True),
        (b'{"schema": "tracelab.report/1", "traces": []}', False),
        (b'[{"name": "a"}]', False),
        (b"{}", False),
        (b"", False),
    ],
)
def test_beside_traces_other_json_counts_if_it_begins_like_one(tmp_path, content, is_found):
    touch(tmp_path, "b.pt.trace.json")
    (tmp_path / "a.json").write_bytes(content)
    assert found_in(tmp_path) == ["a.json"] * is_found + ["b.pt.trace.json"]


@pytest.mark.parametrize(("end", "is_found"), [(65_536, True), (65_537, False)])
def test_a_trace_shows_within_65_536_bytes_that_it_is_one(tmp_path, end, is_found):
    key = b'"traceEvents"'
    touch(tmp_path, "b.pt.trace.json")
    (tmp_path / "a.json").write_bytes(b"{".ljust(end - len(key)) + key + b": []}")
    assert found_in(tmp_path) == ["a.json"] * is_found + ["b.pt.trace.json"]


@pytest.mark.parametrize("key", ["traceEvents", "deviceProperties", "distributedInfo"])
def test_each_key_that_only_traces_have_shows_one(tmp_path, key):
    touch(tmp_path, "b.pt.trace.json")
    (tmp_path / "a.json").write_text(f'{{"{key}": []')
    assert found_in(tmp_path) == ["a.json", "b.pt.trace.json"]


def test_what_cannot_be_looked_at_counts_so_that_its_reader_says_why(tmp_path):
    touch(tmp_path, "b.pt.trace.json")
    (tmp_path / "broken.json").write_bytes(b"\x1f\x8b, but no gzip")
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    assert found_in(tmp_path) == ["b.pt.trace.json", "broken.json", "gone.json"]


def test_numbers_in_names_are_in_the_order_of_numbers(tmp_path):
    touch(tmp_path, "i10/w2.json", "i10/w10.json", "i9/w10.json", "i9/w9.json", "i9.json")
    assert found_in(tmp_path) == [
        "i9/w9.json",
        "i9/w10.json",
        "i9.json",
        "i10/w2.json",
        "i10/w10.json",
    ]


def test_a_file_and_its_compressed_copy_are_one(tmp_path):
    """GIVEN a trace beside what it was unpacked from, and two that only share their name
    THEN the copy is left out of the folder, the others are not, and a named copy counts."""
    (tmp_path / "a.trace.json").write_bytes(b"[1, 2]")
    (tmp_path / "a.trace.json.gz").write_bytes(gzip.compress(b"[1, 2]"))
    (tmp_path / "b.trace.json").write_bytes(b"[1, 2]")
    (tmp_path / "b.trace.json.gz").write_bytes(gzip.compress(b"[1, 2, 3]"))
    (tmp_path / "c.trace.json").write_bytes(b"[1, 2]")
    (tmp_path / "c.trace.json.gz").write_bytes(b"[")
    (tmp_path / "d.trace.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "d.trace.json.gz").write_bytes(gzip.compress(b"[1, 2]"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.trace.json.gz").write_bytes(gzip.compress(b"[1, 2]"))
    assert found_in(tmp_path) == [
        "a.trace.json",
        "b.trace.json",
        "b.trace.json.gz",
        "c.trace.json",
        "c.trace.json.gz",
        "d.trace.json",
        "d.trace.json.gz",
        "sub/a.trace.json.gz",
    ]
    assert found_in(tmp_path, tmp_path / "a.trace.json.gz") == ["a.trace.json.gz"]


def test_a_merged_file_beside_its_parts_is_left_out(tmp_path):
    touch(tmp_path, "both/1.5-TP-0.trace.json.gz", "both/1.5-TP-1.trace.json.gz")
    touch(tmp_path, "both/merged-1.5.trace.json.gz", "both/merged-7.5.trace.json.gz")
    touch(tmp_path, "alone/merged-1.5.trace.json.gz")
    assert found_in(tmp_path) == [
        "alone/merged-1.5.trace.json.gz",
        "both/1.5-TP-0.trace.json.gz",
        "both/1.5-TP-1.trace.json.gz",
        "both/merged-7.5.trace.json.gz",
    ]


def test_a_folder_without_profiler_names_stands_for_its_json(tmp_path):
    touch(tmp_path, "b.json", "a/c.json.gz", "a/x.txt", "d.jsonl")
    (tmp_path / "folder.json").mkdir()
    assert found_in(tmp_path) == ["a/c.json.gz", "b.json"]


def test_each_file_is_found_once(tmp_path):
    """GIVEN a file that is named twice, by another path, through a link, and by its folder
    THEN it is one source, and it counts as named."""
    touch(tmp_path, "a.json", "b.json", "sub/c.json")
    (tmp_path / "link").symlink_to(tmp_path / "b.json")
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    (twice,) = find_sources([str(a), str(a), f"{tmp_path}/sub/../a.json"])
    assert twice.path == str(a)
    assert found_in(tmp_path, tmp_path, b, tmp_path / "link") == ["a.json", "b.json", "sub/c.json"]
    sources = find_sources([str(b), str(tmp_path)])
    assert [(Path(s.path).name, s.named) for s in sources] == [
        ("b.json", True),
        ("a.json", False),
        ("c.json", False),
    ]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json", 0),
        ("rank-3.pt.trace.json.gz", 3),
        ("rank_12.json", 12),
        ("Rank 7.json", 7),
        ("rank=5.json", 5),
        ("hta_sampled_rank1.json.gz", 1),
        ("rank0_iter16_18.json", 0),
        ("8ranks_rank00003.json", 3),
        ("nranks8.json", None),
        ("frank12.json", None),
        ("rank.json", None),
        ("host_1234.pt.trace.json", None),
        ("rank3_trace.json.gz", 3),
        ("global_rank_3.json", 3),
        ("ddp_rank3.json", 3),
        ("fsdp_rank3.json", 3),
        ("profile-global-rank3.trace.json.gz", 3),
        # A rank in a part of the job is not the rank in the job.
        ("local_rank3.json", None),
        ("node-rank-3.json", None),
        ("tp_rank3.json", None),
        ("dcp_rank3.json", None),
        ("tp-rank3.json", None),
        ("tp rank3.json", None),
        ("tprank3.json", None),
        *((f"{part}_rank3.json", None) for part in ("group", "shard", "replicate")),
        *((f"{letter}p_rank3.json", None) for letter in "dpecsm"),
        *((f"{part}_rank3.json", None) for part in ("pcp", "etp", "edp")),
        ("tp_rank1_pp_rank2_rank5.json", 5),
        ("rank5_tp_rank1.json", 5),
        ("fit-profiler-3-[Strategy]DDPStrategy.training_step.17.pt.trace.json", None),
        # vLLM: the rank is counted in each data parallel replica.
        ("dp0_pp0_tp1_dcp0_ep1_rank1.17.pt.trace.json.gz", 1),
        ("dp1_pp0_tp1_dcp0_ep3_rank1.17.pt.trace.json.gz", None),
        ("dp10_pp0_tp0_dcp0_ep0_rank0.17.pt.trace.json.gz", None),
        ("warmup_dp0_pp1_tp0_dcp0_ep0_rank2.17.pt.trace.json.gz", 2),
        ("dp-1_tp0_rank0.json", None),
        ("dp_1_tp0_rank0.json", None),
        ("dp01_tp0_rank0.json", None),
        ("DP1_TP0_rank0.json", None),
        ("fsdp2_rank3.json", 3),
        ("fb3a-rank-1.17.pt.trace.json.gz", 1),
        ("host_77.async_llm.17.pt.trace.json.gz", None),
        # SGLang: tensor parallel ranks count from 0 in each pipeline stage, and in each replica.
        ("1760000000.5-TP-3.trace.json.gz", 3),
        ("bs-8-il-4096-1760000000.5-TP-12-DECODE.trace.json.gz", 12),
        ("1760000000.5-TP-3-DRAFT_EXTEND_V2.trace.json.gz", 3),
        ("1760000000.5-TP-3-DP-0-PP-0-EP-3-prefill.trace.json.gz", 3),
        ("1760000000.5-TP-3-EP-1.trace.json.gz", 3),
        ("1760000000.5-TP-3-DP-1.trace.json.gz", None),
        ("1760000000.5-TP-3-DP-01.trace.json.gz", None),
        ("1760000000.5-TP-3-PP-1-DECODE.trace.json.gz", None),
        ("1760000000.5-TP-0-DP-0-PP-10.trace.json.gz", None),
        ("TP-3.trace.json.gz", 3),
        ("cuda_graph_capture-Runner-TP-3.json.gz", 3),
        ("llama-tp8.trace.json.gz", None),
        ("HTTP-3.trace.json.gz", None),
        ("merged-1760000000.5.trace.json.gz", None),
    ],
)
def test_rank_in_the_file_name(tmp_path, name, rank):
    folder = tmp_path / "rank99"
    touch(folder, name)
    assert [source.rank for source in find_sources([str(folder)])] == [rank]


def test_rank_in_a_url():
    def rank_of(url: str) -> int | None:
        (source,) = find_sources([url])
        assert (source.copy or source.path, source.named) == (url, True)
        return source.rank

    assert rank_of("s3://bucket/rank9/job_rank3.json.gz") == 3
    assert rank_of("https://host/rank3.json?signature=a/rank7") == 3
    assert rank_of("https://host/trace.json?rank=7") is None


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["missing.json", "", "a\0b", "x" * 5000])
def test_a_path_that_does_not_exist(tmp_path, name):
    path = str(tmp_path / name) if name else ""
    reason = "file name too long" if len(name) > 1000 else "no such file or folder"
    assert refusal(path) == f"{path or repr(path)}: {reason}"


def test_a_folder_without_json(tmp_path, snapshot):
    touch(tmp_path, "notes.txt")
    assert refusal(tmp_path) == snapshot


def test_a_folder_that_cannot_be_listed(tmp_path, monkeypatch):
    """GIVEN a folder with a subfolder that may not be listed
    THEN it is refused, for a rank may lie in there."""
    touch(tmp_path, "a.json", "locked/b.json")
    scandir = os.scandir

    def locked(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", locked)
    assert refusal(tmp_path) == f"{tmp_path / 'locked'}: permission denied"


def test_a_path_that_cannot_be_looked_at(monkeypatch):
    def locked(self, **_):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", locked)
    assert refusal("/locked/a.json") == "/locked/a.json: permission denied"


def test_a_file_that_cannot_be_opened(tmp_path, monkeypatch):
    path = str(tmp_path / "a.json")

    def locked(file, *_args, **_options):
        raise PermissionError(13, "Permission denied", file)

    monkeypatch.setattr(builtins, "open", locked)
    with pytest.raises(UnreadableInputError) as caught, open_source(Source(path, None, True)):
        pass
    assert str(caught.value) == f"{path}: permission denied"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permissions_of_the_file_system(tmp_path):
    touch(tmp_path, "a.json", "locked/b.json")
    (tmp_path / "a.json").chmod(0)
    with pytest.raises(UnreadableInputError, match=r"a\.json: permission denied"):
        read(tmp_path / "a.json")
    (tmp_path / "locked").chmod(0)
    try:
        assert refusal(tmp_path / "locked").endswith(": permission denied")
        assert refusal(tmp_path / "locked" / "b.json").endswith(": permission denied")
    finally:
        (tmp_path / "locked").chmod(0o700)


@pytest.mark.parametrize(("name", "reason"), [("a", "no such file"), (".", "is a directory")])
def test_opening_what_is_no_file(tmp_path, name, reason):
    path = str(tmp_path / name)
    with pytest.raises(UnreadableInputError) as caught, open_source(Source(path, None, True)):
        pass
    assert str(caught.value) == f"{path}: {reason}"


# --- bytes ----------------------------------------------------------------------------------


def bytes_of(path: Path | str) -> bytes:
    with open_source(Source(str(path), None, True)) as stream:
        return stream.read()


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a"])
@pytest.mark.parametrize("content", [b"", b"[", b"\x1f", b'{"traceEvents": []}' * 10_000])
def test_gzip_is_known_by_its_content(tmp_path, name, content):
    """GIVEN bytes, plain or compressed once or in several members, under any name
    THEN the plain bytes are read."""
    path = tmp_path / name
    path.write_bytes(content)
    assert bytes_of(path) == content
    path.write_bytes(gzip.compress(content))
    assert bytes_of(path) == content
    path.write_bytes(gzip.compress(content) + gzip.compress(b"more"))
    assert bytes_of(path) == content + b"more"


@pytest.fixture(params=["isal", "zlib"])
def unpacker(request, monkeypatch):
    """The package that unpacks gzip files."""
    if request.param == "zlib":
        monkeypatch.setattr(streams, "fast_zlib", zlib)
    else:
        isal_zlib = pytest.importorskip("isal.isal_zlib", reason="isal is not installed")
        assert streams.fast_zlib is isal_zlib


@pytest.mark.usefixtures("unpacker")
def test_large_and_padded_files_are_unpacked(tmp_path):
    content = b"".join(b"%d," % (i * i) for i in range(300_000))
    packed = gzip.compress(content, 1)
    for members in ([packed], [packed, b"\0" * 5000, packed], [packed, packed, b"\0" * 300_000]):
        (tmp_path / "a").write_bytes(b"".join(members))
        assert bytes_of(tmp_path / "a") == content * members.count(packed)


@pytest.mark.usefixtures("unpacker")
@pytest.mark.parametrize("damage", ["cut", "overwritten", "followed"])
def test_what_stands_before_the_damage_is_unpacked(tmp_path, damage):
    """GIVEN a gzip file that breaks off, holds other bytes, or is followed by some
    THEN what was unpacked before is a prefix of the content, and then an error comes."""
    content = b"".join(b"%d," % (i * i) for i in range(400_000))
    packed = gzip.compress(content, 1)
    assert len(packed) > 1_000_000
    for place in (100, len(packed) // 2, len(packed) - 4):
        broken = {
            "cut": packed[:place],
            "overwritten": packed[:place] + bytes(4) + packed[place + 4 :],
            "followed": packed + b"other" * place,
        }[damage]
        (tmp_path / "a").write_bytes(broken)
        unpacked, failed = b"", False
        with open_source(Source(str(tmp_path / "a"), None, True)) as stream:
            try:
                while part := stream.read1(100_000):
                    unpacked += part
            except streams.READ_ERRORS:
                failed = True
        assert failed
        whole = len(content) if damage == "followed" else len(content) * place // len(packed)
        assert len(unpacked) > whole - 1_000_000
        if damage != "overwritten":  # a deflated byte that is wrong is noticed late
            assert content.startswith(unpacked)


def test_the_file_is_closed(tmp_path):
    for content in (b"[]", gzip.compress(b"[]")):
        (tmp_path / "a").write_bytes(content)
        with open_source(Source(str(tmp_path / "a"), None, True)) as stream:
            pass
        assert stream.closed


def test_a_pipe_can_be_read():
    """A shell's ``<(zcat ...)`` is a path that can be read once and not be sought in."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(gzip.compress(text([operator("o", US, 3 * US)])))
    try:
        assert len(read(f"/dev/fd/{reading}")) == 1
    finally:
        os.close(reading)


# --- URLs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_url_is_read_through_fsspec(pack):
    fsspec = pytest.importorskip("fsspec")
    content = text([operator("o", US, 3 * US)])
    fsspec.filesystem("memory").pipe("/folder/rank2.json", pack(content))
    (source,) = find_sources(["memory://folder/rank2.json"])
    assert bytes_of(source.path) == content
    trace = read_trace(source)
    assert (len(trace), trace.info.rank, trace.info.rank_source) == (1, 2, "filename")


def test_a_local_file_by_its_url(tmp_path):
    pytest.importorskip("fsspec")
    (tmp_path / "a.json").write_bytes(gzip.compress(b"[]"))
    assert bytes_of(f"file://{tmp_path}/a.json") == b"[]"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("memory://missing.json", "no such file"),
        ("unheard-of://a.json", "protocol not known: unheard-of"),
        ("file:///", "is a directory"),
    ],
)
def test_a_url_that_cannot_be_read(url, reason):
    pytest.importorskip("fsspec")
    with pytest.raises(UnreadableInputError) as caught:
        bytes_of(url)
    assert str(caught.value) == f"{url}: {reason}"


def test_any_error_of_a_remote_file_system_is_a_sentence(monkeypatch):
    fsspec = pytest.importorskip("fsspec")

    class CredentialsError(Exception):
        pass

    def fail(*_args, **_options):
        raise CredentialsError("No credentials\nat all")

    monkeypatch.setattr(fsspec, "url_to_fs", fail)
    with pytest.raises(UnreadableInputError) as caught:
        bytes_of("s3://bucket/a.json")
    assert str(caught.value) == "s3://bucket/a.json: no credentials"


def test_missing_packages_are_named(monkeypatch):
    fsspec = pytest.importorskip("fsspec")

    def needs_more(url, **_options):
        raise ImportError(f"Install more to access {url}")

    monkeypatch.setattr(fsspec, "url_to_fs", needs_more)
    for url, install in (("s3://b", ": pip install 'tracelab-gpu[s3]'"), ("sftp://b", "")):
        with pytest.raises(MissingSupportError) as caught:
            bytes_of(url)
        assert str(caught.value) == f"{url}: Install more to access {url}{install}"
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingSupportError, match=r"^s3://b/a.json: .* pip install 'tracelab"):
        bytes_of("s3://b/a.json")


def test_only_a_url_needs_fsspec(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    (tmp_path / "a.json").write_bytes(b"[]")
    assert bytes_of(tmp_path / "a.json") == b"[]"
    assert sources.find_sources([str(tmp_path)])[0].path == str(tmp_path / "a.json")
