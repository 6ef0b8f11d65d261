import pytest
import torch

from privet.gradients.core.consensus import SplitError, agree, agree_on_kinds


def agreed(values):
    """Return the value that each example sees, or the groups."""
    seen = []

    def one(token, x):
        seen.append(agree(token, x))
        return token

    try:
        torch.func.vmap(one)(torch.zeros(len(values)), values)
    except SplitError as split:
        return list(map(list, split.groups))
    return seen[0]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)], ids=str)
def test_equal_values_are_what_each_alone_would_see(dtype, shape):
    value = torch.randn(shape).to(dtype)
    found = agreed(value.expand(4, *shape).clone())
    assert torch.equal(found, value)
    assert found.dtype == dtype


@pytest.mark.parametrize("values", [
    [1.0, 2.0, 1.0, 3.0, 2.0], [0.0, -0.0, 0.0, 1.0, -0.0], [float("nan"), 1.0, float("nan"), 2.0, 1.0],
])  # fmt: skip
def test_groups_are_of_equal_bits(values):
    """NaN equals itself; 0.0 differs from −0.0, as 1/x does."""
    groups = agreed(torch.tensor(values))
    assert sorted(example for group in groups for example in group) == [0, 1, 2, 3, 4]
    assert sorted(map(sorted, groups)) == [[0, 2], [1, 4], [3]]
    assert groups == [sorted(group) for group in groups]
    x = torch.zeros(4, 3, 2)
    x[2, 1, 1] = 1e-45
    assert sorted(agreed(x)) == [[0, 1, 3], [2]]


def test_kinds_of_results_agree_or_split():
    agree_on_kinds(["a", "a"])
    with pytest.raises(SplitError) as split:
        agree_on_kinds([(1, 2), (2, 1), (1, 2), None])
    assert [list(group) for group in split.value.groups] == [[0, 2], [1], [3]]
    assert str(split.value) == ""  # no value is revealed
    assert split.value.args == ()
