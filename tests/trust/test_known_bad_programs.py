"""Programs that other libraries train without the promised privacy: each is bounded here, or refused with an explanation.

The failures are those of docs/trust.md; where a library is known for one, the comment names it.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet
from privet.errors import InvalidArgumentError, UnsupportedModelError

N, WORDS, BOUND, SIGMA, RATE = 24, 11, 0.37, 1.7, 0.23


def plan(multiplier=SIGMA, batch_size=6.0, steps=3, **options):
    return privet.Plan(
        examples=N,
        sampling=privet.sampling.Poisson(batch_size),
        steps=steps,
        clipping=privet.clipping.Flat(BOUND),
        delta=1e-3,
        noise=privet.noise.Gaussian(multiplier, non_private=multiplier == 0),
        **options,
    )


def training(model, loss_fn, data, the_plan=None, optimizer=None, **options):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=RATE)
    return privet.Training(the_plan or plan(), model, loss_fn, optimizer, data, **options)


def largest_contribution(model, loss_fn, batch):
    """How far an example alone moves the sum."""

    def contribution(i):
        alone = [leaf[i : i + 1] for leaf in batch]
        tensors = privet.clipped_sum(model, loss_fn, alone, privet.clipping.Flat(BOUND)).tensors
        return float(torch.cat([tensor.flatten() for tensor in tensors.values()]).double().norm())

    return max(map(contribution, range(len(batch[0]))))


class Tied(nn.Module):
    """A language model whose head is its table, used as a function."""

    def __init__(self, head):
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, 5), head

    def forward(self, words):
        return self.head(torch.tanh(self.table(words) * 50), self.table.weight)


@pytest.mark.parametrize("head", [F.linear, lambda h, w: h @ w.T], ids=["F.linear", "matrix product"])
def test_a_table_that_is_also_the_head_is_clipped_by_all_of_its_gradient(head):
    """Opacus 1.6.0 (ghost): measured by the embedding alone, the update was thousands of times the bound."""
    model = Tied(head)
    with torch.no_grad():
        model.table.weight.mul_(30)
    words = torch.randint(0, WORDS, (N, 4))

    def loss_fn(model, batch):
        return F.cross_entropy(model(batch[0]).transpose(1, 2), batch[1], reduction="none").mean(1)

    batch = (words, words.roll(1, 1))
    norms = privet.per_example_norms(model, loss_fn, batch)
    expected = [
        torch.autograd.grad(loss_fn(model, [leaf[i : i + 1] for leaf in batch]).sum(), model.table.weight)[0].norm()
        for i in range(N)
    ]
    torch.testing.assert_close(norms, torch.stack(expected).to(norms.dtype), rtol=1e-4, atol=1e-6)
    assert float(norms.max()) > BOUND
    assert largest_contribution(model, loss_fn, batch) <= BOUND * (1 + 1e-6)


def regression(model, batch):
    return (model(batch[0])[:, 0] - batch[1]).square()


def points(width=3):
    return TensorDataset(torch.randn(N, width), torch.randn(N))


def test_an_example_of_nans_neither_stops_training_nor_reaches_the_parameters():
    """Opacus 1.6.0: factor 0 times infinity makes every parameter NaN."""
    data = points()
    data.tensors[0][5] = math.nan
    data.tensors[1][7] = math.inf
    run = training(nn.Linear(3, 1), regression, data, plan(batch_size=N))
    run.run()
    assert all(parameter.isfinite().all() for parameter in run.model.parameters())


def test_empty_draws_are_noised_and_counted():
    """Several libraries skip the step or raise: then a missing step reveals that no example was drawn."""
    model = nn.Linear(3, 1)
    run = training(model, regression, points(), plan(batch_size=1e-6, steps=5))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in run:
        now = [parameter.detach().clone() for parameter in model.parameters()]
        assert all((one != other).all() for one, other in zip(before, now, strict=True))
        before = now
    assert run.steps_spent == 5


class Again(torch.optim.SGD):
    """An optimizer that evaluates the loss itself, as closures do."""

    def step(self, closure=None):
        assert closure is None, "training hands out no closure"
        return super().step()


def test_no_closure_can_erase_the_noise():
    """Opacus under Lightning: the closure ran the backward pass again, after the noise was added."""
    model = nn.Linear(3, 1)
    training(model, regression, points(), optimizer=Again(model.parameters(), lr=RATE)).run()
    with pytest.raises(InvalidArgumentError, match=r"optimizer.*LBFGS"):
        training(model, regression, points(), optimizer=torch.optim.LBFGS(model.parameters()))


def test_a_seed_gives_no_two_runs_the_same_noise():
    """Seeded generators repeat noise over runs, ranks and layers; the difference of two outputs then has none."""

    def released():
        torch.manual_seed(0)
        model = nn.Linear(3, 2, bias=False)
        nn.init.zeros_(model.weight)
        run = training(model, lambda m, b: m(b[0])[:, 0] * 0, points())
        next(iter(run))
        return model.weight.detach()

    one, other = released(), released()
    assert (one != other).all()
    assert len(one.unique()) == one.numel(), "coordinates share noise"


def test_noise_cannot_change_behind_the_accountant():
    """A scheduler of the multiplier alone, or one assignment, makes other libraries account for noise that was not added."""
    run = training(nn.Linear(3, 1), regression, points())
    with pytest.raises(AttributeError):
        run.plan.noise.multiplier = 1e-9
    with pytest.raises(AttributeError):
        run.plan = plan(multiplier=0.0)
    spent = run.epsilon("rdp")
    run.run()
    assert spent < run.epsilon("rdp") == run.plan.epsilon("rdp")


@pytest.mark.parametrize("wrapper", [nn.DataParallel])
def test_models_wrapped_to_average_raw_gradients_are_refused(wrapper):
    with pytest.raises(UnsupportedModelError, match="pass the wrapped module"):
        training(wrapper(nn.Linear(3, 1)), regression, points())
