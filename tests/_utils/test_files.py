from pathlib import Path

import pytest

from privet._utils.files import cache_directory, write_atomically, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "kept.txt"
    write_text(path, "old")

    def half(temporary):
        temporary.write_text("ne", encoding="utf-8")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, half)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_replaces(tmp_path):
    path = tmp_path / "kept.txt"
    write_text(path, "old")
    write_text(path, "new ε")
    assert path.read_text(encoding="utf-8") == "new ε"


def test_the_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("PRIVET_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_directory() == Path("/a")
    monkeypatch.delenv("PRIVET_CACHE")
    assert cache_directory() == Path("/b/privet")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "privet"
