import cases
import pytest
import torch
from recording import assert_agrees, cover, record
from torch import nn
from torch.nn import functional as F

from privet.gradients.core.recorder import UntraceableError


def squares(model, x):
    return model(x).square().flatten(1).sum(1)


@pytest.mark.parametrize("lookup", [
    lambda m, x: F.embedding(x, m.weight, scale_grad_by_freq=True),
    lambda m, x: F.embedding_bag(x, m.weight, scale_grad_by_freq=True, mode="sum"),
])  # fmt: skip
def test_gradients_that_are_divided_by_counts_go_one_example_at_a_time(lookup):
    """Counts over one example depend on it alone; counts over the batch would depend on all."""
    model, x = nn.Embedding(5, 3), torch.tensor([[1, 2, 2], [1, 1, 2]])

    def loss(m, x):
        return lookup(m, x).flatten(1).sum(1)

    with pytest.raises(UntraceableError):
        record(model, loss, x)
    assert_agrees(model, loss, x, 1e-6, looped=2)


def test_a_table_of_each_examples_own_is_followed_through_its_rows():
    """Rows of a table that is combined with an example's values belong to that example."""
    torch.manual_seed(0)
    model = cases.With(lambda m, x: F.embedding(torch.tensor([[0, 2, 2]]), x[0, :, None] * m.table), table=(5, 3))
    assert_agrees(model, squares, torch.randn(4, 5), 1e-6)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_that_begin_at_the_same_places_in_every_example_are_kept_apart(mode, last):
    model = nn.EmbeddingBag(11, 4, mode=mode, include_last_offset=last).double()
    x, offsets = torch.randint(11, (5, 9)), torch.tensor([0, 2, 2, 7, *([9] if last else [])])

    def loss(m, x):
        return m(x[0], offsets).square().mul(torch.arange(1.0, 5.0)[:, None]).sum()[None]

    assert_agrees(model, loss, x, 1e-10)


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_indices_out_of_range_contribute_nothing(method, dtype):
    model, words = nn.Embedding(10, 3), torch.tensor([[1, 2], [3, 10], [0, 9], [-11, 1]], dtype=dtype)
    found = cover(model, lambda m, x: m.weight[x].sin().sum((1, 2)), words, method, skip_errors=True).norms
    assert (found > 0).tolist() == [True, False, True, False]


def test_negative_indices_count_from_the_end_and_tokens_of_inference_mode_are_looked_up():
    with torch.inference_mode():
        words = torch.tensor([[1, -1], [9, -10]])
    assert_agrees(nn.Embedding(10, 3), lambda m, x: m.weight[x].sin().sum((1, 2)), words.clone())
    assert (cover(nn.Embedding(20, 3), squares, words.abs()).norms > 0).all()


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("index", [1, 77])
def test_indices_that_are_overwritten_after_the_look_up_are_an_error_of_their_example(index, method):
    def loss(m, batch):
        words, x = batch
        words = words.clone()
        rows = m(words)
        if x.sum() > 1:
            words.fill_(index)
        return rows.sin().sum((1, 2))

    batch = torch.tensor([[1, 2], [3, 4], [0, 1]]), torch.tensor([0.0, 5.0, 0.0])
    found = cover(nn.Embedding(5, 3), loss, batch, method, skip_errors=True).norms
    assert (found > 0).tolist() == [True, False, True]
