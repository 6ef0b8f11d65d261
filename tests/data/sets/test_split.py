import numpy as np
import pytest

from privet.data.sets.split import public_split


@pytest.mark.parametrize(("examples", "test_examples"), [(10, 3), (10, 0), (1797, 360)])
def test_every_row_is_in_exactly_one_part(examples, test_examples):
    train, test = public_split(examples, test_examples)
    assert len(test) == test_examples
    assert sorted(np.concatenate((train, test))) == list(range(examples))


def test_the_split_never_changes():
    train, test = public_split(6, 2)
    assert (train.tolist(), test.tolist()) == ([1, 3, 0, 4], [5, 2])
