import numpy as np
import pytest

from privet.data.classes import UNDECLARED, parse_classes
from privet.errors import InvalidArgumentError
from privet.tables.cells import to_cells


@pytest.mark.parametrize(("classes", "names"), [
    (3, ("0", "1", "2")),
    ("3", ("0", "1", "2")),
    (" 2 ", ("0", "1")),
    ("a,b", ("a", "b")),
    ("a, b", ("a", "b")),
    ('"a, b",c', ("a, b", "c")),
    (["a", "b"], ("a", "b")),
    ((5, 2.5), ("5", "2.5")),
    ([np.int64(5), "x"], ("5", "x")),
    ("1,0", ("1", "0")),
], ids=str)  # fmt: skip
def test_classes_are_a_number_or_their_names_in_order(classes, names):
    assert parse_classes(classes, "mine.npz").classes == names


@pytest.mark.parametrize("classes", [
    0, 1, -3, 1001, True, 2.0, "1", "", "a", "a,,b", "a,a", "1,1.0", "99999999999999999999", '"a,b', [], ["a"], ["a", None],
    ["a", ["b"]], [True, False], {"a": 1}, {"a", "b"}, np.arange(3), range(2000), b"ab", object(),
], ids=lambda classes: type(classes).__name__)  # fmt: skip
def test_invalid_classes_are_refused(classes):
    with pytest.raises(InvalidArgumentError, match=r"^(unexpected end of data: )?classes is"):
        parse_classes(classes, "mine.npz")


def test_a_label_is_compared_only_with_the_declaration():
    classes = parse_classes(["cat", "7", "2.50"], "mine.npz")
    labels = ["cat", "Cat", "7", "7.0", "07", "2.5", "25e-1", "nan", "inf", "", "1" * 5000, "9007199254740993"]
    found = classes.encode(to_cells(labels))
    assert found.tolist() == [0, UNDECLARED, 1, 1, 1, 2, 2, *[UNDECLARED] * 5]
    for label, one in zip(labels, found, strict=True):
        assert classes.encode(to_cells([label])).tolist() == [one]


def test_large_whole_numbers_are_not_rounded():
    classes = parse_classes([2**53, 0], "mine.npz")
    assert classes.encode(to_cells([2**53, 2**53 + 1])).tolist() == [0, UNDECLARED]
