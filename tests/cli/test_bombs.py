"""Small files that would become huge: each is refused in a sentence, in little memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.cli.commands import tracelab

MB = 1 << 20
MAX_MEMORY_KB = 300_000
# Peak memory of this process alone: `getrusage` counts that of the process before it, too.
RUN = """
import re, sys
from pathlib import Path
from tracelab.cli.main import main

for path in sys.argv[1:]:
    sys.argv = ["tracelab", "analyze", "--no-cache", path]
    try:
        main()
    except SystemExit as end:
        memory_kb = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
        print(end.code, memory_kb, file=sys.stderr)
"""
BEGIN = b'{"traceEvents": ['
EVENT = b'{"ph": "X", "name": "a", "ts": 1, "dur": 1}'
REPORT = b'{"schema": "tracelab.report/1", "traces": '
TOO_MUCH = "times its size; --max-unpacked allows more"


def packed(*parts):
    """Gzip of texts, each given with how often it comes."""
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as file:
        for text, count in parts:
            for _ in range(count):
                file.write(text)
    return stream.getvalue()


def zipped(count, content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(count):
            archive.writestr(f"{number}.json", content)
    return stream.getvalue()


def tarred(count, content=b"", **about):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for number in range(count):
            member = tarfile.TarInfo(f"{number}.json")
            member.size, member.pax_headers = len(content), about
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


ZEROS, OBJECTS, LISTS = b"\0" * MB, b"{}," * (MB // 3), b"[]," * (MB // 3)
BOMBS = {
    "zeros": (lambda: packed((ZEROS, 400)), "neither a JSON object nor a list"),
    "gzip of gzip": (lambda: gzip.compress(packed((ZEROS, 400))), TOO_MUCH),
    "xz": (lambda: lzma.compress(b" " * 400 * MB, preset=1), TOO_MUCH),
    "bzip2": (lambda: bz2.compress(b" " * 400 * MB, 9), TOO_MUCH),
    "huge member": (lambda: zipped(1, bytes(400 * MB)), TOO_MUCH),
    "many members": (lambda: zipped(5_000, b"{}"), "holds more than 4,096 .json files"),
    "huge member of a tar": (lambda: tarred(1, bytes(400 * MB)), TOO_MUCH),
    "many members of a tar": (lambda: tarred(5_000), "holds more than 4,096 .json files"),
    "huge name in a tar": (lambda: tarred(1, comment="x" * 400 * MB), "header is too long"),
    "archive in gzip": (
        lambda: gzip.compress(zipped(1, bytes(400 * MB))),
        "the archive is damaged",
    ),
    "deep lists": (lambda: packed((BEGIN, 1), (b"[" * MB, 400)), "a list of something other"),
    "deep objects": (lambda: packed((BEGIN, 1), (b'{"a":' * MB, 80)), "none of its events"),
    "text": (lambda: packed((BEGIN + b'{"name": "', 1), (b"a" * MB, 400)), "none of its events"),
    "digits": (lambda: packed((BEGIN, 1), (b"1" * MB, 400)), "a list of something other"),
    "empty events": (lambda: packed((BEGIN, 1), (OBJECTS, 400)), TOO_MUCH),
    "bare list": (lambda: packed((b"[", 1), (OBJECTS, 400)), TOO_MUCH),
    "header": (lambda: packed((b'{"a": [', 1), (OBJECTS, 400)), "its first 16 MiB"),
    "whole header": (lambda: b'{"a": [%b{}]}' % (15 * OBJECTS), 'no "traceEvents" list'),
    "lists in an event": (
        lambda: BEGIN + b'{"ph": "X", "args": {"a": [%b[]]}}]}' % (15 * LISTS),
        "none of its events",
    ),
    "trailer": (
        lambda: BEGIN + EVENT + b'], "a": [%b{}]}' % (30 * OBJECTS),
        "no GPU activity: nothing to analyze (unreadable_metadata: 1)",
    ),
    "text in a report": (lambda: packed((REPORT + b'"', 1), (b"a" * MB, 400)), TOO_MUCH),
    "rows of a report": (lambda: packed((REPORT + b"[", 1), (OBJECTS, 400)), TOO_MUCH),
    "plain rows of a report": (lambda: REPORT + b"[%b{}]}" % (15 * OBJECTS), "more values than"),
    "deep report": (lambda: packed((REPORT, 1), (b"[" * MB, 10)), "more values than"),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process had")
def test_what_would_become_huge_is_refused_in_little_memory(tmp_path):
    for name, (make, _) in BOMBS.items():
        (tmp_path / name).write_bytes(make())

    run = subprocess.run(
        [sys.executable, "-c", RUN, *BOMBS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )

    lines = run.stderr.splitlines()
    assert len(lines) == 2 * len(BOMBS)
    for (name, (_, sentence)), said, end in zip(
        BOMBS.items(), lines[::2], lines[1::2], strict=True
    ):
        assert said.startswith(f"tracelab: {name}"), said
        assert sentence in said
        code, memory_kb = map(int, end.split())
        assert (name, code) == (name, 3)
        assert memory_kb < MAX_MEMORY_KB, name


def test_a_file_may_unpack_to_what_the_option_allows(tmp_path):
    path = tmp_path / "long.json.gz"
    path.write_bytes(packed((BEGIN, 1), (OBJECTS, 20), (EVENT + b"]}", 1)))

    refused, read = tracelab("analyze", path), tracelab("analyze", path, "--max-unpacked", "0.03")

    assert b"unpacks to more than 200 times its size; --max-unpacked allows more" in refused.stderr
    assert b"1 CPU event and no GPU activity" in read.stderr
    assert (
        b"unpacks to more than 0.01 GB"
        in tracelab("analyze", path, "--max-unpacked", "0.01").stderr
    )
