"""Files that a command writes: whole, or as they were before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tracelab.errors import UsageError

_Result = TypeVar("_Result")


def save_result(path: Path, save: Callable[[Path], _Result]) -> _Result:
    """Write a file, and the folders above it; an interrupt leaves no half of it.

    Args:
        path: the file.
        save: writes the file whose path it gets.

    Returns:
        what `save` returns.

    Raises:
        UsageError: the path cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_result(Path(folder) / "new" / "report.json", lambda path: path.write_text("{}"))
    2
    """
    written_ns = _written_ns(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return save(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    except (KeyboardInterrupt, SystemExit):
        if _written_ns(path) != written_ns:  # half of it; an older file that is whole stays
            path.unlink(missing_ok=True)
        raise


def _written_ns(path: Path) -> int | None:
    """When a file was last written; None where there is none, or none that may be looked at."""
    with suppress(OSError):
        return path.stat().st_mtime_ns if path.is_file() else None
    return None
