"""Gradients at several parameter sets are added before they are measured: ORACLE and SENS with a past, whatever the layers."""

import copy

import cases
import oracle
import pytest
import torch
from torch import nn

from privet.clipping import Automatic, Flat
from privet.errors import InvalidArgumentError
from privet.gradients import convolution, functional, linear, norms
from privet.gradients.convolution import KernelUse
from privet.gradients.embedding import EmbeddingUse
from privet.gradients.engine import clipped_sum, tapes, trainable
from privet.gradients.history import holding, over
from privet.gradients.several import LinearUses, TiedUses, together
from privet.gradients.uses import DirectUse

COEFFICIENTS = (0.7, 0.49)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Of norms, and of what is weighted by them: what rounding may hide in a sum of many terms is added to a norm.
MEASURED = {torch.float32: 2e-4, torch.float64: 1e-10}
PRECISIONS = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))


def a_past(model, coefficients=COEFFICIENTS, seed=4):
    torch.manual_seed(seed)
    named = trainable(model).items()
    return [(c, {name: p.detach() + 0.1 * torch.randn_like(p) for name, p in named}) for c in coefficients]


def plain_sums(model, loss, batch, past):
    """Name → (B, *shape): the coefficients' sum of plain autograd's gradients, from copies of the model."""
    total = oracle.plain_gradients(model, loss, batch)
    for coefficient, values in past:
        other = copy.deepcopy(model)
        for name, parameter in trainable(other).items():
            parameter.data = values[name].clone()
        for name, gradient in oracle.plain_gradients(other, loss, batch).items():
            total[name] += coefficient * gradient
    return total


def check(case, dtype, method, examples=5):
    model, batch = case.model(dtype), case.batch(examples, dtype)
    past, parameters = a_past(model), trainable(model)
    expected = plain_sums(model, case.loss, batch, past)
    lengths = oracle.norms_of(expected)
    found = [tape.gradients() for tape in tapes(model, case.loss, batch, parameters, method, past=past)]
    gradients = {name: torch.cat([part[name] for part in found]) for name in parameters}
    assert oracle.relative_error_per_example(gradients, expected) <= TOLERANCE[dtype]
    for kind, rule in {"Flat": Flat, "Automatic": Automatic}.items():
        for bound in (1e-3, 0.7):
            result = clipped_sum(model, case.loss, batch, rule(bound), method=method, past=past, physical_batch_size=3)
            assert oracle.relative_error(result.tensors, oracle.plain_clipped_sum(expected, kind, bound)) <= MEASURED[dtype]
            assert ((result.norms - lengths).abs() <= MEASURED[dtype] * lengths).all()


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_the_tape_agrees_with_plain_autograd(case):
    check(case, torch.float64, "tape")


@pytest.fixture
def scarce(monkeypatch):
    monkeypatch.setattr(linear, "KEEP", 0)
    monkeypatch.setattr(convolution, "KEEP", 0)
    monkeypatch.setattr(norms, "CACHE", 300)
    monkeypatch.setattr(functional, "_HELD", 50)


@PRECISIONS
@pytest.mark.parametrize("case", [*cases.NETWORKS, *cases.TIED, *cases.ATTENTION, *cases.DERIVED], ids=str)
def test_the_tape_agrees_when_memory_is_scarce(case, dtype, scarce):
    check(case, dtype, "tape")


@PRECISIONS
@pytest.mark.parametrize("method", ["vectorised", "loop", "auto"])
@pytest.mark.parametrize("case", cases.by_name("mlp", "tanh-cnn", "transformer", "tied head", "shared parameter"), ids=str)
def test_every_method_agrees_with_plain_autograd(case, method, dtype):
    check(case, dtype, method)


@pytest.mark.parametrize("case", cases.UNFOLLOWED, ids=str)
def test_auto_is_right_where_the_tape_does_not_follow(case):
    check(case, torch.float64, "auto")


class Hoarder(nn.Module):
    """Keeps its parameter in a list, where torch does not look for it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.kept = [self.weight]

    def forward(self, x):
        return torch.tanh(nn.functional.linear(x, self.kept[0]))


@pytest.mark.parametrize("case", [cases.Case("hoarder", Hoarder, cases.numbers(6))], ids=str)
def test_a_parameter_that_is_kept_elsewhere_is_found_by_the_loop_and_noticed_by_the_tape(case):
    model, batch = case.model(torch.float64), case.batch(3, torch.float64)
    past = [(0.7, {"weight": model.weight.detach() + 1})]
    total = 0
    for coefficient, values in [(1.0, {"weight": model.weight.detach().clone()}), *past]:
        with holding(trainable(model), values):
            tape = next(tapes(model, case.loss, batch, trainable(model), "tape"))
            total = total + coefficient * tape.gradients()["weight"]
    found = [tape.gradients()["weight"] for tape in tapes(model, case.loss, batch, trainable(model), "loop", past=past)]
    assert torch.allclose(torch.cat(found), total, rtol=1e-12)
    with pytest.raises(Exception, match="keeps weight outside of its modules"):
        list(tapes(model, case.loss, batch, trainable(model), "tape", past=past))
    assert model.weight.grad is None


@pytest.mark.parametrize("method", ["tape", "vectorised", "loop"])
@pytest.mark.parametrize("case", cases.by_name("transformer", "tied head", "lstm", "weight norm"), ids=str)
@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(case, method, fails):
    if method == "vectorised" and not case.vectorisable:
        return
    model, batch = case.model(), case.batch(3)
    parameters = {name: (parameter, parameter.data_ptr()) for name, parameter in trainable(model).items()}
    before, past = copy.deepcopy(model.state_dict()), a_past(model)
    model.train()
    calls = []

    def loss(model, batch):
        calls.append(1)
        if fails and len(calls) == 2:
            raise RuntimeError("cable pulled")
        return case.loss(model, batch)

    def ask():
        clipped_sum(model, loss, batch, Flat(0.7), method=method, past=past)

    if fails:
        with pytest.raises(RuntimeError, match="cable"):
            ask()
    else:
        ask()
    now = trainable(model)
    assert list(now) == list(parameters)
    assert list(model.state_dict()) == list(before)
    for name, (parameter, place) in parameters.items():
        assert now[name] is parameter
        assert parameter.data_ptr() == place
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None
    assert all(module.training for module in model.modules())
    case.loss(model, batch).sum().backward()
    assert any(parameter.grad is not None for parameter in now.values())


@pytest.mark.parametrize("method", ["tape", "vectorised", "loop"])
@pytest.mark.parametrize("rule", [Flat(0.7), Automatic(50.0), Flat(1e-3)], ids=str)
@pytest.mark.parametrize("case", cases.by_name("mlp", "tanh-cnn", "transformer", "tied head"), ids=str)
def test_removing_an_example_moves_the_sum_by_at_most_the_sensitivity(case, rule, method):
    model, batch = case.model(torch.float64), case.batch(6, torch.float64)
    past = a_past(model, (2.5, 0.7, 0.1))
    whole = clipped_sum(model, case.loss, batch, rule, method=method, past=past)
    assert whole.sensitivity == rule.sensitivity
    for position in (0, 4):
        rest = clipped_sum(model, case.loss, oracle.without(batch, position), rule, method=method, past=past)
        assert oracle.distance(whole.tensors, rest.tensors) <= rule.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38], ids=str)
@pytest.mark.parametrize("method", ["tape", "vectorised", "loop"])
def test_an_example_that_is_not_finite_at_a_past_set_contributes_nothing(method, value):
    model, x = nn.Linear(4, 2), torch.randn(5, 4)
    past = a_past(model)

    def loss(m, x):  # overflows where the bias is large
        return m(x).square().sum(1) * x[:, 0].abs()

    past[1][1]["bias"][:] = 1e30
    x[2, 0] = value
    with_it = clipped_sum(model, loss, x, Flat(0.7), method=method, past=past)
    without = clipped_sum(model, loss, oracle.without(x, 2), Flat(0.7), method=method, past=past)
    limit = 1e-6 if not torch.isfinite(with_it.norms[2]) else 0.7 * (1 + 1e-6)
    assert oracle.distance(with_it.tensors, without.tensors) <= limit


def test_uses_of_one_kind_become_one_use():
    torch.manual_seed(0)
    direct = [DirectUse(torch.randn(3, 2, 4)) for _ in range(3)]
    assert torch.equal(together(direct).gradients, direct[0].gradients + direct[1].gradients + direct[2].gradients)
    kernels = [KernelUse(torch.randn(3, 2, 4, 4, 1)) for _ in range(3)]
    assert isinstance(together([kernels[0], together(kernels[1:])]), KernelUse)
    lookups = [EmbeddingUse(torch.randint(5, (3, 2)), torch.randn(3, 2, 4), 5) for _ in range(3)]
    assert together(lookups).indices.shape == (3, 6)
    again = [EmbeddingUse(lookups[0].indices.clone(), torch.randn(3, 2, 4), 5) for _ in range(3)]
    assert torch.equal(together(again).gradients, again[0].gradients + again[1].gradients + again[2].gradients)
    means = [EmbeddingUse(lookups[0].indices, torch.randn(3, 1, 4).expand(3, 2, 4), 5) for _ in range(3)]
    assert together(means).gradients.stride(1) == 0
    assert torch.allclose(together(means).per_example(), sum(use.per_example() for use in means))
    mixed = [lookups[1], *again, lookups[2]]
    assert together(mixed).indices.shape == (3, 6)
    assert torch.allclose(together(mixed).per_example(), sum(use.per_example() for use in mixed), atol=1e-6)
    maps = [linear.LinearUse(torch.randn(3, 2, 4), torch.randn(3, 2, 5)) for _ in range(4)]
    joined = together([together(maps[:2]), maps[2], together([maps[3]])])
    assert isinstance(joined, LinearUses)
    assert joined.uses == tuple(maps)
    tied = together([together([lookups[0], maps[0]]), together([lookups[1], maps[1]])])
    assert isinstance(tied, TiedUses)
    dense = tied.per_example()
    assert torch.allclose(tied.squared_norms(), dense.double().square().flatten(1).sum(1), rtol=1e-5)


def test_without_a_past_a_method_is_what_it_was():
    def method(*_):
        raise AssertionError

    assert over(method, "tape", ()) is method


@pytest.mark.parametrize("past", [
    [(1.0, {})], [(1.0, {"weight": torch.zeros(2, 3), "bias": torch.zeros(3)})], [("much", {})], [(torch.nan, {})],
])  # fmt: skip
def test_sets_that_are_not_the_models_are_refused(past):
    with pytest.raises(InvalidArgumentError, match="past"):
        clipped_sum(nn.Linear(3, 2), lambda m, x: m(x).sum(1), torch.ones(2, 3), Flat(0.7), past=past)
