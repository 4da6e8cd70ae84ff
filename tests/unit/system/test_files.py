"""A file that is written is whole, or is as it was before."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tracelab.base.errors import OutputError
from tracelab.system.files import hidden_path, replacing, require_output, write_file


def test_folders_above_a_file_are_made(tmp_path):
    path = tmp_path / "new" / "folders" / "report.json"
    write_file(path, b"{}")
    assert path.read_bytes() == b"{}"


def test_a_new_file_has_the_rights_that_any_new_file_has(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    write_file(tmp_path / "new", b"")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_path_that_cannot_be_written_is_an_error_of_the_output(tmp_path):
    with pytest.raises(OutputError, match=f"^cannot write {tmp_path}: is a directory$"):
        write_file(tmp_path, b"{}")
    with pytest.raises(OutputError, match=f"^cannot write {tmp_path}: is a directory$"):
        require_output(tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError, ValueError])
@pytest.mark.parametrize("before", [None, b"whole"])
def test_whatever_comes_between_nothing_is_changed(tmp_path, error, before):
    path = tmp_path / "picture.png"
    if before is not None:
        path.write_bytes(before)

    def write_half():
        with replacing(path) as stream:
            stream.write(b"half")
            stream.flush()
            raise error

    with pytest.raises(error):
        write_half()
    assert [x.read_bytes() for x in tmp_path.iterdir()] == ([] if before is None else [before])


KILLED = """
import os, signal, sys
from pathlib import Path
from tracelab.system.files import hidden_path, replacing

hidden_path(Path(sys.argv[1])).mkdir()
with replacing(f"{sys.argv[1]}/report.json") as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "uname"), reason="on Windows nothing is told of processes")
def test_what_a_killed_process_left_goes_with_the_next_file(tmp_path):
    """GIVEN files of a killed process, of a living one and of another machine, and links
    THEN those of the first are gone after the next file is written, and no others."""
    others = [tmp_path / f".tracelab-{name}-1-1.unfinished" for name in ("elsewhere", "x-y")]
    others += [hidden_path(tmp_path, ".unfinished"), tmp_path / ".tracelab-notes"]
    for other in others:
        other.write_bytes(b"")
    ran = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert ran.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == len(others) + 2
    write_file(tmp_path / "other.json", b"{}")
    assert {*tmp_path.iterdir()} == {*others, tmp_path / "other.json"}


def test_until_a_file_is_whole_the_older_one_is_there(tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(b"old")
    with replacing(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_a_file_that_nothing_can_replace_is_written_in_place(tmp_path, monkeypatch):
    """GIVEN a file that is mounted by itself, as a container has it"""
    path = tmp_path / "report.json"
    path.write_bytes(b"old")

    def busy(*_):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    write_file(path, b"new")
    assert [x.read_bytes() for x in tmp_path.iterdir()] == [b"new"]


def test_a_link_into_a_folder_that_is_missing_is_followed(tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to("folder/report.json")
    require_output(link)
    write_file(link, b"{}")
    assert link.is_symlink()
    assert (tmp_path / "folder" / "report.json").read_bytes() == b"{}"


def test_what_is_private_is_nobody_elses(tmp_path):
    with replacing(tmp_path / "columns", is_private=True) as stream:
        stream.write(b"x")
    assert (tmp_path / "columns").stat().st_mode & 0o777 == 0o600


def test_an_interrupt_while_folders_are_made_is_an_interrupt(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "picture.png", b"")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_must_not_be_written_is_refused(tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("")
    file.chmod(0o400)
    folder.mkdir(mode=0o500)
    for path in (file, folder / "new", folder / "newer" / "new"):
        with pytest.raises(OutputError, match=f"^cannot write {path}: permission denied$"):
            require_output(path)
