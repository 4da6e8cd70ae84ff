"""A file that a command writes is whole, or is as it was before."""

from pathlib import Path

import pytest

from tracelab.errors import UsageError
from tracelab.system.files import save_result


def test_folders_above_a_file_are_made_and_the_result_comes_back(tmp_path):
    path = tmp_path / "new" / "folders" / "report.json"

    assert save_result(path, lambda path: path.write_bytes(b"{}")) == 2
    assert path.read_bytes() == b"{}"


def test_a_path_that_cannot_be_written_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match=f"^cannot write {tmp_path}: is a directory$"):
        save_result(tmp_path, lambda path: path.write_bytes(b"{}"))


def test_an_interrupted_file_is_not_left_half_written(tmp_path):
    path = tmp_path / "new" / "picture.png"

    def save(path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_result(path, save)
    assert not path.exists()


def test_an_interrupt_before_anything_is_written_keeps_the_older_file(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"whole")

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_result(path, interrupt)
    assert path.read_bytes() == b"whole"


def test_an_interrupt_while_folders_are_made_is_an_interrupt(tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    path.write_bytes(b"whole")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_result(path, Path.touch)
    assert path.read_bytes() == b"whole"
