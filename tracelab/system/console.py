"""The terminal of a command: results go to stdout, everything else to stderr."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TextIO

from tracelab.base import __version__
from tracelab.base.errors import OutputError, reason_of
from tracelab.base.safe_text import clean, escape_commands, hide_secrets

_PIPE_WIDTH = 100


def write_result(text: str, commands: str = "") -> None:
    """Print a result; a closed pipe is fine, a full or closed stdout an OutputError.

    A CI system finds no commands in it, but those given, which come first.
    """
    stream = sys.stdout
    text = commands + escape_commands(text)
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # The reader (a pager, `head`) has seen enough; keep Python from complaining at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError as error:
        raise _cannot_write(error) from None


def tell(text: str) -> None:
    """Print a message that is not a result to stderr, in one line."""
    print(f"tracelab: {escape_commands(clean(hide_secrets(text)))}", file=sys.stderr)


def output_width() -> int:
    """Columns of the terminal on stdout, or a width that suits a file."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return _PIPE_WIDTH
    from shutil import get_terminal_size

    return max(60, get_terminal_size().columns)


def output_in_color() -> bool:
    """Return True if stdout is a terminal whose user has not requested plain text."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


@contextmanager
def guarded_streams() -> Iterator[Callable[[], None]]:
    """Let no library fail at stdout or stderr during a `with` block, whatever they are.

    The function that it gives raises `OutputError` at the end if stdout was full or closed, unless
    the reader closed a pipe.
    """
    plain = sys.stdout, sys.stderr
    (results, guard), (messages, _) = _guarded(sys.stdout, 1), _guarded(sys.stderr, 2)

    def require_written() -> None:
        results.flush()
        if guard and guard.failure and not isinstance(guard.failure, BrokenPipeError):
            raise _cannot_write(guard.failure)

    _flush(*plain)
    token = _plain_streams.set(plain)
    sys.stdout, sys.stderr = results, messages
    try:
        yield require_written
    finally:
        messages.flush()
        sys.stdout, sys.stderr = plain
        _plain_streams.reset(token)


@contextmanager
def plain_streams() -> Iterator[None]:
    """Somebody's own program has the streams that it would have without tracelab."""
    guarded = sys.stdout, sys.stderr
    plain = _plain_streams.get() or guarded
    _flush(*guarded)
    sys.stdout, sys.stderr = plain
    try:
        yield
    finally:
        _flush(*plain)
        sys.stdout, sys.stderr = guarded


def _flush(*streams: TextIO | None) -> None:
    # What is in buffers is seen before what others write; who wrote it hears of failures.
    for stream in streams:
        with suppress(OSError, ValueError):  # full, or closed
            if stream is not None:
                stream.flush()


_plain_streams: ContextVar[tuple[TextIO, TextIO] | None] = ContextVar("plain", default=None)


class _Guard(io.RawIOBase):
    """Writes to a file descriptor until that fails, and takes the rest for written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        if self.failure is None:
            try:
                return os.write(self._descriptor, data)
            except OSError as error:
                self.failure = error
        return len(data)


def _guarded(stream: TextIO | None, descriptor: int) -> tuple[TextIO, _Guard | None]:
    """A text stream like this one on a guard; one without a descriptor, as in tests, stays."""
    if stream is None:
        # It was closed: what is opened next would be taken for it. Nothing can be written here.
        os.dup2(os.open(os.devnull, os.O_RDONLY), descriptor)
        guard = _Guard(descriptor)
        return io.TextIOWrapper(io.BufferedWriter(guard), "utf-8", "backslashreplace"), guard
    try:
        guard = _Guard(stream.fileno())
    except OSError:
        return stream, None
    # Without Python's own buffers (-u) a stream writes through, and has no lines.
    buffered = io.BufferedWriter(guard)
    lines = stream.line_buffering or getattr(stream, "write_through", False)
    return io.TextIOWrapper(
        buffered, stream.encoding, stream.errors, line_buffering=bool(lines)
    ), guard


def _cannot_write(error: OSError) -> OutputError:
    reason = "it is closed" if error.errno == errno.EBADF else reason_of(error)
    return OutputError(f"cannot write the result to stdout: {reason}")


def report_crash(error: Exception) -> str:
    """Save the details of an unexpected error; returns the sentence that says where they are."""
    import tempfile

    what = f"{type(error).__name__}: {error}"
    sentence = f"this is a bug in tracelab, not in your input: {what}. Please report it as an issue"
    try:
        descriptor, path = tempfile.mkstemp(prefix="tracelab-error-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(_details(error))
    except OSError:
        print(escape_commands(_details(error)), file=sys.stderr)
        return f"{sentence}, with the details above"
    return (
        f"{sentence}, with the details in {path} (they may quote your files: "
        "review them before you send them)"
    )


def _details(error: Exception) -> str:
    import platform
    import traceback

    return hide_secrets(
        f"tracelab {__version__}, Python {sys.version}\n{platform.platform()}\n"
        f"{sys.argv}\n\n{''.join(traceback.format_exception(error))}"
    )
