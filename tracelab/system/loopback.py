"""A server of some named contents on this machine alone, to whoever knows its token.

Every page in a browser can reach its ports: it serves no other host's name, which may be an alias.
"""

from __future__ import annotations

import re
import secrets
import socket
import socketserver
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from itertools import chain
from pathlib import Path
from threading import BoundedSemaphore, Timer
from typing import Any, cast

from tracelab.base.arrays import Record
from tracelab.base.errors import TracelabError, UsageError, reason_of
from tracelab.system.console import tell

ADDRESS = "127.0.0.1"
# The port may be another one, that of a tunnel's other end.
_THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?", re.IGNORECASE)
_TOKEN_BYTES = 32
_CHUNK_BYTES = 1 << 20
_POLL_S = 0.1
# A browser opens six at a time.
MAX_CONNECTIONS, MAX_SILENCE_S = 32, 30
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),  # the address holds the token
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)


class Content(Record):
    """Content that is served under one name: for each request bytes, in pieces.

    `byte_count` is None where only their end tells how many.
    """

    media_type: str
    chunks: Callable[[], Iterable[bytes]]
    byte_count: int | None = None


def content_of_bytes(data: bytes, media_type: str) -> Content:
    """Content that is in memory."""
    return Content(media_type, lambda: (data,), len(data))


def content_of_file(path: str | Path, media_type: str) -> Content:
    """Content that is read from a file for each request, a piece at a time."""
    return Content(media_type, partial(_chunks_of_file, path), Path(path).stat().st_size)


def _chunks_of_file(path: str | Path) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


class LoopbackServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves contents by name on a port of this machine; a `with` block closes the port.

    The content named "" is what `url` shows; the names of the others are relative to it.
    """

    daemon_threads = True  # a transfer that is under way does not keep the program
    allow_reuse_address = sys.platform != "win32"  # there, two could share one port

    def __init__(self, port: int = 0) -> None:
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"cannot listen on port {port}: {reason_of(error)}") from None
        self._free = BoundedSemaphore(MAX_CONNECTIONS)
        self.contents: Mapping[str, Content] = {}
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.port: int = self.socket.getsockname()[1]
        self.url = f"http://{ADDRESS}:{self.port}/{self.token}/"

    def serve(self, contents: Mapping[str, Content]) -> None:
        """Answer requests until this thread is interrupted, or another one calls `shutdown`."""
        self.contents = dict(contents)
        self.serve_forever(_POLL_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or close a connection that is one too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def find(self, path: str, host: str) -> Content | None:
        """The content of "/TOKEN/NAME" for a request to a host; None if it is to have none."""
        prefix = f"/{self.token}/"
        begin, name = path[: len(prefix)], path[len(prefix) :].partition("?")[0]
        is_known = secrets.compare_digest(begin.encode(), prefix.encode())
        return self.contents.get(name) if is_known and _THIS_MACHINE.fullmatch(host) else None

    def handle_error(self, *_: Any) -> None:
        """Say what a transfer failed of, unless that the browser has ended it or sleeps."""
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, ConnectionError | TimeoutError):
            tell(str(error) if isinstance(error, TracelabError) else reason_of(error))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = MAX_SILENCE_S
    server_version, sys_version = "tracelab", ""

    def setup(self) -> None:
        """Give the request a time limit: `timeout` begins anew with each of its bytes."""
        super().setup()
        self._limit = Timer(MAX_SILENCE_S, self._stop_reading)
        self._limit.daemon = True
        self._limit.start()

    def _stop_reading(self) -> None:
        with suppress(OSError):  # the client has gone
            self.connection.shutdown(socket.SHUT_RD)

    def parse_request(self) -> bool:
        """Read the rest of the request; the answer may take longer."""
        try:
            return super().parse_request()
        finally:
            self._limit.cancel()

    def finish(self) -> None:
        """Close the connection, which may have brought no request."""
        self._limit.cancel()
        super().finish()

    def do_HEAD(self) -> None:
        """Say what there is, without its bytes."""
        self._answer(is_body_wanted=False)

    def do_GET(self) -> None:
        """Give what there is."""
        self._answer(is_body_wanted=True)

    def _answer(self, *, is_body_wanted: bool) -> None:
        server = cast(LoopbackServer, self.server)
        content = server.find(self.path, ", ".join(self.headers.get_all("Host", [])))
        if content is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        if not is_body_wanted:
            self._begin(content)
            return
        try:
            chunks = iter(content.chunks())
            first = next(chunks, b"")  # what cannot be read at all has another status
        except Exception:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            raise
        self._begin(content)
        for chunk in chain((first,), chunks):
            if content.byte_count is not None:
                self.wfile.write(chunk)
            elif chunk:  # an empty one would be the end
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if content.byte_count is None:
            self.wfile.write(b"0\r\n\r\n")

    def _begin(self, content: Content) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content.media_type)
        if content.byte_count is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(content.byte_count))
        self.end_headers()

    def end_headers(self) -> None:
        """End the headers with those that every answer has."""
        for name, value in _HEADERS:
            self.send_header(name, value)
        super().end_headers()

    def send_error(self, code: int, *_: Any) -> None:
        """Refuse a request, without a word of it in the answer."""
        body = b"%d\n" % code
        self.send_response(code)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""
