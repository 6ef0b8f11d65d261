import numpy as np
import pytest

from privet.data.split import public_split, split_by_user


@pytest.mark.parametrize(("examples", "test_examples"), [(10, 3), (10, 0), (1797, 360)])
def test_every_row_is_in_exactly_one_part(examples, test_examples):
    train, test = public_split(examples, test_examples)
    assert len(test) == test_examples
    assert sorted(np.concatenate((train, test))) == list(range(examples))


def test_the_division_is_the_same_for_ever():
    train, test = public_split(6, 2)
    assert (train.tolist(), test.tolist()) == ([1, 3, 0, 4], [5, 2])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_users_are_divided_about_as_asked_and_the_same_for_ever(share):
    users = [f"user {row % 2000}" for row in range(6000)]
    train, test = split_by_user(users, share)
    assert sorted(np.concatenate((train, test))) == list(range(6000))
    assert {users[row] for row in train}.isdisjoint(users[row] for row in test)
    assert abs(len(test) / 6000 - share) < 0.05
    assert [part.tolist() for part in split_by_user(["a", "b", "c", "a", "d"], 0.5)] == [[0, 3], [1, 2, 4]]
