import gzip
import io

import numpy as np
import pytest
import tiny
import torch

from privet.data import ChecksumError, DataUnavailableError
from privet.data.download import published
from privet.data.sets import image_set
from privet.data.sets.image_set import decode_idx, encode_idx
from privet.errors import InvalidArgumentError, PrivetWarning
from rounding import assert_equal_up_to_rounding


def test_the_tensors_are_normalised_images_and_labels():
    data = published.load(tiny.image_set(lambda: tiny.ARRAYS))
    inputs, labels = data.train.tensors
    assert (data.name, data.classes, data.input_shape, len(data.train), len(data.test)) == ("tiny", 10, (1, 28, 28), 4, 2)
    assert (inputs.dtype, labels.dtype) == (torch.float32, torch.int64)
    expected = (torch.from_numpy(tiny.ARRAYS.x_train.copy())[:, None] / 255 - 0.1307) / 0.3081
    assert_equal_up_to_rounding(inputs, expected)
    assert labels.tolist() == [0, 1, 2, 9]
    assert data.provenance == "tiny came from place 1; its four IDX files have the published MD5 sums."


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_in_a_folder_come_first(tmp_path, packed):
    folder = tiny.write_idx(tmp_path / "mine", packed)
    data = published.load(tiny.image_set(tiny.unreachable), folder)
    assert f"the folder {folder}" in data.provenance


def test_an_npz_in_a_folder_may_have_any_integer_type_and_the_second_load_uses_the_cache_only(tmp_path):
    widened = {key: array.astype(np.int64) for key, array in tiny.ARRAYS._asdict().items()}
    np.savez(tmp_path / "tiny.npz", **widened)
    assert str(tmp_path) in published.load(tiny.image_set(), tmp_path).provenance
    assert "the cache" in published.load(tiny.image_set(tiny.unreachable)).provenance


def test_fetch_returns_the_file_in_the_cache():
    images = tiny.image_set(lambda: tiny.ARRAYS)
    assert published.fetch(images) == published.fetch(images) == published.cache_file("tiny")
    assert published.cache_file("tiny").is_file()


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_a_damaged_cache_is_fetched_again(damage):
    archive = published.fetch(tiny.image_set(lambda: tiny.ARRAYS))
    good = archive.read_bytes()
    if damage == "truncated":
        archive.write_bytes(good[:100])
    else:
        np.savez(archive, **tiny.ARRAYS._replace(y_test=tiny.ARRAYS.y_test + np.uint8(1))._asdict())
    assert "place 1" in published.load(tiny.image_set(lambda: tiny.ARRAYS)).provenance
    assert "the cache" in published.load(tiny.image_set(tiny.unreachable)).provenance


def test_an_interrupted_write_leaves_only_the_old_file(monkeypatch, tmp_path):
    target = published.fetch(tiny.image_set(lambda: tiny.ARRAYS))
    before = target.read_bytes()

    def half(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(KeyboardInterrupt):
        published.fetch(tiny.image_set(), tiny.write_idx(tmp_path / "mine", packed=True))
    assert target.read_bytes() == before
    assert list(target.parent.iterdir()) == [target]


def test_one_wrong_pixel_anywhere_is_refused():
    altered = tiny.ARRAYS._replace(x_test=tiny.ARRAYS.x_test - np.eye(28, dtype=np.uint8))
    with pytest.raises(ChecksumError, match="t10k-images"):
        tiny.image_set().verify(altered)
    with pytest.raises(DataUnavailableError, match=r"place 1: t10k-images-idx3-ubyte has MD5 \w+ instead of \w+"):
        published.load(tiny.image_set(lambda: altered))
    assert not published.cache_file("tiny").exists()


def test_the_final_error_lists_sources_and_how_to_provide_the_data(tmp_path):
    with pytest.raises(DataUnavailableError) as caught:
        published.load(tiny.image_set(tiny.unreachable), tmp_path / "absent")
    lines = str(caught.value).splitlines()
    assert lines[1:4] == [
        f"  1. the folder {tmp_path / 'absent'}: the folder does not exist",
        f"  2. the cache at {published.cache_file('tiny')}: the file does not exist",
        "  3. place 1: no route to host",
    ]
    assert lines[4].startswith("To provide it, name a folder (--folder) with tiny.npz or the four IDX files (train-images-idx3")


def test_an_unwritable_cache_warns_on_load_and_fails_on_fetch(cache_folder):
    cache_folder.write_text("in the way", encoding="utf-8")
    images = tiny.image_set(lambda: tiny.ARRAYS)
    with pytest.warns(PrivetWarning, match="tiny could not be stored in the cache"):
        assert len(published.load(images).train) == 4
    with pytest.raises(InvalidArgumentError, match=r"PRIVET_CACHE is .*; it must be a writable folder"):
        published.fetch(images)


def test_decompression_stops_at_the_limit(monkeypatch):
    monkeypatch.setattr(image_set, "MOST_BYTES", 1000)
    bomb = io.BytesIO()
    with gzip.open(bomb, "wb") as file:
        file.write(bytes(100_000))
    with pytest.raises(ValueError, match="not an IDX file"):
        image_set.from_idx(lambda name: bomb.getvalue())


@pytest.mark.parametrize("shape", [(5,), (3, 4, 2), (0,), (2, 0, 3)])
def test_an_array_survives_the_round_trip(shape):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(decode_idx(encode_idx(array)), array)
    assert decode_idx(encode_idx(array)).shape == shape


def test_the_bytes_match_the_format_description():
    assert encode_idx(np.array([[7, 8]], dtype=np.uint8)) == bytes((0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 8))


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "not an IDX file"),
    (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00\x00\x00\x00", "not an IDX file of unsigned bytes"),
    (b"\x00\x00\x08\x02\x00\x00", "truncated"),
    (b"\x00\x00\x08\x01\x00\x00\x00\x03\x01\x02", "gives the shape"),
    (b"\x00\x00\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff", "gives the shape"),
])  # fmt: skip
def test_invalid_idx_files_are_refused(content, reason):
    with pytest.raises(ValueError, match=reason):
        decode_idx(content)
