import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.runs.division import divide, new_key, sizes
from privet.units import Groups, Users


def dataset(rows=40, users=None, values=0.0) -> DataSet:
    inputs = torch.arange(rows, dtype=torch.float32)[:, None].repeat(1, 2)
    inputs[:, 1] = values
    return DataSet("own", TensorDataset(inputs, torch.zeros(rows, dtype=torch.int64)), None, 2, "made up", users=users)


def places(part) -> list[int]:
    return part.tensors[0][:, 0].int().tolist()


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5, 0.9])
def test_every_row_is_in_exactly_one_part_of_a_public_size(fraction):
    data = dataset()
    left, out = sizes(data, fraction, user_cap=None, group_size=None)
    found = divide(data, out, new_key(), user_cap=None, group_size=None)
    assert (len(found.training), len(found.held_out)) == (left, out) == (40 - round(40 * fraction), round(40 * fraction))
    assert sorted(places(found.training) + places(found.held_out)) == list(range(40))


def test_the_parts_depend_on_the_key_and_on_no_value():
    key = new_key()
    one, other = (divide(dataset(values=value), 8, key, user_cap=None, group_size=None) for value in (0.0, 1e30))
    assert places(one.held_out) == places(other.held_out)
    assert places(divide(dataset(), 8, new_key(), user_cap=None, group_size=None).held_out) != places(one.held_out)


def test_a_replaced_row_changes_one_part_only():
    """For every division, neighbouring data sets agree in the part that does not hold the replaced row."""
    for row in range(0, 40, 7):
        data, neighbour = dataset(), dataset()
        neighbour.train.tensors[0][row, 1] = 9.0
        key = new_key()
        parts = [divide(each, 10, key, user_cap=None, group_size=None) for each in (data, neighbour)]
        changed = [
            not torch.equal(getattr(parts[0], name).tensors[0], getattr(parts[1], name).tensors[0])
            for name in ("training", "held_out")
        ]
        assert changed == [row not in places(parts[0].held_out), row in places(parts[0].held_out)]


def test_every_subset_is_equally_likely(holds_twice):
    data = dataset(5)

    def experiment():
        drawn = [tuple(places(divide(data, 2, new_key(), user_cap=None, group_size=None).held_out)) for _ in range(2000)]
        counts = np.unique([a * 5 + b for a, b in drawn], return_counts=True)[1]
        assert len(counts) == 10
        return {"uniform": stats.chisquare(counts).pvalue}

    holds_twice(experiment)


def test_users_are_held_out_with_all_of_their_examples():
    owners = np.array([f"user {number % 10}" for number in range(40)])
    data = dataset(users=owners)
    assert sizes(data, 0.3, user_cap=2, group_size=None) == (7, 3)
    found = divide(data, 3, new_key(), user_cap=2, group_size=None)
    assert isinstance(found.training, Users)
    assert (len(found.training), len(found.held_out)) == (7, 3)
    own = [set(owners[part.rows_of_entries()[0].tensors[0][:, 0].int().numpy()]) for part in (found.training, found.held_out)]
    assert [len(names) for names in own] == [7, 3]
    assert not own[0] & own[1]


def test_groups_are_made_of_the_rows_that_are_left():
    assert sizes(dataset(), 0.2, user_cap=None, group_size=5) == (7, 8)
    found = divide(dataset(), 8, new_key(), user_cap=None, group_size=5)
    assert isinstance(found.training, Groups)
    assert (len(found.training), len(found.held_out)) == (7, 8)


def test_without_a_fraction_everything_is_trained_on():
    found = divide(dataset(), 0, new_key(), user_cap=None, group_size=None)
    assert (places(found.training), found.held_out) == (list(range(40)), None)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.2, float("nan"), 0.001, 0.999])
def test_a_fraction_that_leaves_nothing_is_refused(fraction):
    with pytest.raises(InvalidArgumentError, match="holdout"):
        sizes(dataset(), fraction, user_cap=None, group_size=None)
