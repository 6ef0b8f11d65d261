import copy
import functools
import io
import pickle

import oracle
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import TensorDataset

import one_layer
import privet
from one_layer import Probe, linear_loss, stop_after
from privet.clipping import Automatic, Flat
from privet.errors import InvalidArgumentError
from privet.momentum import InnerOuter, PerExample
from privet.noise import FixedSource

N, RATE, SIGMA = 24, 0.7, 1.9
RULES = [Flat(0.37), Automatic(1.3, 0.05)]


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def loss(network, batch):
    return F.cross_entropy(network(batch[0]), batch[1], reduction="none")


def data(seed=1):
    torch.manual_seed(seed)
    return 3 * torch.randn(N, 5, dtype=torch.float64), torch.randint(3, (N,))


def plan(momentum, rule=RULES[0], multiplier=SIGMA, batch_size=float(N), steps=6, source="fixed", **options):
    return one_layer.plan(batch_size, steps, multiplier, source, N, clipping=rule, momentum=momentum, **options)


def training(the_plan, network, contents, directory=None, **options):
    """Return a new training, or one that is resumed if there is no plan."""
    parts = network, loss, torch.optim.SGD(network.parameters(), lr=RATE), TensorDataset(*contents)
    if the_plan is None:
        return privet.Training.resume(directory, *parts)
    return privet.Training(the_plan, *parts, directory, **options)


def flat(network):
    return parameters_to_vector(network.parameters()).detach()


def weight(rule, norm):
    return oracle.SHRINK * (min(1.0, rule.bound / norm) if isinstance(rule, Flat) else rule.bound / (norm + rule.stability))


def gradient(network, at, x, y):
    vector_to_parameters(at, network.parameters())
    value = F.cross_entropy(network(x[None]), y[None])
    return parameters_to_vector(torch.autograd.grad(value, list(network.parameters())))


def algorithm_3(the_plan, network, x, y):
    """DP-PSASC with momentum (SGD version), line by line; Poisson draws and a public divisor instead of the paper's batches."""
    rule, gamma0, gamma1, k0 = the_plan.clipping, the_plan.momentum.inner, the_plan.momentum.outer, the_plan.momentum.length
    source, sets, m = FixedSource(), [flat(network)], 0
    of_example = functools.cache(lambda step, i: gradient(network, sets[step], x[i], y[i]))
    for k in range(1, the_plan.total_steps + 1):
        batch = next(the_plan.sampling.draws(N, source.words))
        g = torch.zeros_like(sets[0])
        for i in batch:
            inner = 0
            for step in range(max(0, k - 1 - k0), k):
                inner = inner + gamma0 ** (k - 1 - step) * of_example(step, i)
            g += weight(rule, inner.norm()) * inner
        m = (1 - gamma1) * m + g + the_plan.noise_multiplier * rule.sensitivity * source.normal(len(g))
        sets.append(sets[-1] - RATE / the_plan.divisor * m)
    return sets[-1]


def algorithm_2(the_plan, network, x, y):
    """DP-PSASC with momentum (GD version), with m of the step in use."""
    rule, gamma, source = the_plan.clipping, the_plan.momentum.decay, FixedSource()
    w = flat(network)
    m = [gradient(network, w, x[i], y[i]) for i in range(N)]
    for k in range(the_plan.total_steps):
        g = torch.zeros_like(w)
        for i in range(N):
            m[i] = m[i] if k == 0 else gamma * gradient(network, w, x[i], y[i]) + (1 - gamma) * m[i]
            g += weight(rule, m[i].norm()) * m[i]
        w = w - RATE / N * (g + the_plan.noise_multiplier * rule.sensitivity * source.normal(len(g)))
    return w


@pytest.mark.parametrize(("momentum", "batch_size", "rule"), [
    (InnerOuter(0.6, 0.3, 3), 9.0, 0), (InnerOuter(1.0, 1.0, 1), 9.0, 1), (InnerOuter(0.9, 0.5, 9), float(N), 1),
    (InnerOuter(0.9, 0.2, 0), 9.0, 0), (PerExample(0.4), float(N), 0), (PerExample(0.4), float(N), 1),
    (PerExample(1.0), float(N), 1),
], ids=str)  # fmt: skip
def test_steps_are_those_of_the_paper(momentum, batch_size, rule):
    the_plan, contents, method = plan(momentum, RULES[rule], SIGMA, batch_size, steps=5), data(), ("loop", "ghost")[rule]
    listing = algorithm_2 if isinstance(momentum, PerExample) else algorithm_3
    expected = listing(the_plan, model(), *contents)
    network = model()
    training(the_plan, network, contents, method=method, physical_batch_size=5).run()
    assert (flat(network) - expected).norm() <= 1e-7 * (expected - flat(model())).norm()  # noise is rounded to a grid


@pytest.mark.parametrize(("momentum", "rule"), [
    (InnerOuter(0.9, 0.3, 3), RULES[0]), (InnerOuter(1.0, 1.0, 2), RULES[1]), (PerExample(0.3), RULES[0]),
    (PerExample(0.3), RULES[1]),
], ids=str)  # fmt: skip
def test_one_example_moves_every_step_by_at_most_the_sensitivity(momentum, rule):
    """Neighbours walk the same released path; what they release at each of its steps without noise is compared."""
    x, y = data()
    other = x.clone()
    other[5] = torch.nan  # contributes nothing: the example is taken out
    networks = [model(), model()]
    the_plan = plan(momentum, rule, 0.0, source="secure")
    pair = [training(the_plan, network, (inputs, y)) for network, inputs in zip(networks, (x, other), strict=True)]
    walks = [iter(each) for each in pair]
    outer = momentum.outer if isinstance(momentum, InnerOuter) else 1.0
    gap_before, moved = 0.0, 0.0
    for _ in range(6):
        before = flat(networks[0])
        for walk in walks:
            next(walk)
        after = [flat(network) for network in networks]
        gap = (after[0] - after[1]) * N / RATE
        release = gap - (1 - outer) * gap_before  # what the outer momentum carries on was released before
        assert float(release.norm()) <= rule.sensitivity * (1 + 1e-9)
        moved, gap_before = max(moved, float(release.norm())), gap
        assert not torch.equal(before, after[0])
        vector_to_parameters(after[0], networks[1].parameters())
    assert moved > 0.3 * rule.sensitivity


def test_an_example_that_is_not_finite_once_contributes_again_afterwards():
    x, y = data()
    network, the_plan = model(), plan(PerExample(0.5), multiplier=0.0)
    walk = iter(training(the_plan, network, (x, y), reading=privet.Reading(probe=False), method="ghost"))
    good = x[3].clone()
    for step in range(3):
        x[3] = torch.inf if step == 1 else good
        next(walk)
        assert all(bool(parameter.isfinite().all()) for parameter in network.parameters())


@pytest.mark.parametrize(
    ("momentum", "stop"),
    [(InnerOuter(0.8, 0.3, 3), 1), (InnerOuter(0.8, 0.3, 3), 4), (InnerOuter(0.8, 1.0, 2), 4), (InnerOuter(0.8, 0.3, 0), 1)],
    ids=str,
)
def test_a_resumed_training_walks_on_as_if_it_had_not_stopped(tmp_path, momentum, stop):
    the_plan, contents = plan(momentum, multiplier=0.0, steps=8), data()
    straight = model()
    training(the_plan, straight, contents).run()
    stop_after(training(the_plan, model(), contents, tmp_path), stop)
    again = model(seed=9)
    training(None, again, contents, tmp_path).run()
    for one, other in zip(straight.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_checkpoints_hold_no_average_of_a_single_example(tmp_path):
    the_plan, contents = plan(PerExample(0.4)), data()
    running = training(the_plan, model(), contents, tmp_path)
    running.run()
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert set(saved) == {"step", "ledger", "model", "optimizer", "rule"}
    for way in (pickle.dumps, copy.copy, copy.deepcopy, lambda value: torch.save(value, io.BytesIO())):
        with pytest.raises(TypeError, match="private"):
            way(running._averages)


def test_averages_begin_anew_when_a_training_is_resumed(tmp_path):
    the_plan, contents = plan(PerExample(0.4), multiplier=0.0, steps=4), data()
    stop_after(training(the_plan, model(), contents, tmp_path), 3)
    again = model(seed=9)
    resumed = training(None, again, contents, tmp_path)
    start = flat(again)
    expected = start - RATE * sum(weight(RULES[0], (g := gradient(model(), start, x, y)).norm()) * g
                                  for x, y in zip(*contents, strict=True)) / N  # fmt: skip
    resumed.run()
    torch.testing.assert_close(flat(again), expected, rtol=1e-10, atol=1e-12)


def test_the_past_is_forgotten_beyond_its_length_and_lies_with_the_parameters():
    running = training(plan(InnerOuter(0.8, 0.3, 2), steps=5), model(), data())
    lengths = [len(running._state.iterates.past()) for _ in running]
    assert lengths == [1, 2, 2, 2, 2]
    assert [coefficient for coefficient, _ in running._state.iterates.past()] == [0.8, 0.8**2]


def test_writing_to_the_gradient_does_not_reach_the_outer_momentum():
    results = []
    for meddle in (False, True):
        network = model()
        running = training(plan(InnerOuter(0.8, 0.3, 1), multiplier=0.0), network, data())

        def halved(optimizer, *_, meddle=meddle):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad.mul_(0.5 if meddle else 1.0)

        running.optimizer.register_step_pre_hook(halved)
        running.optimizer.param_groups[0]["lr"] = 2 * RATE if meddle else RATE
        running.run()
        results.append(flat(network))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kept", "whose"), [(0.6, "torch"), (0.9, "outer")])
def test_momentum_has_the_noise_of_a_geometric_sum(whose, kept, holds_twice):
    """Var = σ²·(1 − c²ᵗ)/(1 − c²) at step t, of torch's own momentum on the releases and of ours."""
    width, bound, divisor, steps = 20_000, 0.37, 5.0, 5

    def experiment():
        network = Probe(width)
        options = {"momentum": kept} if whose == "torch" else {}
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE, **options)
        momentum = InnerOuter(1.0, 1 - kept, 1) if whose == "outer" else None
        the_plan = plan(momentum, Flat(bound), batch_size=divisor, steps=steps, source="secure")
        silent = TensorDataset(torch.zeros(N, width))  # no example has a gradient: all that moves the model is noise
        running = privet.Training(the_plan, network, linear_loss, optimizer, silent, reading=privet.Reading(probe=False))
        found, before = {}, network.w.detach().clone()
        for step in running:
            buffer = (before - network.w.detach()).double() / RATE * divisor
            before = network.w.detach().clone()
            variance = (SIGMA * bound) ** 2 * (1 - kept ** (2 * step.number)) / (1 - kept**2)
            statistic = float(buffer.square().sum()) / variance
            tail = min(stats.chi2.sf(statistic, width), stats.chi2.cdf(statistic, width))
            found[f"step {step.number}"] = 2 * tail
        return found

    holds_twice(experiment)


BAD = {
    InnerOuter: {"inner": [0.0, 1.1], "outer": [0.0, 2], "length": [-1, 1.5]},
    PerExample: {"decay": [0, float("nan")], "memory_limit": [0, 1e9]},
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in BAD.items() for name in names])
def test_bad_settings_are_refused_by_name(kind, name):
    good = {"inner": 0.9, "outer": 0.1, "length": 2} if kind is InnerOuter else {"decay": 0.5}
    for value in BAD[kind][name]:
        with pytest.raises(InvalidArgumentError, match=f"momentum.{name}"):
            kind(**{**good, name: value})


@pytest.mark.parametrize(("make", "named"), [
    (lambda: plan(0.9), "momentum"),
    (lambda: plan(PerExample(0.5), batch_size=N - 1.0), "sampling rate 1"),
    (lambda: training(plan(PerExample(0.5, N * 66 * 8 - 1)), model(), data()), "at least 12672 bytes"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused_by_name(make, named):
    with pytest.raises(InvalidArgumentError, match=named):
        make()


def test_averages_that_just_fit_are_taken():
    training(plan(PerExample(0.5, N * 66 * 8)), model(), data()).run()
