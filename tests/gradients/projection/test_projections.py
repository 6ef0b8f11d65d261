from dataclasses import replace

import cases
import numpy as np
import oracle
import pytest
import torch
from recording import shift
from scipy import stats
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import TensorDataset

import privet
from privet.clipping import Automatic, Flat, Projected
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum
from privet.gradients.engine import trainable
from privet.gradients.projection import directions as module_of_directions
from privet.gradients.projection.directions import Directions
from privet.momentum import InnerOuter, PerExample
from privet.noise import FixedSource

WORDS = np.arange(4, dtype=np.uint64)


def estimated(gradients, directions, parameters, number):
    """Return estimates (B,) by explicit products with the same directions."""
    squares = 0
    for direction in one_by_one(directions, parameters, number):
        squares = squares + sum((gradients[n] * direction[n].double()).flatten(1).sum(1) for n in gradients).square()
    return (squares / number).sqrt()


def one_by_one(directions, parameters, number):
    for block in directions.draw(parameters, number):
        for k in range(len(next(iter(block.values())))):
            yield {name: tensor[k] for name, tensor in block.items()}


def sums_by_hand(gradients, rule, directions, parameters):
    norms = estimated(gradients, directions, parameters, rule.projections)
    return {name: oracle.SHRINK * torch.einsum("b,b...->...", rule.rule.weight(norms), g) for name, g in gradients.items()}


def test_directions_are_normal_independent_and_drawn_again_from_their_key(holds_twice):
    parameters = {"a": torch.zeros(301, 333), "b": torch.zeros(()), "c": torch.zeros(7)}

    def experiment():
        directions = Directions()
        drawn, again = (list(one_by_one(directions, parameters, 3)) for _ in range(2))
        assert all(torch.equal(one[name], other[name]) for one, other in zip(drawn, again, strict=True) for name in parameters)
        other = next(one_by_one(Directions(), parameters, 1))["a"].flatten()
        flat = [direction["a"].flatten().double() for direction in drawn]
        pairs = {"first two": flat[0] @ flat[1], "two keys": flat[0] @ other.double(), "shifted": flat[0][1:] @ flat[0][:-1]}
        return {
            **{f"direction {i}": stats.kstest(each.numpy(), "norm").pvalue for i, each in enumerate(flat)},
            **{name: 2 * stats.norm.sf(abs(float(value)) / len(flat[0]) ** 0.5) for name, value in pairs.items()},
        }

    holds_twice(experiment)


@pytest.mark.parametrize(("rule", "size"), [(Projected(Flat(0.3), 12), None), (Projected(Automatic(2.0, 0.1), 25), 2)], ids=str)
@pytest.mark.parametrize("case", cases.by_name("mlp", "tanh-cnn", "transformer", "tied head", "group norm"), ids=str)
def test_sums_are_weighted_by_the_estimates(case, rule, size):
    """At present parameters, and at past ones too. Directions in physical batches of any size are the same."""
    known, directions = oracle.reference(case, torch.float64), Directions()
    model, batch, parameters = known.model, known.batch, trainable(known.model)
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    past, other = {name: p + 0.1 * torch.randn_like(p) for name, p in before.items()}, case.model(torch.float64)
    other.load_state_dict({**other.state_dict(), **past})
    earlier = oracle.plain_gradients(other, case.loss, batch)
    for gradients, sets in (
        (known.expected, ()), ({name: g + 0.6 * earlier[name] for name, g in known.expected.items()}, [(0.6, past)]),
    ):  # fmt: skip
        expected = sums_by_hand(gradients, rule, directions, parameters)
        found = clipped_sum(model, case.loss, batch, rule, directions=directions, physical_batch_size=size, past=sets)
        assert oracle.relative_error(found.tensors, expected) <= 1e-10
        assert found.sensitivity == rule.rule.sensitivity
        assert not any(value.requires_grad for value in found.tensors.values())
    assert all(p.grad is None and torch.equal(p, before[name]) for name, p in parameters.items())


@pytest.mark.parametrize("block", [1, 3])
def test_directions_of_a_large_model_are_drawn_in_blocks(block, monkeypatch):
    known = oracle.reference(cases.by_name("mlp")[0], torch.float64)
    arguments = known.model, known.case.loss, known.batch, Projected(Flat(0.3), 11)
    whole = clipped_sum(*arguments, directions=Directions(WORDS))
    size = sum(parameter.numel() for parameter in known.model.parameters())
    monkeypatch.setattr(module_of_directions, "_AT_ONCE", block * size)
    assert oracle.relative_error(clipped_sum(*arguments, directions=Directions(WORDS)).tensors, whole.tensors) <= 1e-10


@pytest.mark.parametrize("size", [None, 1, 3])
def test_removing_an_example_takes_its_own_contribution_and_nothing_else(size):
    """Later examples move to other physical batches; with different directions, their weights would change."""
    known = oracle.reference(cases.by_name("mlp")[0], torch.float64)
    directions, rule = Directions(), Projected(Flat(0.02), 10)

    def total(batch):
        found = clipped_sum(known.model, known.case.loss, batch, rule, directions=directions, physical_batch_size=size)
        return found.tensors

    whole = total(known.batch)
    for position in (0, 3):
        rest, alone = total(oracle.without(known.batch, position)), oracle.select(known.batch, slice(position, position + 1))
        assert oracle.relative_error({name: whole[name] - rest[name] for name in whole}, total(alone)) <= 1e-10


def law(sizes, bound, projections):
    """Return the distribution ‖w·g‖ = C·√(r/χ²ᵣ) for a gradient much longer than the bound."""
    return stats.kstest(projections * (bound / np.array(sizes)) ** 2, stats.chi2(projections).cdf).pvalue


@pytest.mark.parametrize(("projections", "bound"), [(10, 1e-3), (30, 0.7), (100, 20.0)])
def test_contributions_follow_the_law_that_an_accountant_averages_over(projections, bound, holds_twice):
    """Examples along different axes: each coordinate of the sum is one example's independent contribution."""
    model, x = nn.Linear(1500, 1, bias=False).double(), 1e4 * torch.eye(1500, dtype=torch.float64)

    def experiment():
        found = clipped_sum(model, lambda m, x: m(x)[:, 0], x, Projected(Flat(bound), projections)).tensors["weight"]
        return {"law": law(found[0].abs().numpy(), bound, projections)}

    holds_twice(experiment)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38, 1e25], ids=str)
@pytest.mark.parametrize("method", ["auto", "ghost", "loop"])
def test_an_example_that_cannot_be_weighted_contributes_nothing_and_spoils_nothing(value, method):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), torch.randn(6, 4)
    x[3, 1] = value

    def loss(m, x):
        return m(x).sum(1) * x[:, 1]

    options = {"method": method, "directions": Directions()}
    assert shift(model, loss, x, Projected(Flat(0.7), 10), 3, **options) <= 1e-6
    assert torch.isinf(clipped_sum(model, loss, x, Projected(Flat(0.7), 10), **options).norms[3])


def test_a_gradient_that_only_a_backward_pass_finds_infinite_contributes_nothing():
    """√ has an infinite slope at 0, which forward mode misses along a direction with zero change there."""
    model, x = nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]])

    def loss(m, x):
        return m(x)[:, 0].abs().sqrt() + m(x)[:, 0]

    assert shift(model, loss, x, Projected(Flat(0.7), 10), 1, directions=Directions()) <= 1e-6


class Halves(Flat):
    def groups(self, names):
        return tuple(names[:1]), tuple(names[1:])


@pytest.mark.parametrize(("make", "named"), [
    (lambda: Projected(Flat(1.0), 9), "projections"),
    (lambda: Projected(Flat(1.0), 10.5), "projections"),
    (lambda: Projected(1.0, 30), "clipping.rule"),
    (lambda: Projected(Projected(Flat(1.0), 30), 30), "clipping.rule"),
    (lambda: clipped_sum(nn.Linear(3, 2), lambda m, x: m(x).sum(1), torch.ones(2, 3), Projected(Halves(1.0), 10)), "one group"),
    (lambda: plan(Projected(Flat(1.0), 30), momentum=PerExample(0.5)), "PerExample"),
    (lambda: replace(plan(Projected(Flat(1.0), 30), source="secure", adjacency="zero-out"),
                     sampling=privet.sampling.Shuffle(5)).epsilon(), "Projected.*Poisson or FullBatch sampling, not Shuffle"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused_by_name(make, named):
    with pytest.raises(InvalidArgumentError, match=named):
        make()


class Counting(Flat):
    """A rule that releases a count in addition to the gradients."""

    def statistics(self, norms):
        return {"clipping:count": (norms < self.bound).sum(1, dtype=torch.float64) - norms.shape[1] / 2}


class Uneven(Flat):
    def noise_scales(self, names):
        return {names[0]: 3.0}


@pytest.mark.parametrize("rule", [Counting(0.5), Uneven(0.5), Halves(0.5)], ids=lambda rule: type(rule).__name__)
def test_rules_whose_sensitivity_does_not_follow_the_law_are_refused_before_training(rule):
    with pytest.raises(InvalidArgumentError, match=r"clipping\.rule"):
        train(plan(Projected(rule, 10)), network())


N, SIGMA, RATE = 20, 1.7, 0.6


def plan(rule, batch_size=float(N), source="fixed", multiplier=SIGMA, **options):
    noise = privet.noise.Gaussian(multiplier, source=source, non_private=multiplier == 0)
    return privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(batch_size), steps=3, clipping=rule, delta=1e-5, noise=noise, **options
    )


def test_the_law_of_the_estimate_is_accounted_for():
    made = plan(Projected(Flat(1.0), 30), source="secure")
    assert privet.Plan.from_json(made.to_json()) == made
    assert all(event.projections == 30 for event in made.events())
    assert Projected(Flat(0.5), 10).scale_bound(0.5) == Projected(Flat(0.25), 10)
    exact, coarse = plan(Flat(1.0), source="secure"), plan(Projected(Flat(1.0), 12), source="secure")
    assert exact.epsilon() < made.epsilon() < coarse.epsilon()
    assert set(made.guarantee().epsilon_by_accountant) == {"pld"}
    with pytest.raises(InvalidArgumentError, match="accountant is 'rdp'"):
        made.epsilon("rdp")
    assert plan(Projected(Flat(1.0), 30), multiplier=0).epsilon() == float("inf")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def data():
    torch.manual_seed(1)
    return 3 * torch.randn(N, 5, dtype=torch.float64), torch.randint(3, (N,))


def train(the_plan, model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    privet.Training(the_plan, model, loss, optimizer, TensorDataset(*data()), **options).run()
    return parameters_to_vector(model.parameters()).detach()


def dp_sgd_jl(the_plan, model, x, y):
    """Run DP-SGD-JL, line by line."""
    rule, w = the_plan.clipping, parameters_to_vector(model.parameters()).detach()
    source, draws, directions = FixedSource(), FixedSource(), FixedSource()
    for _ in range(the_plan.total_steps):
        drawn = one_by_one(Directions(directions.words(4)), dict(model.named_parameters()), rule.projections)
        u = [parameters_to_vector(direction.values()) for direction in drawn]
        total = torch.zeros_like(w)
        for i in next(the_plan.sampling.draws(N, draws.words)):
            vector_to_parameters(w, model.parameters())
            v = parameters_to_vector(
                torch.autograd.grad(loss(model, (x[i : i + 1], y[i : i + 1])).sum(), list(model.parameters()))
            )
            m = (sum(float(v @ each) ** 2 for each in u) / rule.projections) ** 0.5
            total += oracle.SHRINK * min(1.0, rule.rule.bound / m) * v
        noised = total + the_plan.noise_multiplier * rule.sensitivity * source.normal(len(w))
        w = w - RATE / the_plan.divisor * noised
    return w


@pytest.mark.parametrize(("batch_size", "physical", "multiplier"), [
    (7.0, 3, SIGMA), (7.0, N, 0.0), (float(N), 3, 0.0), (float(N), N, SIGMA),
])  # fmt: skip
def test_steps_are_those_of_the_paper_in_physical_batches_of_any_size(batch_size, physical, multiplier):
    the_plan = plan(Projected(Flat(0.4), 12), batch_size, multiplier=multiplier)
    expected, start = dp_sgd_jl(the_plan, network(), *data()), parameters_to_vector(network().parameters()).detach()
    found = train(the_plan, network(), physical_batch_size=physical)
    assert (found - expected).norm() <= 1e-7 * (expected - start).norm()


def test_it_goes_with_inner_momentum_and_shrinking_bounds():
    options = {"momentum": InnerOuter(0.7, 0.5, 2), "bound_schedule": privet.schedules.Geometric()}
    one, other = (train(plan(Projected(Flat(0.4), 10), **options), network(), physical_batch_size=size) for size in (4, N))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_contributions_of_a_network_follow_the_law(holds_twice):
    (case,) = cases.by_name("mlp")
    model, alone, rule = case.model(), case.batch(1), Projected(Flat(1e-3), 10)

    def experiment():
        return {"law": law([oracle.size(clipped_sum(model, case.loss, alone, rule).tensors) for _ in range(100)], 1e-3, 10)}

    holds_twice(experiment)
