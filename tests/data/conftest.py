import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Give every test its own cache and home folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PRIVET_CACHE", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder
