"""Files that are written: whole, or as they were before; and never over an input."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import IO

from tracelab.errors import OutputError, reason_of

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a path has lost the second slash


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file, and make the folders above it; what fails or is interrupted changes nothing.

    Raises:
        OutputError: it cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "new", "report.json")
    ...     write_file(path, b"{}")
    ...     path.read_text()
    '{}'
    """
    make_folder_of(path)
    try:
        if _is_written_in_place(path):
            Path(path).write_bytes(content)
            return
        with replacing(path) as stream:
            stream.write(content)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason_of(error)}") from None


def make_folder_of(path: str | os.PathLike[str]) -> None:
    """Make the folders above a file, those that are missing.

    Raises:
        OutputError: one of them cannot be made.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason_of(error)}") from None


@contextmanager
def replacing(path: str | os.PathLike[str], ending: str = ".unfinished") -> Iterator[IO[bytes]]:
    """A new file beside that of a path, which takes its place when all of it is written.

    Args:
        path: the file; a link stands for what it points to.
        ending: of the new file's name until then.

    Raises:
        OSError: it cannot be written; then nothing is left of it.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".tracelab-{secrets.token_hex(8)}{ending}")
    try:
        with open(unfinished, "xb") as stream:
            yield stream
        with suppress(FileNotFoundError):
            unfinished.chmod(S_IMODE(target.stat().st_mode))
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def require_output(path: str | os.PathLike[str], inputs: Iterable[str] = ()) -> None:
    """Refuse a path that no result can be written to, before anything is computed for it.

    Args:
        path: the file to write later; its folder may have to be made then.
        inputs: files and URLs that are read, none of which it may be.

    Raises:
        OutputError: it is one of the inputs, a folder or a URL, or it must not be written.
    """
    name = os.fspath(path)
    if _URL.match(name):
        raise OutputError(f"cannot write {name}: results are written to local files only")
    if any(_is_same_file(name, other) for other in inputs):
        raise OutputError(f"cannot write {name}: it is an input, which would be lost")
    target = Path(name)
    try:
        if target.is_dir():
            raise OutputError(f"cannot write {name}: is a directory")
        if not target.exists():
            target = next(parent for parent in target.absolute().parents if parent.exists())
            if not target.is_dir():
                raise OutputError(f"cannot write {name}: not a directory")
        may_write = os.access(target, os.W_OK)
    except OSError as error:
        raise OutputError(f"cannot write {name}: {reason_of(error)}") from None
    if not may_write:
        raise OutputError(f"cannot write {name}: permission denied")


def _is_same_file(path: str, other: str) -> bool:
    """Whether two paths are one file, by whatever names and links."""
    try:
        return Path(path).samefile(other)
    except (OSError, ValueError):  # one of them does not exist yet, or is no path
        return False


def _is_written_in_place(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a device or a pipe, which nothing can take the place of."""
    with suppress(FileNotFoundError):
        return not S_ISREG(Path(path).stat().st_mode)
    return False
