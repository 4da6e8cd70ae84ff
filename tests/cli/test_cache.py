"""What the cache holds, and how it is emptied."""

import pytest

from tracelab.read import cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache with two entries of 1.5 MB together, one of them unfinished, and a file of others."""
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "a.columns").write_bytes(bytes(1_000_000))
    (folder / "b.unfinished").write_bytes(bytes(500_000))
    (folder / "other").write_bytes(bytes(100_000))
    monkeypatch.setattr(cache, "folder", lambda: folder)
    return folder


def test_place_number_and_size_are_shown(tracelab, folder):
    ran = tracelab("cache")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{folder}: 2 entries, 1.5 MB (")
    assert len(list(folder.iterdir())) == 3


def test_clear_removes_what_tracelab_wrote_and_nothing_else(tracelab, folder):
    ran = tracelab("cache", "clear")
    assert (ran.code, ran.out, ran.err) == (0, f"{folder}: removed 2 entries, 1.5 MB\n", "")
    assert [file.name for file in folder.iterdir()] == ["other"]
    assert tracelab("cache").out.startswith(f"{folder}: 0 entries, 0.0 MB")


def test_a_cache_that_was_never_used_is_empty(tracelab, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "folder", lambda: tmp_path / "none")
    assert "none: 0 entries" in tracelab("cache").out
    assert "none: removed 0 entries" in tracelab("cache", "clear").out
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_removed_is_an_output_error(tracelab, folder):
    (folder / "c.columns").mkdir()
    ran = tracelab("cache", "clear")
    assert (ran.code, ran.out) == (5, "")
    assert f"cannot remove {folder / 'c.columns'}" in ran.err


def test_another_action_is_wrong_usage(tracelab, folder):
    ran = tracelab("cache", "clean")
    assert (ran.code, ran.out) == (2, "")
    assert "clear" in ran.err
    assert len(list(folder.iterdir())) == 3
