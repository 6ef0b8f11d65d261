"""δ(ε) against simulated mechanisms: draw samples and noise as training does, and compare likelihoods.

δ(ε) is E[(1 − e^{ε − L})₊] over the losses L of whichever data set is harder to hide. Each sampler here is a few lines of the
mechanism's own definition, for data sets in which the other examples make it worst; the accountants share nothing with them.
What an accountant says must not be below what is seen, and where its bound is tight, hardly above. (Poisson samples of one number
are simulated in test_pld, random allocation in test_release_losses.)
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from privet.accounting import Event, FixedSizeEvent, TruncatedPoissonEvent
from privet.accounting.queries import composed_delta
from privet.clipping import AdaptiveQuantile, Flat, Layerwise, Projected
from privet.clipping.adaptive import COUNTS

NUMBER = 60_000
NAMES = ("one.weight", "two.weight", "three.weight")


def check(holds_twice, counted, simulate, ways, slack=None):
    """Check δ at ε from below, and from above where it is known to be tight.

    Args:
        holds_twice: the fixture.
        counted: ε → δ by the accountant.
        simulate: (generator, way) → losses (NUMBER,).
        ways: of simulating, the largest of which is to be met.
        slack: by which share δ may exceed it; None where nothing is known.
    """

    def experiment():
        found, generator = {}, np.random.default_rng()
        for epsilon in (0.05, 0.5):
            shown = [np.maximum(0.0, -np.expm1(epsilon - simulate(generator, way))) for way in ways]
            means, errors = [each.mean() for each in shown], [each.std() / math.sqrt(NUMBER) + 1e-12 for each in shown]
            delta = counted(epsilon)
            for way, mean, error in zip(ways, means, errors, strict=True):
                found[f"not below {way} at {epsilon}"] = stats.norm.sf((mean - delta) / error)
            if slack is not None:
                largest = int(np.argmax(means))
                found[f"tight at {epsilon}"] = stats.norm.sf((delta / (1 + slack) - means[largest]) / errors[largest])
        return found

    holds_twice(experiment)


def mixed(q, logs):
    return np.logaddexp(math.log1p(-q), math.log(q) + logs)


def sampled_vectors(q, steps, contribution, deviations):
    """Return the simulation of a release of several parts, all of one Poisson sample."""

    def simulate(generator, way):
        total = np.zeros(NUMBER)
        for _ in range(steps):
            drawn = deviations * generator.standard_normal((NUMBER, len(contribution)))
            if way == "remove":
                drawn += (generator.random(NUMBER) < q)[:, None] * contribution
            logs = ((drawn * contribution - contribution**2 / 2) / deviations**2).sum(axis=1)
            total += mixed(q, logs) if way == "remove" else -mixed(q, logs)
        return total

    return simulate


@pytest.mark.parametrize("noise", ["shared", "per group", (1.0, 2.5, 0.7)])
def test_groups_with_different_noise_cost_what_one_multiplier_says(holds_twice, noise):
    q, sigma, steps = 0.2, 1.1, 4
    rule = Layerwise(rules=[Flat(0.3), Flat(1.2), Flat(0.6)], by="parameter", noise=noise)
    bounds, scales = np.array([0.3, 1.2, 0.6]), rule.noise_scales(NAMES)
    deviations = sigma * rule.sensitivity * np.array([scales.get(name, 1.0) for name in NAMES])
    simulate = sampled_vectors(q, steps, bounds, deviations)
    check(holds_twice, lambda at: composed_delta([Event(q, sigma, steps)], epsilon=at), simulate, ("remove", "add"), slack=0.02)


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_counts_of_an_adaptive_bound_are_part_of_the_same_release(holds_twice, share):
    q, sigma, steps = 0.3, 1.4, 3
    rule = AdaptiveQuantile(Layerwise(Flat(0.8), by="parameter"), share=share)
    scales, clipped = rule.noise_scales(NAMES), [one.sensitivity for one in rule.rule.group_rules(3)]
    # An example at every group's bound is within it, which moves its count by a half.
    norms = torch.tensor(clipped, dtype=torch.float64)[:, None]
    contribution = np.concatenate([clipped, rule.statistics(norms * (1 - 1e-9))[COUNTS].numpy()])
    deviations = sigma * rule.sensitivity * np.array([*(scales.get(name, 1.0) for name in NAMES), *[scales[COUNTS]] * 3])
    simulate = sampled_vectors(q, steps, contribution, deviations)
    check(holds_twice, lambda at: composed_delta([Event(q, sigma, steps)], epsilon=at), simulate, ("remove", "add"), slack=0.02)


@pytest.mark.parametrize("steps", [1, 3])
def test_fixed_size_samples_of_replaced_examples(holds_twice, steps):
    """The others contribute C; the example C in one data set and −C in the other."""
    examples, batch, sigma = 5, 2, 1.7

    def simulate(generator, way):
        total = np.zeros(NUMBER)
        for _ in range(steps):
            everybody = np.argsort(generator.random((NUMBER, examples)), axis=1)[:, :batch]
            moved = -2.0 * (everybody == 0).any(axis=1) if way == "to the other side" else 0.0
            drawn = moved + sigma * generator.standard_normal(NUMBER)  # beside the sum of a batch in which all agree
            logs = mixed(batch / examples, (-2.0 * drawn - 2.0) / sigma**2)
            total += logs if way == "to the other side" else -logs
        return total

    event, slack = FixedSizeEvent(batch / examples, sigma, steps), 0.02 if steps == 1 else None
    check(
        holds_twice, lambda at: composed_delta([event], epsilon=at, adjacency="replace-one"),
        simulate, ("to the other side", "back"), slack,
    )  # fmt: skip


@pytest.mark.parametrize(("others", "largest"), [(-1.0, 2), (0.0, 5), (1.0, 2)])
def test_truncated_poisson_samples(holds_twice, others, largest):
    """Whoever is added may push others out of a batch that is full."""
    examples, q, sigma, steps = 8, 0.3, 1.5, 2
    numbers = np.arange(examples)  # others that were drawn
    shares = stats.binom.pmf(numbers, examples - 1, q)
    kept = np.minimum(numbers, largest)
    stays = np.where(numbers < largest, 1.0, largest / (numbers + 1))
    # Sums, and their probabilities, without the example and with it.
    without = others * kept, shares
    added = np.where(numbers < largest, others * kept, others * (largest - 1)) + 1.0
    with_it = np.concatenate([without[0], added]), np.concatenate([(1 - q * stays) * shares, q * stays * shares])

    def log_density(points, law):
        centres, weights = law
        return np.log(np.exp(-((points[:, None] - centres) ** 2) / 2 / sigma**2) @ weights)

    def simulate(generator, way):
        first, second = (with_it, without) if way == "remove" else (without, with_it)
        total = np.zeros(NUMBER)
        for _ in range(steps):
            drawn = sum(generator.random(NUMBER) < q for _ in range(examples - 1))
            own = generator.random(NUMBER) < q * np.where(drawn < largest, 1.0, largest / (drawn + 1))
            sums = others * np.minimum(drawn, largest - own) + own if way == "remove" else others * np.minimum(drawn, largest)
            points = sums + sigma * generator.standard_normal(NUMBER)
            total += log_density(points, first) - log_density(points, second)
        return total

    event = TruncatedPoissonEvent(q, sigma, steps, examples=examples, largest_batch=largest)
    check(holds_twice, lambda at: composed_delta([event], epsilon=at), simulate, ("remove", "add"))


def test_norms_that_projections_estimate(holds_twice):
    """Directions are drawn as training draws them, and the attacker knows them; a large gradient is clipped by its estimate."""
    q, sigma, steps, projections, bound = 0.3, 2.0, 2, 12, 0.6
    rule = Projected(Flat(bound), projections)
    gradient = torch.tensor([3.0, -40.0, 11.0], dtype=torch.float64)

    def simulate(generator, way):
        total = np.zeros(NUMBER)
        for _ in range(steps):
            directions = torch.from_numpy(generator.standard_normal((NUMBER, projections, 3)))
            estimates = (directions @ gradient).square().mean(dim=1).sqrt()
            clipped = (rule.weights(estimates[None])[0] * gradient.norm()).numpy() / bound
            drawn = sigma * generator.standard_normal(NUMBER)
            drawn += clipped * (generator.random(NUMBER) < q) if way == "remove" else 0.0
            logs = mixed(q, (drawn * clipped - clipped**2 / 2) / sigma**2)
            total += logs if way == "remove" else -logs
        return total

    event = Event(q, sigma, steps, projections=projections)
    check(holds_twice, lambda at: composed_delta([event], epsilon=at), simulate, ("remove", "add"), slack=0.05)
