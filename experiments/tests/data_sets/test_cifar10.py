"""CIFAR-10 from every source gives the same arrays, verified by the published checksums, with pixels between −1 and 1."""

import hashlib
import io
import json
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from privet.data import ChecksumError
from privet.data.sets.image_set import Arrays
from privet_experiments.data_sets import cifar10
from privet_experiments.data_sets.cifar10 import BATCHES, CIFAR10, encode, from_archive, from_batches, from_mosaics
from rounding import assert_equal_up_to_rounding

GENERATOR = np.random.default_rng(5)
IMAGES = GENERATOR.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(12, dtype=np.uint8) % 10
ARRAYS = Arrays(IMAGES[:10], LABELS[:10], IMAGES[10:], LABELS[10:])
FILES = {name: encode(IMAGES[2 * n : 2 * n + 2], LABELS[2 * n : 2 * n + 2]) for n, name in enumerate(BATCHES)}


@pytest.fixture
def small(monkeypatch):
    """The set, as if only these dozen images were published."""
    monkeypatch.setattr(cifar10, "BATCHES", {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()})
    return CIFAR10


def same(found):
    return all(np.array_equal(one, other) for one, other in zip(found, ARRAYS, strict=True))


def packed():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in FILES.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def mosaics():
    files = {}
    for name, number in zip(BATCHES, range(6), strict=True):
        rows = IMAGES[2 * number : 2 * number + 2].reshape(2, 1024, 3)
        buffer = io.BytesIO()
        Image.fromarray(rows).save(buffer, "PNG")
        files[f"package/{name.replace('.bin', '.png')}"] = buffer.getvalue()
    files["package/train_lables.json"] = json.dumps(LABELS[:10].tolist()).encode()
    files["package/test_lables.json"] = json.dumps(LABELS[10:].tolist()).encode()
    return files


def test_a_row_of_the_binary_version_is_a_label_and_three_planes():
    content = np.frombuffer(encode(IMAGES[:1], LABELS[:1]), dtype=np.uint8)
    assert (content[0], content[1], content[1 + 1024], content[2]) == (LABELS[0], *IMAGES[0, 0, 0, :2], IMAGES[0, 0, 1, 0])


def test_every_file_format_gives_the_same_arrays(small, tmp_path):
    assert same(from_batches(FILES.__getitem__))
    assert same(from_archive(packed()))
    assert same(from_mosaics(mosaics()))
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    assert same(small.from_folder(tmp_path))
    np.savez(tmp_path / "cifar-10.npz", **ARRAYS._asdict())
    assert same(small.from_folder(tmp_path))


def test_altered_data_are_refused(small):
    assert small.verify(ARRAYS) is ARRAYS
    changed = ARRAYS.x_train.copy()
    changed[3, 4, 5, 1] ^= 1
    with pytest.raises(ChecksumError, match=r"data_batch_2\.bin has MD5"):
        small.verify(ARRAYS._replace(x_train=changed))
    with pytest.raises(ChecksumError):
        small.verify(ARRAYS._replace(x_test=np.concatenate((ARRAYS.x_test, ARRAYS.x_test)), y_test=LABELS[:4]))


def test_tensors_have_channels_first_and_a_known_scale():
    data = CIFAR10.dataset(ARRAYS, "")
    inputs, labels = data.train.tensors
    assert (data.input_shape, data.pixel_range, labels.tolist()) == ((3, 32, 32), (-1.0, 1.0), LABELS[:10].tolist())
    expected = torch.from_numpy(IMAGES[:10].copy()).permute(0, 3, 1, 2) / 255 * 2 - 1
    assert_equal_up_to_rounding(inputs, expected)
