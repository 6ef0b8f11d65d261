import numpy as np
import pytest
import torch

from privet.data.npz import load_npz
from privet.errors import InvalidArgumentError

LABELS = np.array([0, 2, 1, 0])


def saved(folder, **arrays):
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4, 7), (7,)),
        ((4, 5, 6), (1, 5, 6)),
        ((4, 5, 6, 3), (3, 5, 6)),
        ((4, 5, 6, 1), (1, 5, 6)),
        ((4, 3, 5, 6), (3, 5, 6)),
        ((4, 1, 5, 3), (1, 5, 3)),
        ((4, 16, 5, 6), (16, 5, 6)),
    ],
)
def test_images_become_channels_first_and_vectors_stay(tmp_path, shape, expected):
    data = load_npz(saved(tmp_path, x_train=np.zeros(shape), y_train=LABELS))
    assert (data.name, data.input_shape, data.classes, data.test) == ("mine", expected, 3, None)
    assert (data.train.tensors[0].dtype, data.train.tensors[1].dtype) == (torch.float32, torch.int64)


def test_channels_move_with_their_values(tmp_path):
    images = np.random.default_rng(0).random((4, 5, 6, 3), dtype=np.float32)
    data = load_npz(saved(tmp_path, x_train=images, y_train=LABELS))
    assert np.array_equal(data.train.tensors[0].numpy(), images.transpose(0, 3, 1, 2))


def test_bytes_are_divided_by_255_and_other_numbers_are_not(tmp_path):
    pixels = np.full((4, 2), 51)
    assert load_npz(saved(tmp_path, x_train=pixels.astype(np.uint8), y_train=LABELS)).train.tensors[0].unique() == 0.2
    assert load_npz(saved(tmp_path, x_train=pixels, y_train=LABELS)).train.tensors[0].unique() == 51


def test_classes_are_counted_over_both_parts(tmp_path):
    path = saved(tmp_path, x_train=np.zeros((4, 2)), y_train=LABELS, x_test=np.ones((1, 2)), y_test=np.array([5]))
    data = load_npz(path)
    assert (data.classes, len(data.test)) == (6, 1)


def test_users_are_an_array_of_their_own(tmp_path):
    owners = np.array(["ann", "bob", "ann", "cy"])
    path = saved(tmp_path, x_train=np.zeros((4, 2)), y_train=LABELS, whose=owners)
    assert load_npz(path, user_column="whose").users.tolist() == owners.tolist()
    with pytest.raises(InvalidArgumentError, match=r"source is .*or say which holds the users"):
        load_npz(path)
    for name in ("who", "x_train", "y_test"):
        with pytest.raises(InvalidArgumentError, match=rf"user_column is '{name}'; it must be .*labels: whose\."):
            load_npz(path, user_column=name)


X = np.zeros((4, 2))
BAD = {
    "no labels": ({"x_train": X}, r"source is \['x_train'\].*x_train and y_train"),
    "half a test part": ({"x_train": X, "y_train": LABELS, "x_test": X}, "with or without x_test and y_test"),
    "a misspelt name": ({"x_train": X, "y_train": LABELS, "xtest": X}, "Rename the arrays"),
    "objects": ({"x_train": np.array([object()] * 4), "y_train": LABELS}, "an .npz file of plain arrays"),
    "text": ({"x_train": np.array([["a"]] * 4), "y_train": LABELS}, "x_train is '<U1'.*real numbers"),
    "complex numbers": ({"x_train": X + 1j, "y_train": LABELS}, "real numbers"),
    "one dimension": ({"x_train": np.zeros(4), "y_train": LABELS}, r"x_train is \(4,\)"),
    "five dimensions": ({"x_train": np.zeros((4, 1, 1, 1, 1)), "y_train": LABELS}, "x_train is"),
    "nothing": ({"x_train": np.zeros((0, 2)), "y_train": LABELS[:0]}, "none 0"),
    "NaN": ({"x_train": X * np.nan, "y_train": LABELS}, "finite"),
    "too large": ({"x_train": X + 1e300, "y_train": LABELS}, "finite"),
    "labels that are fractions": ({"x_train": X, "y_train": LABELS / 2}, "y_train is 'float64'.*whole numbers"),
    "too few labels": ({"x_train": X, "y_train": LABELS[:3]}, r"y_train is \(3,\).*of shape \(4,\)"),
    "one-hot labels": ({"x_train": X, "y_train": np.eye(4, dtype=int)}, r"y_train is \(4, 4\)"),
    "negative labels": ({"x_train": X, "y_train": LABELS - 1}, "negative"),
    "one class": ({"x_train": X, "y_train": LABELS * 0}, "2 to 1000 classes"),
    "too many classes": ({"x_train": X, "y_train": LABELS * 1000}, "2 to 1000 classes"),
    "another shape": (
        {"x_train": X, "y_train": LABELS, "x_test": X[:, :1], "y_test": LABELS},
        "x_test is .*like x_train",
    ),
    "another type": (
        {"x_train": X, "y_train": LABELS, "x_test": X.astype(np.uint8), "y_test": LABELS},
        "x_test is 'uint8.*like x_train: float64",
    ),
}


@pytest.mark.parametrize(("arrays", "message"), BAD.values(), ids=BAD)
def test_bad_arrays_are_refused_by_name(tmp_path, arrays, message):
    with pytest.raises(InvalidArgumentError, match=message):
        load_npz(saved(tmp_path, **arrays))


def test_a_file_that_is_no_npz_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"an \.npz file"):
        load_npz(tmp_path / "absent.npz")
    for content in (b"", b"text", b"PK\x03\x04 cut"):
        (tmp_path / "broken.npz").write_bytes(content)
        with pytest.raises(InvalidArgumentError, match=r"an \.npz file"):
            load_npz(tmp_path / "broken.npz")
    with open(tmp_path / "single.npz", "wb") as file:
        np.save(file, X)
    with pytest.raises(InvalidArgumentError, match=r"an \.npz file"):
        load_npz(tmp_path / "single.npz")


def test_a_compression_that_nobody_knows_is_refused(tmp_path):
    """Python's zipfile raises NotImplementedError for it, which is caught like other damage."""
    path = saved(tmp_path, x_train=np.zeros((4, 2)), y_train=LABELS)
    content = bytearray(path.read_bytes())
    for header, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        place = content.index(header) + offset
        content[place : place + 2] = (97).to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"an \.npz file of plain arrays.*compression method is not supported"):
        load_npz(path)
