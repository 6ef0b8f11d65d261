import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Give every test its own cache."""
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
