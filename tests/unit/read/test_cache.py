"""What is kept of files that were read, and that it is never believed when it should not be."""

from __future__ import annotations

import gzip
import os
import queue
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from tests.build.files import US, complete_event, operator, text
from tracelab import analyze
from tracelab.base.arrays import Arrays
from tracelab.base.options import Options
from tracelab.model.trace import SparseColumn
from tracelab.read import cache
from tracelab.read.cache import load_trace, trace_from_bytes
from tracelab.read.reader import read_trace, read_trace_in_chunks
from tracelab.read.sources import find_sources
from tracelab.read.streams import Source, watched

TRACES = Path(__file__).parents[3] / "traces"
REAL = TRACES / "fsdp_item_rank0.pt.trace.json.gz"


@pytest.fixture(autouse=True)
def entries(tmp_path, monkeypatch):
    """An empty cache, for files of any size; gives a function that lists it."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(cache, "folder", lambda: folder)
    monkeypatch.setattr(cache, "MIN_FILE_BYTES", 0)
    return lambda: sorted(folder.iterdir()) if folder.exists() else []


@pytest.fixture
def reads(monkeypatch):
    """The paths that were really read."""
    seen = []

    def read_and_note(source, processes):
        seen.append(source.path)
        return read_trace_in_chunks(source, processes)

    monkeypatch.setattr(cache, "read_trace_in_chunks", read_and_note)
    return seen


def load(path):
    return load_trace(find_sources([str(path)])[0])


def small(folder, name="a.json", events=20):
    path = folder / name
    path.write_bytes(
        text([operator(f"o{i}", 10 * i * US, (10 * i + 5) * US) for i in range(events)])
    )
    return path


def assert_equal(one, other):
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray | SparseColumn):
            np.testing.assert_array_equal(a[:], b[:])
            assert a[:].dtype == b[:].dtype
        elif isinstance(a, Arrays):
            assert_equal(a, b)
        else:
            assert a == b, field.name


@pytest.mark.parametrize("name", [REAL.name, "two_models_pipelined_item.pt.trace.json.gz"])
def test_a_second_look_gives_the_same_trace_without_reading(name, reads, entries):
    first, second = load(TRACES / name), load(TRACES / name)
    assert len(reads) == len(entries()) == 1
    assert_equal(first, second)
    assert_equal(second, read_trace(Source(str(TRACES / name), None, named=True)))
    with pytest.raises(ValueError, match="read-only"):
        second.start_ns[0] = 0


def test_an_entry_that_is_opened_counts_as_the_file_read(tmp_path):
    path = small(tmp_path)
    [source] = find_sources([str(path)])
    load_trace(source)
    told = []
    with watched(told.append):
        load_trace(source)
    assert told == [path.stat().st_size]


def test_what_is_not_known_is_kept_with_its_names(tmp_path, reads):
    lane = {"device": 3, "stream": 7}
    new = complete_event("f", "graph_foo_node", 0, 5 * US, pid=3, tid=7, **lane)
    path = tmp_path / "new.json"
    path.write_bytes(text([operator("o", 0, US), new, new]))
    first, second = load(path), load(path)
    assert len(reads) == 1
    assert_equal(first, second)
    assert second.loss_names == {"unknown_categories": {"graph_foo_node": 2}}
    assert second.unknown_gpu_ns == {"graph_foo_node": {3: 10_000}}


@pytest.mark.parametrize(
    "name",
    [
        "ddp_hook_side_stream_rank1.pt.trace.json.gz",
        pytest.param("train_step_sinful.pt.trace.json.gz", marks=pytest.mark.slow),
    ],
)
def test_reports_are_the_same_with_and_without_it(name, entries, tmp_path):
    """Except for what is read of the file again, all that is measured comes from the columns."""
    trace = shutil.copy(TRACES / name, tmp_path)
    plain = analyze(trace, Options(cache=False))
    assert entries() == []
    kept, opened = analyze(trace), analyze(trace)
    assert len(entries()) == 1
    assert plain.to_json() == kept.to_json() == opened.to_json()


def test_a_file_is_known_by_its_content(tmp_path, reads):
    first = small(tmp_path)
    load(first)
    copy = tmp_path / "other_rank3.json"
    shutil.copy(first, copy)
    trace = load(copy)
    assert reads == [str(first)]
    assert (trace.path, trace.info.rank, trace.info.rank_source) == (str(copy), 3, "filename")
    times = first.stat()
    first.write_text(first.read_text().replace("o1", "p1"))
    os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns))  # nothing but its content tells
    assert "p1" in load(first).strings
    assert reads == [str(first), str(first)]


def test_files_of_several_blocks_differ_in_any_of_them(tmp_path, monkeypatch, reads):
    monkeypatch.setattr(cache, "_BLOCK_BYTES", 100)
    path = small(tmp_path)
    content = path.read_text()
    load(path)
    for place in (content.index("o0"), content.index("o10"), content.index("o19")):
        path.write_text(content[:place] + "x" + content[place + 1 :])
        load(path)
        load(path)
    assert len(reads) == 4


@pytest.mark.parametrize("place", [0, 9, 17, 40, 300, -960, -190, -64])
def test_a_damaged_entry_is_read_anew_and_replaced(tmp_path, place, reads, entries):
    path = small(tmp_path)
    good = load(path)
    (entry,) = entries()
    content = entry.read_bytes()
    broken = bytearray(content)
    broken[place] ^= 0x10
    entry.write_bytes(broken)
    assert_equal(load(path), good)
    assert len(reads) == 2
    assert entry.read_bytes() == content
    assert_equal(load(path), good)
    assert len(reads) == 2


def test_every_byte_that_is_wrong_is_noticed(tmp_path, entries):
    """But for the padding, which nobody reads."""
    path = small(tmp_path, events=2)
    load(path)
    (entry,) = entries()
    content, source = entry.read_bytes(), Source(str(path), None, named=True)
    assert trace_from_bytes(content, entry.stem, source) is not None
    believed = 0
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] ^= 0xFF
        if trace_from_bytes(broken, entry.stem, source) is not None:
            believed += 1
            assert content[place] == 0
    assert believed < len(content) / 2


@pytest.mark.parametrize("size", [0, 1, 23, 24, 100, 1000, -1])
def test_an_entry_that_breaks_off_or_goes_on_is_read_anew(tmp_path, size, reads, entries):
    path = small(tmp_path)
    load(path)
    (entry,) = entries()
    content = entry.read_bytes()
    for broken in (content[:size], content + b"x"):
        entry.write_bytes(broken)
        load(path)
        assert entry.read_bytes() == content
    assert len(reads) == 3


def test_another_files_entry_is_not_believed(tmp_path, reads, entries):
    one, other = small(tmp_path, "a.json", 5), small(tmp_path, "b.json", 6)
    load(one)
    (first,) = entries()
    load(other)
    (second,) = set(entries()) - {first}
    shutil.copy(first, second)
    assert len(load(other)) == 6
    assert len(reads) == 3


def test_another_version_reads_anew(tmp_path, monkeypatch, reads):
    path = small(tmp_path)
    load(path)
    monkeypatch.setattr(cache, "_reader_version", lambda: b"of another day")
    load(path)
    assert len(reads) == 2


def test_only_local_files_of_some_size_are_kept(tmp_path, monkeypatch, entries):
    path = small(tmp_path)
    monkeypatch.setattr(cache, "MIN_FILE_BYTES", path.stat().st_size + 1)
    load(path)
    monkeypatch.setattr(cache, "MIN_FILE_BYTES", 0)
    load(path.as_uri())
    assert entries() == []


def test_a_file_that_changes_while_it_is_read_is_not_kept(tmp_path, monkeypatch, entries):
    path = small(tmp_path)

    def read_while_it_grows(source, _):
        trace = read_trace(source)
        path.write_text(path.read_text() + " ")
        return trace

    monkeypatch.setattr(cache, "read_trace_in_chunks", read_while_it_grows)
    load(path)
    assert entries() == []


def test_what_was_not_used_for_longest_makes_room(tmp_path, monkeypatch, reads, entries):
    paths = [small(tmp_path, f"{i}.json", 20 + i) for i in range(4)]
    load(paths[0])
    size = entries()[0].stat().st_size
    monkeypatch.setattr(cache, "MAX_TOTAL_BYTES", 3 * size + 1000)
    for age, path in enumerate(paths[:3]):
        load(path)
        newest = max(entries(), key=lambda x: x.stat().st_mtime_ns)
        os.utime(newest, (age, age))
    load(paths[0])  # used again: now the second is the oldest
    load(paths[3])
    assert len(entries()) == 3
    assert sum(x.stat().st_size for x in entries()) <= cache.MAX_TOTAL_BYTES
    before = len(reads)
    load(paths[0])
    load(paths[2])
    load(paths[3])
    assert len(reads) == before
    load(paths[1])
    assert len(reads) == before + 1


def test_what_is_larger_than_all_may_be_is_not_kept(tmp_path, monkeypatch, entries):
    monkeypatch.setattr(cache, "MAX_TOTAL_BYTES", 100)
    load(small(tmp_path))
    assert entries() == []


def test_what_crashed_processes_left_is_removed(tmp_path, entries):
    load(small(tmp_path, "a.json"))
    old, young = (entries()[0].with_name(f"{x}.unfinished") for x in ("old", "young"))
    old.touch()
    young.touch()
    an_hour_ago = young.stat().st_mtime - 4000
    os.utime(old, (an_hour_ago, an_hour_ago))
    load(small(tmp_path, "b.json", 7))
    assert not old.exists()
    assert young.exists()


@pytest.mark.parametrize("how", ["a file", "no folder"])
def test_without_a_folder_it_goes_without(tmp_path, monkeypatch, how):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" if how == "a file" else tmp_path / "file" / "below"
    monkeypatch.setattr(cache, "folder", lambda: folder)
    assert len(load(small(tmp_path))) == len(load(small(tmp_path))) == 20


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, entries):
    path = small(tmp_path)

    def fill(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fill)
    assert len(load(path)) == 20
    assert entries() == []


def test_what_cannot_be_written_is_not_kept(tmp_path, entries):
    """GIVEN metadata that nests deeper than what is read can be written again"""
    path = tmp_path / "deep.json"
    content = small(tmp_path).read_text()
    path.write_text(content.rstrip()[:-1] + ', "deep": ' + "[" * 1_000 + "]" * 1_000 + "}")
    before = entries()
    assert len(load(path)) == 20
    assert entries() == before


def test_an_entry_that_others_own_is_used(tmp_path, monkeypatch, reads):
    path = small(tmp_path)
    load(path)

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "utime", refuse)
    load(path)
    assert len(reads) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has no owners of files")
@pytest.mark.parametrize("who", ["the group writes", "all write", "another owns"])
def test_a_folder_that_others_can_write_into_is_not_used(
    tmp_path, monkeypatch, reads, entries, who
):
    """THEN nothing is taken from there, nor put there."""
    path = small(tmp_path)
    load(path)
    folder = entries()[0].parent
    if who == "another owns":
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    else:
        folder.chmod(0o770 if who == "the group writes" else 0o707)
    load(path)
    assert len(reads) == 2
    load(small(tmp_path, "b.json", events=30))
    assert len(entries()) == 1


def test_other_files_in_the_folder_stay(tmp_path, monkeypatch, entries):
    load(small(tmp_path, "a.json"))
    other = entries()[0].with_name("other")
    other.write_bytes(bytes(10_000))
    monkeypatch.setattr(cache, "MAX_TOTAL_BYTES", 9000)
    load(small(tmp_path, "b.json", 7))
    assert other.exists()


def test_ctrl_c_leaves_nothing(tmp_path, monkeypatch, entries):
    path = small(tmp_path)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load(path)
    assert entries() == []


def test_racing_readers_all_get_the_trace(tmp_path, entries):
    path = small(tmp_path, events=5000)
    good = read_trace(Source(str(path), None, named=True))
    turns = queue.SimpleQueue()  # True for each reader that begins, False at the end

    def damage():
        while turns.get():
            for entry in entries():
                entry.unlink(missing_ok=True)

    def begin_and_load(_):
        turns.put(True)
        return load(path)

    with ThreadPoolExecutor(5) as pool:
        pool.submit(damage)
        try:
            for trace in pool.map(begin_and_load, range(40)):
                assert_equal(trace, good)
        finally:
            turns.put(False)


def test_racing_processes_leave_one_whole_entry(tmp_path, monkeypatch, reads):
    code = (
        "import sys; from tracelab.read import cache; from tracelab.read.sources import Source;"
        "trace = cache.load_trace(Source(sys.argv[1], None, True));"
        "print(len(trace), int(trace.start_ns.sum()))"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(REAL.read_bytes()))
    command = [sys.executable, "-c", code, str(plain)]
    racing = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    printed = {process.communicate()[0] for process in racing}
    assert len(printed) == 1
    kept = [x for x in tmp_path.rglob("*") if x.is_file() and x != plain]
    assert len(kept) == 1
    monkeypatch.setattr(cache, "folder", lambda: kept[0].parent)
    trace = load(plain)
    assert reads == []
    assert printed == {f"{len(trace)} {trace.start_ns.sum()}\n"}
