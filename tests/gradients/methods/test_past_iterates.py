"""Gradients at several parameter sets are added before the norm is taken: ORACLE and SENS with past iterates."""

import contextlib
import copy

import cases
import oracle
import pytest
import torch
from recording import Seen, cover, identity_with_backward, make_scarce, shift
from torch import nn

from privet.clipping import Automatic, Flat
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum, trainable
from privet.gradients.combine.sums import ConcatenatedLinearGrads, TiedEmbeddingGrads, sum_grads
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.layers import linear
from privet.gradients.layers.convolution.gradient import ConvDenseGrad
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.gradients.methods.passes import swap_values
from rounding import assert_equal_up_to_rounding

COEFFICIENTS = (0.7, 0.49)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# For norms and weighted sums: a bound on the rounding of a sum of many terms is added to each norm.
MEASURED = {torch.float32: 2e-4, torch.float64: 1e-10}


def a_past(model, coefficients=COEFFICIENTS, seed=4):
    torch.manual_seed(seed)
    named = trainable(model).items()
    return [(c, {name: p.detach() + 0.1 * torch.randn_like(p) for name, p in named}) for c in coefficients]


def plain_sums(known, past):
    """Return name → (B, *shape): the weighted sum of plain autograd's gradients, from copies of the model."""
    total = dict(known.expected)
    for coefficient, values in past:
        other = copy.deepcopy(known.model)
        for name, parameter in trainable(other).items():
            parameter.data = values[name].clone()
        for name, gradient in oracle.plain_gradients(other, known.case.loss, known.batch).items():
            total[name] = total[name] + coefficient * gradient
    return total


def check(case, dtype, method):
    known = oracle.reference(case, dtype)
    model, batch, past = known.model, known.batch, a_past(known.model)
    expected = plain_sums(known, past)
    lengths = oracle.norms_of(expected)
    covered = cover(model, case.loss, batch, method, past=past)
    assert (covered.looped > 0) == (method == "loop" or case in cases.UNFOLLOWED)
    assert oracle.relative_error_per_example(covered.gradients, expected) <= TOLERANCE[dtype]
    result = clipped_sum(model, case.loss, batch, Automatic(1e-3), method=method, past=past, physical_batch_size=3)
    plain = oracle.plain_clipped_sum(expected, "Automatic", 1e-3)
    assert oracle.relative_error(result.tensors, plain) <= MEASURED[dtype]
    assert ((result.norms - lengths).abs() <= MEASURED[dtype] * lengths).all()


@pytest.mark.product
@pytest.mark.parametrize("case", cases.slow_unless_typical(cases.FOLLOWED), ids=str)
def test_the_tape_agrees_with_plain_autograd(case):
    check(case, torch.float64, "ghost")


@pytest.mark.product
@pytest.mark.parametrize(("case", "dtype"), [
    cases.slow_unless(case in cases.TYPICAL or (dtype == torch.float64 and case in cases.TIED), case, dtype)
    for case in [*cases.NETWORKS, *cases.TIED, *cases.ATTENTION, *cases.DERIVED] for dtype in TOLERANCE
], ids=str)  # fmt: skip
def test_the_tape_agrees_when_memory_is_scarce(case, dtype, monkeypatch):
    make_scarce(monkeypatch)
    check(case, dtype, "ghost")


@pytest.mark.parametrize(("case", "method"), [
    *((case, method) for case in cases.by_name("mlp", "tied head", "shared parameter") for method in ("loop", "auto")),
    *((case, "auto") for case in cases.UNFOLLOWED),
], ids=str)  # fmt: skip
def test_every_method_agrees_with_plain_autograd(case, method):
    check(case, torch.float64, method)


def test_a_parameter_that_is_kept_elsewhere_is_found():
    """In a list, where torch does not find it."""
    case = cases.Case("hoarder", lambda: cases.With(lambda m, x: torch.tanh(x @ m.kept[0].t()), weight=(4, 6)), cases.numbers(6))
    model, batch = case.model(torch.float64), case.batch(3, torch.float64)
    model.kept = [model.weight]
    past = [(0.7, {"weight": model.weight.detach() + 1})]
    expected = 0
    for coefficient, values in [(1.0, {"weight": model.weight.detach().clone()}), *past]:
        with swap_values(trainable(model), values):
            expected = expected + coefficient * cover(model, case.loss, batch).gradients["weight"]
    for method in ("loop", "auto"):
        found = cover(model, case.loss, batch, method, past=past).gradients["weight"]
        assert torch.allclose(found, expected, rtol=1e-12), method
    assert model.weight.grad is None


@pytest.mark.parametrize(("method", "fails"), [("ghost", False), ("ghost", True), ("loop", True)])
@pytest.mark.parametrize("case", cases.by_name("transformer", "tied head", "lstm", "weight norm"), ids=str)
def test_the_model_is_left_as_it_was(case, method, fails):
    model, batch = case.model(), case.batch(3)
    parameters = {name: (parameter, parameter.data_ptr()) for name, parameter in trainable(model).items()}
    before, past = copy.deepcopy(model.state_dict()), a_past(model)
    model.train()
    calls = Seen()

    def loss(model, batch):
        calls(1)
        if fails and len(calls.items) > 1:
            raise RuntimeError("cable pulled")
        return case.loss(model, batch)

    with pytest.raises(RuntimeError, match="cable") if fails else contextlib.nullcontext():
        clipped_sum(model, loss, batch, Flat(0.7), method=method, past=past)
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


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38], ids=str)
@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_an_example_that_is_not_finite_at_a_past_set_contributes_nothing(method, value):
    model, x = nn.Linear(4, 2), torch.randn(5, 4)
    past = a_past(model)

    def loss(m, x):  # overflows where the bias is large
        return m(x).square().sum(1) * x[:, 0].abs()

    past[1][1]["bias"][:] = 1e30
    x[2, 0] = value
    finite = bool(clipped_sum(model, loss, x, Flat(0.7), method=method, past=past).norms[2].isfinite())
    assert shift(model, loss, x, Flat(0.7), 2, method=method, past=past) <= (0.7 * (1 + 1e-6) if finite else 1e-6)


def test_gradients_of_one_kind_are_merged():
    torch.manual_seed(0)
    direct = [DenseGrad(torch.randn(3, 2, 4)) for _ in range(3)]
    assert torch.equal(sum_grads(direct).gradients, direct[0].gradients + direct[1].gradients + direct[2].gradients)
    kernels = [ConvDenseGrad(torch.randn(3, 2, 4, 4, 1)) for _ in range(3)]
    assert isinstance(sum_grads([kernels[0], sum_grads(kernels[1:])]), ConvDenseGrad)
    lookups = [EmbeddingGrad(torch.randint(5, (3, 2)), torch.randn(3, 2, 4), 5) for _ in range(3)]
    assert sum_grads(lookups).indices.shape == (3, 6)
    again = [EmbeddingGrad(lookups[0].indices, torch.randn(3, 2, 4), 5) for _ in range(3)]
    assert torch.equal(sum_grads(again).gradients, again[0].gradients + again[1].gradients + again[2].gradients)
    means = [EmbeddingGrad(lookups[0].indices, torch.randn(3, 1, 4).expand(3, 2, 4), 5) for _ in range(3)]
    assert sum_grads(means).gradients.stride(1) == 0
    assert_equal_up_to_rounding(sum_grads(means).materialize(), sum(grad.materialize() for grad in means))
    mixed = [lookups[1], *again, lookups[2]]
    assert sum_grads(mixed).indices.shape == (3, 6)
    assert torch.allclose(sum_grads(mixed).materialize(), sum(grad.materialize() for grad in mixed), atol=1e-6)
    maps = [linear.LinearGrad(torch.randn(3, 2, 4), torch.randn(3, 2, 5)) for _ in range(4)]
    assert isinstance(sum_grads(maps), DenseGrad)  # smaller than the factors
    wide = [linear.LinearGrad(torch.randn(3, 2, 40), torch.randn(3, 2, 50)) for _ in range(4)]
    joined = sum_grads([sum_grads(wide[:2]), wide[2], sum_grads([wide[3]])])
    assert isinstance(joined, ConcatenatedLinearGrads)
    assert joined.grads == tuple(wide)
    tied = sum_grads([sum_grads([lookups[0], maps[0]]), sum_grads([lookups[1], maps[1]])])
    assert isinstance(tied, TiedEmbeddingGrads)
    dense = tied.materialize()
    assert torch.allclose(tied.squared_norms(), dense.double().square().flatten(1).sum(1), rtol=1e-5)


@pytest.mark.parametrize("past", [
    [(1.0, {})], [(1.0, {"weight": torch.zeros(2, 3), "bias": torch.zeros(3)})], [("much", {})], [(torch.nan, {})],
])  # fmt: skip
def test_sets_that_are_not_the_models_are_refused(past):
    with pytest.raises(InvalidArgumentError, match="past"):
        clipped_sum(nn.Linear(3, 2), lambda m, x: m(x).sum(1), torch.ones(2, 3), Flat(0.7), past=past)


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_gradients_are_multiplied_rather_than_losses(method):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    bounded = identity_with_backward(lambda gradient: gradient.clamp(-0.1, 0.1))  # not linear
    loss = lambda model, x: bounded.apply(model(x)).square().sum(1)  # noqa: E731
    values = {name: parameter.detach() + 0.3 for name, parameter in model.named_parameters()}
    found = clipped_sum(model, loss, x, Flat(1e6), method=method, past=[(3.0, values)]).tensors
    expected = clipped_sum(model, loss, x, Flat(1e6), method="loop").tensors
    with swap_values(dict(model.named_parameters()), values):
        earlier = clipped_sum(model, loss, x, Flat(1e6), method="loop").tensors
    for name, value in found.items():
        assert_equal_up_to_rounding(value, expected[name] + 3 * earlier[name])


def test_what_all_positions_share_stays_shared_when_it_is_multiplied():
    grad = EmbeddingGrad(torch.tensor([[0, 2, 2], [1, 0, 1]]), torch.randn(2, 1, 4).expand(2, 3, 4), 3)
    scaled = grad.scale(-2.5)
    assert scaled.gradients.stride(1) == 0
    assert_equal_up_to_rounding(scaled.materialize(), -2.5 * grad.materialize())
    assert_equal_up_to_rounding(scaled.squared_norms(), 2.5**2 * grad.squared_norms(), precision=torch.float32)
