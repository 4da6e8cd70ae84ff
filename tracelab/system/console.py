"""Where a command's words go: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tracelab.errors import UsageError

_PIPE_WIDTH = 100

_Result = TypeVar("_Result")


def write_result(text: str) -> None:
    """Print a result; characters that stdout cannot show are replaced, a closed pipe is fine."""
    stream = sys.stdout
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # The reader (a pager, `head`) has seen enough; keep Python from complaining at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def tell(text: str) -> None:
    """Print a message that is no result."""
    print(f"tracelab: {text}", file=sys.stderr)


def output_width() -> int:
    """Columns of the terminal on stdout, or a width that suits a file."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return _PIPE_WIDTH
    from shutil import get_terminal_size

    return max(60, get_terminal_size().columns)


def output_in_color() -> bool:
    """Whether stdout is a terminal whose user has not asked for plain text."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def save_result(path: Path, save: Callable[[Path], _Result]) -> _Result:
    """Write a file, folders above it too; a path that cannot be written is wrong usage."""
    before = _written_ns(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return save(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    except (KeyboardInterrupt, SystemExit):
        if _written_ns(path) != before:  # half of it; an older file that is whole stays
            path.unlink(missing_ok=True)
        raise


def _written_ns(path: Path) -> int | None:
    """When a file was last written; None where there is none, or none that may be looked at."""
    with suppress(OSError):
        return path.stat().st_mtime_ns if path.is_file() else None
    return None
