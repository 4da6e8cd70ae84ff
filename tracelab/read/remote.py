"""Remote files: fsspec reads them, within limits, and their errors become sentences."""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, cast

from tracelab.base.errors import MissingSupportError, reason_of
from tracelab.base.safe_text import hide_secrets

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
    """A path as it is shown: a URL without its password and its query.

    >>> shown_path("https://me:secret@host/a b.json?token=1")
    'https://…@host/a%20b.json?…'
    """
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
