import numpy as np
import pytest

from privet.data.download import cache


def test_written_data_can_be_read_and_no_other_file_remains():
    target = cache.write(cache.path("numbers"), {"x": np.arange(3)})
    with np.load(target, allow_pickle=False) as stored:
        assert stored["x"].tolist() == [0, 1, 2]
    assert list(target.parent.iterdir()) == [target]


def test_an_interrupted_write_leaves_only_the_old_file(monkeypatch):
    target = cache.write(cache.path("numbers"), {"x": np.arange(3)})
    before = target.read_bytes()

    def half(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(KeyboardInterrupt):
        cache.write(target, {"x": np.arange(4)})
    assert target.read_bytes() == before
    assert list(target.parent.iterdir()) == [target]
