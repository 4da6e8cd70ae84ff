"""Remote files, from servers on this machine: what is read, and each sentence where nothing is."""

from __future__ import annotations

import gzip
import http.server
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.commands import tracelab
from tracelab.analysis.reports import analyze
from tracelab.base.errors import MissingSupportError, UnreadableInputError
from tracelab.base.safe_text import hide_secrets
from tracelab.read import streams as remote
from tracelab.read.sources import find_sources
from tracelab.read.streams import open_source
from tracelab.report.load import load_report

TRACE = Path("traces/events_item.pt.trace.json.gz")
USER, PASSWORD, TOKEN = "kim", "hunter2", "t0ken"
SECRETS = re.compile(f"{USER}|{PASSWORD}|{TOKEN}")
TOO_SLOW = r": the server does not answer in time$"
LARGE = b"[" + b" " * (13 << 20) + b"]"


@contextmanager
def serving(answer):
    """The port of a server, whose answers a function of the request's handler gives."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            answer(self)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.daemon_threads, server.block_on_close = [], True, False
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def give(status=200, content=b"", byte_count=None, **headers):
    def answer(handler):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(byte_count or len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def wait(handler):
    """Answer nothing for as long as a test takes."""
    handler.rfile.read(1)


def url_of(server, name="a.json"):
    return f"http://{USER}:{PASSWORD}@127.0.0.1:{server.server_port}/{name}?token={TOKEN}"


def read(url, **options):
    [source] = find_sources([url], **options)
    with open_source(source) as stream:
        return stream.read()


def refusal(url, **options):
    with pytest.raises(UnreadableInputError) as caught:
        read(url, **options)
    sentence = str(caught.value)
    assert not SECRETS.search(sentence)
    path, _, reason = sentence.partition("?…: ")
    assert path.startswith("http://…@")
    return reason


@pytest.fixture(autouse=True)
def _needs_fsspec():
    pytest.importorskip("fsspec", reason="URLs need fsspec: install .[remote]")
    pytest.importorskip("aiohttp", reason="HTTP needs aiohttp: install .[remote]")


# --- what is read ---


def test_a_large_file_of_a_server_that_sends_no_parts_of_it():
    """THEN it is asked for once, and whole: no blocks, and no size first."""
    with serving(give(content=LARGE)) as server:
        assert read(url_of(server)) == LARGE
        assert server.asked == [f"/a.json?token={TOKEN}"]


@pytest.mark.parametrize("headers", [{}, {"Content_Encoding": "gzip"}], ids=["file", "transfer"])
def test_what_is_packed_is_unpacked_here_within_limits(headers):
    with serving(give(content=gzip.compress(LARGE), **headers)) as server:
        assert read(url_of(server)) == LARGE
        assert "unpacks to more than 0.001 GB" in refusal(url_of(server), max_unpacked_bytes=10**6)


def test_two_files_that_only_their_queries_tell_apart():
    with serving(give(content=b"[]")) as server:
        address = f"http://127.0.0.1:{server.server_port}/get"
        sources = find_sources([f"{address}?id=1", f"{address}?id=2", f"{address}?id=1"])
        assert [x.path for x in sources] == [f"{address}?…"] * 2
        for source in map(pickle.loads, map(pickle.dumps, sources)):  # as for a cluster
            with open_source(source) as stream:
                assert stream.read() == b"[]"
        assert server.asked == ["/get?id=1", "/get?id=2"]


@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_files_that_other_processes_read(executor):
    with serving(give(content=TRACE.read_bytes())) as server:
        urls = [url_of(server, f"rank{rank}.json") for rank in (0, 1)]
        ran = tracelab("analyze", *urls, "--executor", executor, "--no-cache", "--brief")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"rank1.json" in ran.stdout
    assert not SECRETS.search(ran.stdout.decode())


# --- sentences ---


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "the server requires a password or a token (HTTP 401)"),
        (403, "the server denies access (HTTP 403)"),
        (404, "no such file"),
        (410, "the server refuses the request (HTTP 410)"),
        (500, "the server failed (HTTP 500)"),
        (503, "the server failed (HTTP 503)"),
    ],
)
def test_statuses(status, reason):
    with serving(give(status)) as server:
        assert refusal(url_of(server)) == reason


def test_nobody_listens():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://{USER}:{PASSWORD}@127.0.0.1:{unused.getsockname()[1]}/a?{TOKEN}"
        assert refusal(url) == "the server refuses the connection"


def test_no_such_host():
    url = f"http://{USER}:{PASSWORD}@no-such-host.invalid/a.json?{TOKEN}"
    assert refusal(url) == "no host of this name is found"


def test_an_answer_that_breaks_off():
    with serving(give(content=LARGE, byte_count=2 * len(LARGE))) as server:
        assert refusal(url_of(server)) == "the answer breaks off, or is not HTTP"


@pytest.mark.parametrize("limit", ["MAX_SILENCE_S", "MAX_TRANSFER_S"])
def test_a_server_that_does_not_answer(monkeypatch, limit):
    monkeypatch.setattr(remote, limit, 0.2)
    with serving(wait) as server:
        assert refusal(url_of(server)) == "the server does not answer in time"


def test_a_server_that_never_ends(monkeypatch):
    """GIVEN one that sends a little, again and again: it is not silent, but the file takes long."""

    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):  # the reader has gone
            while True:
                handler.wfile.write(b" ")
                time.sleep(0.02)

    monkeypatch.setattr(remote, "MAX_TRANSFER_S", 0.5)
    with serving(drip) as server:
        assert refusal(url_of(server)) == "the server does not answer in time"


def test_a_file_of_any_other_kind_of_server_that_takes_long(monkeypatch):
    import fsspec

    fsspec.filesystem("memory").pipe("/long.json", LARGE)
    assert read("memory://long.json") == LARGE
    monkeypatch.setattr("tracelab.read.streams.MAX_TRANSFER_S", -1)
    with pytest.raises(UnreadableInputError, match=TOO_SLOW):
        read("memory://long.json")


def test_the_limits_hold_behind_another_file_system(monkeypatch):
    with serving(give(content=LARGE)) as server:
        assert read(f"simplecache::{url_of(server)}") == LARGE
    redirects = pytest.raises(UnreadableInputError, match=r": redirects to an address that is not")
    with serving(give(302, Location="file:///etc/passwd")) as server, redirects:
        read(f"zip://a.json::{url_of(server)}")
    monkeypatch.setattr(remote, "MAX_TRANSFER_S", 0.2)
    with serving(wait) as server, pytest.raises(UnreadableInputError, match=TOO_SLOW):
        read(f"simplecache::{url_of(server)}")


def test_more_than_a_remote_file_may_have(monkeypatch):
    with serving(give(content=LARGE)) as server:
        assert "is larger than 0.001 GB" in refusal(url_of(server), max_unpacked_bytes=10**6)
        monkeypatch.setattr("tracelab.read.streams.MAX_REMOTE_BYTES", 2_000_000)
        assert "is larger than 0.002 GB" in refusal(url_of(server))


# --- redirects ---


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/a.json"])
def test_no_redirect_leaves_http(target):
    with serving(give(302, Location=target)) as server:
        assert refusal(url_of(server)) == "redirects to an address that is not HTTP"


def test_redirects_have_an_end():
    with serving(lambda handler: give(302, Location=handler.path)(handler)) as server:
        assert refusal(url_of(server)) == "redirects without an end"


@pytest.mark.parametrize("target", ["http://", "http://[::1"])
def test_addresses_that_are_not_valid(target):
    reason = "this address, or one that it redirects to, is not valid"
    with serving(give(302, Location=target)) as server:
        assert refusal(url_of(server)) == reason
    with pytest.raises(UnreadableInputError, match=f": {reason}$"):
        read("http:///a.json")


def test_no_redirect_leads_from_a_public_address_to_a_private_one(monkeypatch):
    monkeypatch.setattr(remote, "is_public", {"127.0.0.1": True, "127.0.0.2": False}.get)
    with serving(give(content=b"[]")) as inside:
        address = f"http://127.0.0.1:{inside.server_port}/b.json"
        with serving(give(302, Location=address)) as outside:
            assert read(url_of(outside)) == b"[]"
        with serving(give(302, Location=address.replace("0.1:", "0.2:"))) as outside:
            reason = "redirects from a public address to a private one"
            assert refusal(url_of(outside)) == reason


# --- secrets ---


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:secret@host:1/a?b=c#d", "https://…@host:1/a?…"),
        ("http://me:sec/r?e#t@host/a", "http://…@host/a"),
        ("http://host:80/@a: no such file", "http://host:80/@a: no such file"),
        ("s3://bucket/a@b.json", "s3://bucket/a@b.json"),
        ("'https://h/a?t=1' and http://h/b?t=2, too.", "'https://h/a?…' and http://h/b?…, too."),
        ("void at::native::f<a ? b : c>(x)", "void at::native::f<a ? b : c>(x)"),
    ],
)
def test_addresses_hide_secrets(text, shown):
    assert hide_secrets(text) == shown
    assert hide_secrets(shown) == shown


def test_no_secret_in_anything_that_a_command_writes(tmp_path):
    """GIVEN a URL with a password, a token and blanks THEN what is shown and saved has none."""
    with serving(give(content=TRACE.read_bytes())) as server:
        url = url_of(server, "a b.json") + f" {TOKEN}"
        files = [tmp_path / f"a.{ending}" for ending in ("json", "html", "png", "pftrace.json.gz")]
        flags = zip(("--json", "--html", "--png", "--perfetto"), files, strict=True)
        ran = tracelab("analyze", url, *(x for flag in flags for x in flag), "--full")
        assert ran.returncode == 0, ran.stderr
        content = [path.read_bytes() for path in files]
        content[3] = gzip.decompress(content[3])
        shown = f"http://…@127.0.0.1:{server.server_port}/a%20b.json?…"
        assert load_report(files[0]).traces[0].path == shown
        for written in (ran.stdout, ran.stderr, *content):
            assert not SECRETS.search(written.decode(errors="replace"))


@pytest.mark.parametrize(
    "command",
    [
        ("diff", "URL", "URL", "--markdown"),
        pytest.param(("whatif", "URL", "--json", "-"), marks=pytest.mark.slow),
        ("check", "URL", "--max-regression", "1", "--baseline", "URL", "--format", "github"),
    ],
    ids=lambda x: x[0],
)
def test_no_secret_in_what_other_commands_print(command):
    with serving(give(content=TRACE.read_bytes())) as server:
        ran = tracelab(*(url_of(server) if x == "URL" else x for x in command))
    assert ran.returncode == 0, ran.stderr
    assert not SECRETS.search((ran.stdout + ran.stderr).decode(errors="replace"))


def test_a_saved_report_by_its_url():
    with serving(give(404)) as server, pytest.raises(UnreadableInputError) as caught:
        load_report(url_of(server))
    assert not SECRETS.search(str(caught.value))


def test_a_command_says_it_in_one_sentence_and_ends_with_3():
    with serving(give(401)) as server:
        ran = tracelab("analyze", url_of(server))
    expected = "a.json?…: the server requires a password or a token (HTTP 401)\n"
    assert (ran.returncode, ran.stderr.decode().partition("/a.json")[2]) == (3, expected[6:])


# --- buckets ---


@contextmanager
def program(*command):
    """A server in a process of its own, and its port."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, *(x.format(port=port) for x in command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def send(method, url, content=b""):
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, content, headers, method=method)
    urllib.request.urlopen(request, timeout=30).close()


def report_of(url, tmp_path, **environment):
    """What a command says of a file in a bucket, and of one that is missing there."""
    environ = {**os.environ, **environment}
    saved = tmp_path / "report.json"
    ran = tracelab("analyze", url, "--json", saved, env=environ)
    assert ran.returncode == 0, ran.stderr
    missing = tracelab("analyze", f"{url}.missing", env=environ)
    sentence = f"tracelab: {url}.missing: no such file\n"
    assert missing.returncode == 3
    assert missing.stderr.decode().endswith(sentence)
    return load_report(saved)


def test_a_file_in_s3(tmp_path):
    pytest.importorskip("s3fs", reason="s3:// needs s3fs: install .[s3]")
    pytest.importorskip("moto.server", reason="the test's S3 is moto: install .[dev-remote]")
    with program("-m", "moto.server", "-H", "127.0.0.1", "-p", "{port}") as address:
        send("PUT", f"{address}/bucket")
        send("PUT", f"{address}/bucket/a.json.gz", TRACE.read_bytes())
        keys = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD}
        report = report_of("s3://bucket/a.json.gz", tmp_path, AWS_ENDPOINT_URL=address, **keys)
    assert report.traces[0].path == "s3://bucket/a.json.gz"
    assert report.findings == analyze(TRACE).findings


def test_a_file_in_google_cloud_storage(tmp_path):
    pytest.importorskip("gcsfs", reason="gs:// needs gcsfs: install .[gcs]")
    reason = "the test's cloud is gcp-storage-emulator: install .[dev-remote]"
    pytest.importorskip("gcp_storage_emulator", reason=reason)
    start = "from gcp_storage_emulator.server import create_server as s; "
    start += "s('127.0.0.1', {port}, in_memory=True, default_bucket='bucket').run()"
    with program("-c", start) as address:
        place = "upload/storage/v1/b/bucket/o?uploadType=media&name=a.json.gz"
        send("POST", f"{address}/{place}", TRACE.read_bytes())
        report = report_of("gs://bucket/a.json.gz", tmp_path, STORAGE_EMULATOR_HOST=address)
    assert report.findings == analyze(TRACE).findings


def test_a_missing_package_of_a_bucket_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(MissingSupportError, match=r"tracelab-gpu\[gcs\]"):
        read("gs://bucket/a.json")
