"""The bytes of a file: local or remote, plain or gzip, damaged or not."""

from __future__ import annotations

import bz2
import io
import lzma
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, cast

from tracelab.base.arrays import Record
from tracelab.base.errors import MissingSupportError, TracelabError, UnreadableInputError, reason_of
from tracelab.base.safe_text import hide_secrets
from tracelab.read.packets import json_stream

fast_zlib: Any = zlib
with suppress(ImportError):
    from isal import isal_zlib as fast_zlib  # unpacks more than twice as fast

GZIP_MAGIC = b"\x1f\x8b"
_WRITTEN_BYTES = 1 << 20
_PACKED_BYTES = 128 * 1024
# No real trace seen shrinks to less than a fiftieth; a bomb shrinks to a thousandth.
MAX_RATIO, MIN_LIMIT_BYTES = 200, 16 << 20
MAX_REMOTE_BYTES = 32_000_000_000
READ_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error, fast_zlib.error)

_OTHER_COMPRESSORS = (
    (b"\x28\xb5\x2f\xfd", "Zstandard", "zstd -d"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x"),
)
_MAX_MAGIC_BYTES = 6


class Source(Record):
    """One file to read.

    Attributes:
        path: a local path or a URL that fsspec knows, without secrets.
        rank: the rank in the whole job that the file's name gives ("rank3", "TP-3"), if any.
        named: the user named this very file, rather than a folder that contains it.
        copy: the file with the content, where the path is a pipe or no file; the URL, where it
            holds secrets.
        max_unpacked_bytes: None for `MAX_RATIO` times its size.
    """

    path: str
    rank: int | None
    named: bool
    copy: str | None = None
    max_unpacked_bytes: int | None = None

    def require_few(self, unpacked_bytes: int, packed_bytes: int, max_ratio: int) -> None:
        """Refuse, by an UnreadableInputError, more than these packed bytes may become."""
        given = self.max_unpacked_bytes
        if unpacked_bytes > (given or max(MIN_LIMIT_BYTES, max_ratio * packed_bytes)):
            limit = f"{given / 1e9:g} GB" if given else f"{max_ratio} times its size"
            raise self._too_large(f"unpacks to more than {limit}")

    def require_size(self, read_bytes: int) -> None:
        """Refuse, by an UnreadableInputError, more bytes than a remote file may have."""
        limit = self.max_unpacked_bytes or MAX_REMOTE_BYTES
        if read_bytes > limit:
            raise self._too_large(f"is larger than {limit / 1e9:g} GB")

    def _too_large(self, problem: str) -> UnreadableInputError:
        return UnreadableInputError(
            f"{self.path}: {problem}; `max_unpacked_bytes` allows more", option="max_unpacked_bytes"
        )


@contextmanager
def open_source(source: Source, max_ratio: int = MAX_RATIO) -> Iterator[io.BufferedIOBase]:
    """A stream of the file's decompressed bytes; gzip, xz and bzip2 are known by their content.

    An UnreadableInputError if the file cannot be opened or, from the stream, unpacks to too much:
    `max_ratio` times its size, where the source does not say.
    """
    with ExitStack() as stack:
        try:
            raw = _Watched(source)
            packed = stack.enter_context(io.BufferedReader(raw))

            def require(unpacked_bytes: int) -> None:
                source.require_few(unpacked_bytes, raw.read_bytes, max_ratio)

            stream = _unpacked(stack, packed, source.path, require)
            with suppress(*READ_ERRORS):  # packed twice, or its reader says what is wrong with it
                stream = _unpacked(stack, stream, source.path, require)
                stream = stack.enter_context(json_stream(stream, require))
        except TracelabError:
            raise
        except Exception as error:  # each of fsspec's file systems has errors of its own
            raise unreadable(source.path, error) from None
        yield stream


def _unpacked(
    stack: ExitStack, stream: io.BufferedReader[Any], path: str, require: Callable[[int], None]
) -> io.BufferedReader[Any]:
    head = stream.peek(_MAX_MAGIC_BYTES)
    for magic, name, command in _OTHER_COMPRESSORS:
        if head.startswith(magic):
            raise UnreadableInputError(
                f"{path}: is compressed with {name}, which is not read: {command} unpacks it"
            )
    for magic, decompressor in _DECOMPRESSORS.items():
        if head.startswith(magic):
            return stack.enter_context(io.BufferedReader(_Unpacked(stream, decompressor, require)))
    return stream


def read_as_far(stream: io.BufferedIOBase, count: int) -> tuple[bytes, bool]:
    """Read bytes of a stream, fewer at its end or at damage; return True with them if damaged."""
    reads: list[bytes] = []
    try:
        # `read` would throw away the good bytes before the damage that it meets.
        while count and (read := stream.read1(count)):
            reads.append(read)
            count -= len(read)
    except READ_ERRORS:
        return b"".join(reads), True
    return b"".join(reads), False


def ends_as_json(path: str) -> bool:
    """True if a written file ends as a JSON object does; where the disk was full it breaks off."""
    last = b""
    try:
        with open_source(Source(path, None, named=True)) as stream:
            while block := stream.read(_WRITTEN_BYTES):
                last = block.rstrip()[-1:] or last
    except (TracelabError, *READ_ERRORS):
        return False
    return last == b"}"


@contextmanager
def watched(on_read: Callable[[int], object]) -> Iterator[None]:
    """Call a function with the number of bytes, packed, of each read of this thread."""
    token = _watcher.set(on_read)
    try:
        yield
    finally:
        _watcher.reset(token)


def report_read(byte_count: int) -> None:
    """Count bytes of a file that another process read."""
    on_read = _watcher.get()
    if on_read is not None:
        on_read(byte_count)


_watcher: ContextVar[Callable[[int], object] | None] = ContextVar("watcher", default=None)


class _Watched(io.RawIOBase):
    """The bytes of a file as they are, which are counted and reported; limited if it is remote."""

    def __init__(self, source: Source) -> None:
        place = source.copy or source.path
        self._source, self._is_remote = source, is_url(place)
        self._raw = open_remote(place, source.path) if self._is_remote else _open_local(place)
        self.read_bytes = 0
        self._end_s = time.monotonic() + MAX_TRANSFER_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = self._raw.readinto(buffer) or 0
            if self._is_remote and time.monotonic() > self._end_s:
                raise TimeoutError
        except Exception as error:
            if self._is_remote:  # the file is not damaged
                raise unreadable(self._source.path, error) from None
            raise
        self.read_bytes += count
        if self._is_remote:
            self._source.require_size(self.read_bytes)
        report_read(count)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Gunzip:
    """Unpacks one member of a gzip file, as the standard library's other decompressors do theirs.

    The reader of the other package gives nothing of a file that breaks off.
    """

    def __init__(self) -> None:
        self._member = fast_zlib.decompressobj(wbits=31)

    def __getattr__(self, name: str) -> Any:  # `eof`, `unused_data`
        return getattr(self._member, name)

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        unpacked: bytes = self._member.decompress(self._member.unconsumed_tail + data, max_length)
        return unpacked


# xz at its highest level needs 64 MiB; a header may ask for 4 GiB.
_MAX_XZ_BYTES = 128 << 20
_DECOMPRESSORS: Mapping[bytes, Callable[[], Any]] = {
    GZIP_MAGIC: _Gunzip,
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(memlimit=_MAX_XZ_BYTES),
    b"BZh": bz2.BZ2Decompressor,
}


class _Unpacked(io.RawIOBase):
    """The bytes of a compressed file; of a damaged one, all those before the damage."""

    def __init__(
        self,
        packed: io.BufferedIOBase,
        decompressor: Callable[[], Any],
        require: Callable[[int], None],
    ) -> None:
        self._packed, self._decompressor, self._require = packed, decompressor, require
        self._unpacked_bytes = 0
        self._unread = b""
        self._member: Any = None  # a file may be several, one after the other

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        unpacked = b""
        while not unpacked:
            if self._member is None:
                data = self._unread or self._packed.read(_PACKED_BYTES)
                if not data:
                    return 0
                self._unread = data.lstrip(b"\0")  # files are padded to whole blocks
                if self._unread:
                    self._member = self._decompressor()
                continue
            data, self._unread = self._unread, b""
            is_over = False
            if not data and self._member.needs_input:
                data = self._packed.read(_PACKED_BYTES)
                is_over = not data
            unpacked = self._member.decompress(data, len(buffer))
            if is_over and not unpacked:
                raise EOFError("the compressed data is cut off")
            if self._member.eof:
                self._unread, self._member = self._member.unused_data, None
        self._unpacked_bytes += len(unpacked)
        self._require(self._unpacked_bytes)
        buffer[: len(unpacked)] = unpacked
        return len(unpacked)


def _open_local(path: str) -> io.RawIOBase:
    return open(path, "rb", buffering=0)


def unreadable(path: str, error: Exception) -> UnreadableInputError:
    """The error that says why a file cannot be read."""
    return UnreadableInputError(f"{path}: {reason_of_no_read(error)}")


# To connect, between two pieces of a file, and for all of it.
MAX_CONNECT_S, MAX_SILENCE_S, MAX_TRANSFER_S = 10, 30, 3600
_HTTP = ("http", "https")
_EXTRAS = {"http": "remote", "https": "remote", "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_NOT_IN_TIME = "the server does not answer in time"
# By the names of classes: each file system has errors of its own.
_REASONS = MappingProxyType(
    {
        "BadHttpMessage": "the answer breaks off, or is not HTTP",
        "ConnectTimeoutError": _NOT_IN_TIME,
        "ConnectionRefusedError": "the server refuses the connection",
        "ConnectionResetError": "the server closed the connection",
        "FileNotFoundError": "no such file",
        "InvalidURL": "this address, or one that it redirects to, is not valid",
        "NonHttpUrlRedirectClientError": "redirects to an address that is not HTTP",
        "ReadTimeoutError": _NOT_IN_TIME,
        "ServerDisconnectedError": "the server closed the connection",
        "TimeoutError": _NOT_IN_TIME,
        "TooManyRedirects": "redirects without an end",
        "gaierror": "no host of this name is found",
    }
)
_STATUS_REASONS = MappingProxyType(
    {
        401: "the server requires a password or a token",
        403: "the server denies access",
        404: "no such file",
    }
)


def is_url(path: str) -> bool:
    """Return True if a path is a URL."""
    return "://" in path


def shown_path(path: str) -> str:
    """A path as it is shown: a URL without its password and its query."""
    return hide_secrets(re.sub(r"[\s'\"]", "%20", path)) if is_url(path) else path


def open_remote(url: str, path: str) -> io.RawIOBase:
    """Open a file of a URL, which is called by a path in errors; these are its file system's."""
    protocols = [link.partition("://")[0] for link in url.split("::")]  # "zip://a.json::s3://b/c"
    is_stream = len(protocols) == 1 and protocols[0] in _HTTP
    try:
        import fsspec

        options = {x: _options_of(x, is_stream=is_stream) for x in protocols}
        file_system, name = fsspec.url_to_fs(url, **options)
    except ImportError as error:
        extras = [_EXTRAS[x] for x in protocols if x in _EXTRAS]
        extras += ["remote"] if error.name == "fsspec" else []
        raise MissingSupportError(f"{path}: {error}", extra=next(iter(extras), None)) from None
    # A size that is given is not asked for; nothing else reads it.
    size = {"size": 1} if is_stream else {}
    return cast(io.RawIOBase, file_system.open(name, "rb", **size))


def reason_of_no_read(error: Exception) -> str:
    """The reason why a file cannot be read, by the error at the bottom of a chain."""
    for cause in reversed(list(_causes_of(error))):
        for name in (base.__name__ for base in type(cause).__mro__):
            if name in _REASONS:
                return _REASONS[name]
        if status := _status_of(cause):
            failed = "the server failed" if status >= 500 else "the server refuses the request"
            return f"{_STATUS_REASONS.get(status, failed)} (HTTP {status})"
    return hide_secrets(reason_of(error))


def _causes_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _status_of(error: BaseException) -> int | None:
    answer = getattr(error, "response", None)
    of_s3 = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
    status = of_s3.get("HTTPStatusCode") or getattr(error, "status", None)
    status = status or getattr(error, "code", None)  # of gcsfs; aiohttp's is deprecated
    return status if isinstance(status, int) and status >= 400 else None


def _options_of(protocol: str, *, is_stream: bool) -> dict[str, Any]:
    # Its time limits, and what it may connect to. A stream is read once, from beginning to end.
    if protocol in _HTTP:
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(MAX_TRANSFER_S, None, MAX_SILENCE_S, MAX_CONNECT_S)
        # What is packed is unpacked here, within limits.
        client = {"timeout": timeout, "auto_decompress": False}
        headers = {"Accept-Encoding": "identity"}
        # Without blocks, which many servers do not send; a client of its own for each file.
        return {
            **({"block_size": 0} if is_stream else {}),
            "client_kwargs": {**client, "headers": headers},
            "get_client": _new_client,
            "skip_instance_cache": True,
        }
    if _EXTRAS.get(protocol) == "s3":
        limits = {"connect_timeout": MAX_CONNECT_S, "read_timeout": MAX_SILENCE_S}
        return {"config_kwargs": {**limits, "retries": {"max_attempts": 2}}}
    return {"requests_timeout": MAX_SILENCE_S} if _EXTRAS.get(protocol) == "gcs" else {}


async def _new_client(**options: Any) -> Any:
    from aiohttp import ClientSession, TCPConnector

    return ClientSession(connector=TCPConnector(socket_factory=_socket_maker()), **options)


def _socket_maker() -> Callable[[Any], socket.socket]:
    """A function that makes the sockets of one file; from a public address none leads inside."""
    were_public: list[bool] = []

    def make_socket(address: Any) -> socket.socket:
        were_public.append(is_public(address[4][0]))
        if were_public[0] and not were_public[-1]:
            raise ValueError("redirects from a public address to a private one")
        return socket.socket(*address[:3])

    return make_socket


def is_public(address: str) -> bool:
    """Return True if an IP address is one of the Internet, not "169.254.169.254"."""
    return ip_address(address).is_global
