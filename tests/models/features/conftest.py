import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Every test has a cache of its own."""
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
