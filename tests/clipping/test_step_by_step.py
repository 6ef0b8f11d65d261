"""Every rule, layerwise style and adaptive bound through `Training`, step by step against a plain loop from the papers.

Without noise, and with the numbers of the fixed source, which the loop draws for itself in the same order.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.clipping import PSAC, PSASC, AdaptiveQuantile, Automatic, Flat, Global, Layerwise, Normalize
from privet.noise import Gaussian

EXAMPLES, BATCH, STEPS, RATE = 40, 13.0, 6, 0.35


# The papers' weights, by norm n and bound c; what c has to be multiplied by for the sensitivity, and for the longest norm
# that counts as within the bound.
WEIGHTS = {
    "flat": (Flat(0.6), lambda n, c: min(1, c / n), 1, 1),
    "automatic": (Automatic(0.6, 0.03), lambda n, c: c / (n + 0.03), 1, 1),
    "normalize": (Normalize(0.6), lambda n, c: c / n, 1, 1),
    "psac": (PSAC(0.6, 0.02), lambda n, c: c / (n + 0.02 / (n + 0.02)), 1, 1),
    "psasc": (PSASC(0.6, 0.55, 0.02), lambda n, c: c / (0.55 * n + 0.02 / (n + 0.02)), 1 / 0.55, 1),
    "global": (Global(0.6, cutoff=2.4), lambda n, c: 0.25 if n <= 4 * c else 0, 1, 4),
    "indicator": (Global(2.1), lambda n, c: 1 if n <= c else 0, 1, 1),
}
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]
# Name: (of a rule, groups of parameter names, whether a group's noise is its own).
STYLES = {
    "flat": (lambda rule: rule, [NAMES], False),
    "module": (Layerwise, [NAMES[:2], NAMES[2:]], False),
    "parameter": (lambda rule: Layerwise(rule, by="parameter"), [[name] for name in NAMES], False),
    "patterns": (
        lambda rule: Layerwise({"0.*": rule.scale_bound(0.3), ".*": rule.scale_bound(1.7)}, noise="per group"),
        [NAMES[:2], NAMES[2:]],
        True,
    ),
}
ETA, GAMMA, SHARE = 0.4, 0.3, 0.2


def model():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def squared_error(model, batch):
    return (model(batch[0])[:, 0] - batch[1]).square()


def by_hand(net, plan, data, weight, times, cutoff, groups, bounds, own_noise, adaptive):
    """DP-SGD: Abadi et al., Algorithm 1, with the bounds of each group adapted by Andrew et al., Algorithm 1."""
    source, sigma, named = plan.noise.make_source(), plan.noise_multiplier, dict(net.named_parameters())
    for _ in range(STEPS):
        sums, counts = {name: torch.zeros_like(p) for name, p in named.items()}, [0.0] * len(groups)
        for i in next(plan.sampling.draws(EXAMPLES, source.words)).tolist():
            loss = squared_error(net, tuple(x[i : i + 1] for x in data))[0]
            gradients = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
            for r, group in enumerate(groups):
                n = math.sqrt(sum(gradients[name].square().sum().item() for name in group))
                counts[r] += (1 if n <= bounds[r] * cutoff else 0) - 0.5
                for name in group:
                    sums[name] += weight(n, bounds[r]) * gradients[name]
        z = sigma / math.sqrt(1 - SHARE) if adaptive else sigma
        total = math.sqrt(sum((bound * times) ** 2 for bound in bounds))
        sizes = [sums[name].numel() for group in groups for name in group] + [len(groups)] * adaptive
        noise = [part * (sigma > 0) for part in source.normal(sum(sizes)).split(sizes)]
        for r, group in enumerate(groups):
            std = z * bounds[r] * times * math.sqrt(len(groups)) if own_noise else z * total
            for name in group:
                named[name].data -= RATE * (sums[name] + std * noise.pop(0).view_as(sums[name])) / BATCH
        if adaptive:
            sigma_b = sigma * math.sqrt(len(groups)) / (2 * math.sqrt(SHARE))
            noisy = torch.tensor(counts) + sigma_b * noise.pop(0)
            bounds = [c * math.exp(-ETA * (b / BATCH + 0.5 - GAMMA)) for c, b in zip(bounds, noisy.tolist(), strict=True)]
    return named, bounds


# Every pair of a rule, a style, a kind of bound and noise or none.
COMBINATIONS = [
    (name, style, (r + s) % 2 == 0, (0.0, 0.7)[(r + s // 2) % 2])
    for r, name in enumerate(WEIGHTS)
    for s, style in enumerate(STYLES)
]


@pytest.mark.parametrize(("name", "style", "adaptive", "sigma"), COMBINATIONS)
def test_training_is_the_papers_loop(name, style, adaptive, sigma):
    rule, *papers = WEIGHTS[name]
    arrange, groups, own_noise = STYLES[style]
    clipping = arrange(rule)
    bounds = [one.bound for one in clipping.group_rules(len(groups))]
    expected = [rule.bound / math.sqrt(len(groups))] * len(groups) if not own_noise else [0.3 * rule.bound, 1.7 * rule.bound]
    assert bounds == pytest.approx(expected)
    clipping = AdaptiveQuantile(clipping, quantile=GAMMA, learning_rate=ETA, share=SHARE) if adaptive else clipping
    torch.manual_seed(9)
    data = 2 * torch.randn(EXAMPLES, 3, dtype=torch.float64), torch.randn(EXAMPLES, dtype=torch.float64)
    plan = privet.Plan(
        examples=EXAMPLES, sampling=privet.sampling.Poisson(BATCH), steps=STEPS, clipping=clipping, delta=1e-5,
        noise=Gaussian(sigma, source="fixed", non_private=sigma == 0),
    )  # fmt: skip
    net = model()
    parameters, adapted = by_hand(copy.deepcopy(net), plan, data, *papers, groups, expected, own_noise, adaptive)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    training = privet.Training(plan, net, squared_error, optimizer, TensorDataset(*data), physical_batch_size=5)
    training.run()
    for parameter, found in net.named_parameters():
        torch.testing.assert_close(found, parameters[parameter], rtol=2e-5, atol=2e-5)
    if adaptive:
        last = training._state.at(STEPS)[0].rule.group_rules(len(groups))
        assert [one.bound for one in last] == pytest.approx(adapted, rel=1e-7)
        assert adapted != expected
    assert any(not torch.equal(before, after) for before, after in zip(model().parameters(), net.parameters(), strict=True))
