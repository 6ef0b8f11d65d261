import numpy as np
import pytest

from privet.data.preprocessing import Pixels, Standardised, Unchanged, preprocessing_from_dict
from privet.errors import InvalidArgumentError

KINDS = [Pixels(white=16), Pixels(mean=0.1307, std=0.3081), Unchanged(), Standardised((1.0, -2.0), (0.5, 3.0))]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_what_is_written_is_read_back(kind):
    assert preprocessing_from_dict(kind.to_dict()) == kind


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_an_input_depends_on_its_own_example_only(kind):
    rows = np.random.default_rng(0).integers(0, 17, (5, 2))
    whole = kind(rows)
    assert whole.dtype == np.float32
    for i in range(5):
        assert np.array_equal(kind(rows[i : i + 1])[0], whole[i])


def test_pixels_are_scaled_by_the_constants():
    found = Pixels(white=200, mean=0.5, std=0.25)(np.array([[0, 100, 200]], dtype=np.uint8))
    assert found.tolist() == [[-2.0, 0.0, 2.0]]


@pytest.mark.parametrize(("shape", "inputs"), [((2, 5, 4), (1, 5, 4)), ((2, 5, 4, 3), (3, 5, 4)), ((2, 3, 5, 4), (3, 5, 4))])
def test_the_channels_of_images_come_first(shape, inputs):
    assert Pixels()(np.zeros(shape, dtype=np.uint8)).shape == (2, *inputs)


def test_entries_that_are_not_allowed_are_found():
    assert Pixels(white=16).unfit(np.array([[0, 16, 17, -1]])).tolist() == [[False, False, True, True]]
    assert Unchanged().unfit(np.array([[0.0, np.nan, np.inf, 1e300]])).tolist() == [[False, True, True, True]]


@pytest.mark.parametrize("shape", [(3, 1), (3, 3), (3,), (3, 2, 2)], ids=str)
def test_another_number_of_columns_is_refused(shape):
    with pytest.raises(InvalidArgumentError, match=r"of the shape \(N, 2\)"):
        Standardised((1.0, -2.0), (0.5, 3.0))(np.zeros(shape))


@pytest.mark.parametrize("values", [
    {}, {"kind": "eval"}, {"kind": "pixels", "white": 0}, {"kind": "pixels", "white": "16"}, {"kind": "pixels", "code": "x"},
    {"kind": "standardised"}, {"kind": "standardised", "centre": [1.0], "spread": [1.0, 2.0]},
    {"kind": "standardised", "centre": 1.0, "spread": [1.0]}, {"kind": "standardised", "centre": [1.0], "spread": [0.0]},
], ids=str)  # fmt: skip
def test_other_descriptions_are_refused(values):
    with pytest.raises(InvalidArgumentError):
        preprocessing_from_dict(values)
