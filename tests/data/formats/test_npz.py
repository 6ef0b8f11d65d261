import numpy as np
import pytest
import torch

from privet.data.classes import UNDECLARED
from privet.data.formats.npz import load_npz
from privet.errors import InvalidArgumentError

LABELS = np.array([0, 2, 1, 0])


def saved(folder, **arrays):
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("shape", "moved"),
    [((4, 7), None), ((4, 5, 6, 3), (0, 3, 1, 2)), ((4, 5, 6, 1), (0, 3, 1, 2)), ((4, 3, 5, 6), None), ((4, 16, 5, 6), None)],
)
def test_images_become_channels_first_and_vectors_stay(tmp_path, shape, moved):
    images = np.random.default_rng(0).random(shape, dtype=np.float32)
    data = load_npz(saved(tmp_path, x_train=images, y_train=LABELS), classes=3)
    expected = images if moved is None else images.transpose(moved)
    assert (data.name, data.input_shape, data.classes, data.test) == ("mine", expected.shape[1:], 3, None)
    assert np.array_equal(data.train.tensors[0].numpy(), expected)
    assert data.train.tensors[1].dtype == torch.int64
    flat = load_npz(saved(tmp_path, x_train=images[..., 0], y_train=LABELS), classes=3) if images.ndim == 4 else data
    assert flat.input_shape == ((1, *shape[1:3]) if images.ndim == 4 else expected.shape[1:])


def test_bytes_are_divided_by_255_and_other_numbers_are_not(tmp_path):
    pixels = np.full((4, 2), 51)
    assert load_npz(saved(tmp_path, x_train=pixels.astype(np.uint8), y_train=LABELS), classes=3).train.tensors[0].unique() == 0.2
    assert load_npz(saved(tmp_path, x_train=pixels, y_train=LABELS), classes=3).train.tensors[0].unique() == 51


def test_without_classes_arrays_are_refused_and_labels_are_not_disclosed(tmp_path):
    refusals = set()
    for labels in (LABELS, LABELS * 100):
        with pytest.raises(
            InvalidArgumentError, match=r"^classes is missing; it must be declared .*--classes 3 .*classes=3"
        ) as caught:
            load_npz(saved(tmp_path, x_train=np.zeros((4, 2)), y_train=labels))
        refusals.add(str(caught.value))
    assert len(refusals) == 1


@pytest.mark.parametrize("stray", [3, -1, UNDECLARED, 2**40, -(2**63)])
def test_a_changed_label_affects_only_its_example(tmp_path, stray):
    labels = LABELS.copy()
    labels[1] = stray
    data = load_npz(saved(tmp_path, x_train=np.zeros((4, 2)), y_train=labels), classes=3)
    assert (data.classes, data.input_shape, len(data.train)) == (3, (2,), 4)
    assert data.train.tensors[1].tolist() == [0, UNDECLARED, 1, 0]


def test_labels_are_integers_or_strings_in_the_declared_order(tmp_path):
    numbers = saved(tmp_path, x_train=np.zeros((4, 2)), y_train=np.array([10, 30, 20, 10]))
    assert load_npz(numbers, classes=(30, 20, 10)).train.tensors[1].tolist() == [2, 0, 1, 2]
    assert load_npz(numbers, classes="30,20,10").train.tensors[1].tolist() == [2, 0, 1, 2]
    texts = saved(tmp_path, x_train=np.zeros((4, 2)), y_train=np.array(["no", "yes", "perhaps", "no"]))
    assert load_npz(texts, classes="no,yes").train.tensors[1].tolist() == [0, 1, UNDECLARED, 0]


def test_test_data_may_be_in_another_file_or_the_same(tmp_path):
    test = tmp_path / "test.npz"
    np.savez(test, x_test=np.ones((2, 2)), y_test=np.array([2, 0]))
    path = saved(tmp_path, x_train=np.zeros((4, 2)), y_train=LABELS)
    data = load_npz(path, classes=3, test=str(test))
    assert [column.tolist() for column in data.test.tensors] == [[[1, 1], [1, 1]], [2, 0]]
    assert data.test_data == f"the file {test}, provided as public test data"
    with pytest.raises(InvalidArgumentError, match=r"test is .*the arrays x_test and y_test"):
        load_npz(path, classes=3, test=path)
    both = saved(tmp_path, x_train=np.zeros((4, 2)), y_train=LABELS, x_test=np.ones((1, 2)), y_test=np.array([2]))
    assert load_npz(both, classes=3).test_data == f"x_test and y_test of {both}, provided as public test data"
    with pytest.raises(InvalidArgumentError, match=r"test is .*left out"):
        load_npz(both, classes=3, test=test)


def test_users_are_a_separate_array(tmp_path):
    owners = np.array(["ann", "bob", "ann", "cy"])
    path = saved(tmp_path, x_train=np.zeros((4, 2)), y_train=LABELS, whose=owners)
    assert load_npz(path, classes=3, user_column="whose").users.tolist() == owners.tolist()
    with pytest.raises(InvalidArgumentError, match=r"source is .*or name the array of users"):
        load_npz(path, classes=3)
    for name in ("who", "x_train", "y_test"):
        with pytest.raises(InvalidArgumentError, match=rf"user_column is '{name}'; it must be .*labels: whose\."):
            load_npz(path, classes=3, user_column=name)


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
    "nothing": ({"x_train": np.zeros((0, 2)), "y_train": LABELS[:0]}, "non-empty"),
    "NaN in test data": ({"x_train": X, "y_train": LABELS, "x_test": X * np.nan, "y_test": LABELS}, "x_test .*finite"),
    "too large in test data": ({"x_train": X, "y_train": LABELS, "x_test": X + 1e300, "y_test": LABELS}, "x_test .*finite"),
    "labels that are fractions": ({"x_train": X, "y_train": LABELS / 2}, "y_train is 'float64'.*integers or strings"),
    "too few labels": ({"x_train": X, "y_train": LABELS[:3]}, r"y_train is \(3,\).*of shape \(4,\)"),
    "one-hot labels": ({"x_train": X, "y_train": np.eye(4, dtype=int)}, r"y_train is \(4, 4\)"),
    "a test label that is not declared": (
        {"x_train": X, "y_train": LABELS, "x_test": X, "y_test": LABELS + 1},
        "^row 2 has the target 3, which is not one of the 3 classes 0, 1, 2: y_test is",
    ),
    "a copy": ({"x_train": X, "y_train": LABELS, "x_test": X[::-1], "y_test": LABELS[::-1]}, "other data than the private rows"),
    "another shape": ({"x_train": X, "y_train": LABELS, "x_test": X[:, :1], "y_test": LABELS}, "x_test is .*like x_train"),
    "another type": (
        {"x_train": X, "y_train": LABELS, "x_test": X.astype(np.uint8), "y_test": LABELS},
        "x_test is 'uint8.*like x_train: float64",
    ),
}


@pytest.mark.parametrize(("shape", "number"), [((4, 2), np.nan), ((4, 3, 3), np.inf), ((4, 5, 5, 3), -np.inf), ((4, 2), 1e300)])
def test_a_private_row_with_a_number_that_is_not_finite_has_no_label_and_raises_nothing(tmp_path, shape, number):
    inputs = np.random.default_rng(0).normal(size=shape)
    whole = load_npz(saved(tmp_path, x_train=inputs, y_train=LABELS), classes=3)
    inputs.reshape(4, -1)[1, -1] = number
    found = load_npz(saved(tmp_path, x_train=inputs, y_train=LABELS), classes=3)
    (x, y), (expected, labels) = found.train.tensors, whole.train.tensors
    assert y.tolist() == [labels[0], UNDECLARED, labels[2], labels[3]]
    assert not x[1].any()
    assert torch.equal(x[[0, 2, 3]], expected[[0, 2, 3]])
    assert found.notes == whole.notes


def test_classes_that_no_label_can_be_are_refused_by_the_type_of_the_labels(tmp_path):
    path = saved(tmp_path, x_train=X, y_train=LABELS)
    with pytest.raises(InvalidArgumentError, match=r"classes is .*integers, .*of type int64, so none could be one"):
        load_npz(path, classes=("no", "yes"))
    assert load_npz(path, classes=("0", "one")).train.tensors[1].tolist().count(UNDECLARED) > 0


@pytest.mark.parametrize(("arrays", "message"), BAD.values(), ids=BAD)
def test_bad_arrays_are_refused_by_name(tmp_path, arrays, message):
    with pytest.raises(InvalidArgumentError, match=message):
        load_npz(saved(tmp_path, **arrays), classes=3)


def test_a_file_that_is_not_an_npz_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"^there is no such file: .*the path of a file\.$"):
        load_npz(tmp_path / "absent.npz", classes=3)
    for content in (b"", b"text", b"PK\x03\x04 cut"):
        (tmp_path / "broken.npz").write_bytes(content)
        with pytest.raises(InvalidArgumentError, match=r"an \.npz file"):
            load_npz(tmp_path / "broken.npz", classes=3)
    with open(tmp_path / "single.npz", "wb") as file:
        np.save(file, X)
    with pytest.raises(InvalidArgumentError, match=r"the arrays x_train and y_train"):
        load_npz(tmp_path / "single.npz", classes=3)
