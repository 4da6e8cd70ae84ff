"""Files that are written: whole, or as they were before; and never over an input."""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import IO

from tracelab.base.errors import OutputError, reason_of

_OPEN_FILE = r"/dev/(stdout|stderr)|(?:/dev|/proc/self)/fd/(\d+)"
_STANDARD = {"stdout": 1, "stderr": 2}
_URL = r"[A-Za-z][A-Za-z0-9+.-]+:/"  # a path has lost the second slash


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file, and make the folders above it; an older one is replaced when all is written."""
    make_folder_of(os.path.realpath(path))
    with _output_errors(path):
        try:
            with _stream_into(path) as stream:
                stream.write(content)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # It is mounted by itself, as containers do: nothing can take its place.
            Path(path).write_bytes(content)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream into a file, for what is too large to be held; otherwise as `write_file`."""
    make_folder_of(os.path.realpath(path))
    with _output_errors(path), _stream_into(path) as stream:
        yield stream


@contextmanager
def _stream_into(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    if _is_written_in_place(path):
        with open(_descriptor_of(path), "wb") as stream:
            yield stream
    else:
        with replacing(path) as stream:
            yield stream


def make_folder_of(path: str | os.PathLike[str]) -> None:
    """Make the missing folders above a file."""
    with _output_errors(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def _output_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason_of(error)}") from None


@contextmanager
def replacing(
    path: str | os.PathLike[str], ending: str = ".unfinished", *, is_private: bool = False
) -> Iterator[IO[bytes]]:
    """A new file beside that of a path, which takes its place when all of it is written.

    A private one only its owner may read. After an OSError nothing is left of it.
    """
    target = Path(os.path.realpath(path))
    unfinished = hidden_path(target.parent, ending)
    try:
        with open(unfinished, "xb") as stream:
            if is_private:
                unfinished.chmod(0o600)
            yield stream
        with suppress(FileNotFoundError):
            status = target.stat()
            unfinished.chmod(S_IMODE(status.st_mode))
            with suppress(OSError):  # only root may give a file away
                os.chown(unfinished, status.st_uid, status.st_gid)
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def hidden_path(folder: Path, ending: str = "") -> Path:
    """A new name in a folder, of what this process will remove; a killed one's are removed now."""
    if hasattr(os, "uname"):
        begin = f".tracelab-{os.uname().nodename}-{_process_namespace()}-"
        for left in folder.glob(f"{glob.escape(begin)}*"):
            with suppress(OSError, ValueError):
                _remove_if_dead(left, int(left.name.removeprefix(begin).partition("-")[0]))
    else:
        begin = ".tracelab-"
    return folder / f"{begin}{os.getpid()}-{os.urandom(8).hex()}{ending}"


def _process_namespace() -> str:
    """The container whose processes this one sees, if it tells."""
    with suppress(OSError):
        return re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
    return ""


def _remove_if_dead(path: Path, process: int) -> None:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def identities(paths: Iterable[str]) -> frozenset[tuple[int, int]]:
    """The identities of the files that exist, whatever names and links lead to them."""
    found: set[tuple[int, int]] = set()
    for path in paths:
        with suppress(OSError, ValueError):  # it does not exist yet, or is no path but a URL
            status = Path(path).stat()
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def require_output(
    path: str | os.PathLike[str], inputs: Set[tuple[int, int]] = frozenset()
) -> None:
    """Refuse a path that no result can be written to, before anything is computed for it.

    An OutputError if it is one of the inputs (`identities`), a folder, a URL, or not writable.
    """
    name = os.fspath(path)
    if not name:
        raise OutputError("cannot write a result without the name of a file")
    if re.match(_URL, name):
        raise OutputError(f"cannot write {name}: results are written to local files only")
    if identities([name]) & inputs:
        raise OutputError(f"cannot write {name}: it is an input and would be overwritten")
    with _output_errors(name):
        if Path(name).is_dir() or name.endswith("/"):
            raise OutputError(f"cannot write {name}: is a directory")
        may_write = not Path(name).exists() or os.access(name, os.W_OK)
        if not _is_written_in_place(name):
            folders = Path(os.path.realpath(name)).parents
            folder = next(parent for parent in folders if parent.exists())
            if not folder.is_dir():
                raise OutputError(f"cannot write {name}: not a directory")
            may_write = may_write and os.access(folder, os.W_OK)
    if not may_write:
        raise OutputError(f"cannot write {name}: permission denied")


def _is_written_in_place(path: str | os.PathLike[str]) -> bool:
    """Return True for a device, a pipe or an open file, which no other file can replace."""
    with suppress(FileNotFoundError):
        return re.fullmatch(_OPEN_FILE, os.fspath(path)) is not None or not S_ISREG(
            Path(path).stat().st_mode
        )
    return False


def _descriptor_of(path: str | os.PathLike[str]) -> int:
    """A descriptor to write to what is written in place; OSError of a pipe without a reader."""
    if open_file := re.fullmatch(_OPEN_FILE, os.fspath(path)):
        return os.dup(_STANDARD.get(open_file[1]) or int(open_file[2]))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # a pipe would wait for a reader
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError("is a pipe that nobody reads from") from None
        raise
    os.set_blocking(descriptor, True)
    return descriptor
