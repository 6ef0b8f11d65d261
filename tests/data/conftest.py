import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Every test has a cache and a home of its own: none sees the developer's, none leaves anything behind."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PRIVET_CACHE", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder
