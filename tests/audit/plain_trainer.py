"""A trainer of thirty lines with one fault at a time, which an audit must detect."""

from functools import partial

import numpy as np

from privet.audit import Probe, Trace


def clipped(gradients, bound):
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    finite = np.isfinite(norms)
    return np.where(finite, gradients * np.minimum(1.0, bound / np.where(finite & (norms > 0), norms, 1.0)), 0.0).sum(0)


def poisson(generator, step, examples, rate):
    return np.flatnonzero(generator.random(examples) < rate)


def normal(generator, step, size):
    return generator.standard_normal(size)


def train(probe: Probe, *, clip=clipped, deviation=float, noise=normal, draw=poisson, divided=None) -> Trace:
    """DP-SGD with the flat rule, with all parameters concatenated in one vector; parts of a step may be faulty.

    Args:
        clip: (gradients, bound) → clipped sum.
        deviation: σ·C → standard deviation of the noise.
        noise: (generator, step, size) → standard normal numbers.
        draw: (generator, step, N, q) → indices.
        divided: (sum, batch size, expected batch size) → sum with a fault, before the division by the expected batch size.
    """
    plan, generator = probe.plan, np.random.default_rng()
    bound, size = plan.clipping.bound, sum(probe.sizes.values())
    released, drawn = [], []
    for step in range(plan.total_steps):
        indices = draw(generator, step, plan.examples, plan.sampling_rate)
        rows = probe.data.read(indices).double().numpy()
        with np.errstate(all="ignore"):
            total = clip(rows, bound)
        total = total + deviation(plan.noise_multiplier * bound) * noise(generator, step, size)
        released.append(total if divided is None else divided(total, len(indices), plan.divisor))
        drawn.append(indices)
    return Trace(probe.by_parameter(np.stack(released)), drawn)


def of_mean(gradients, bound):
    mean = np.nan_to_num(gradients).mean(0) if len(gradients) else np.zeros(gradients.shape[1])
    return len(gradients) * mean * min(1.0, len(gradients) * bound / (np.linalg.norm(len(gradients) * mean) or 1.0))


def of_sum(gradients, bound):
    total = np.nan_to_num(gradients).sum(0)
    return total * min(1.0, len(gradients) * bound / (np.linalg.norm(total) or 1.0))


def every_coordinate(gradients, bound):
    return np.nan_to_num(gradients).clip(-bound, bound).sum(0)


def in_halves(gradients, bound):
    middle = gradients.shape[1] // 2
    return np.concatenate([clipped(gradients[:, :middle], bound), clipped(gradients[:, middle:], bound)])


def without_care(gradients, bound):
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return (gradients * np.minimum(1.0, bound / (norms + 1e-6))).sum(0)


def shuffled(generator, step, examples, rate, state={}):  # noqa: B006 - the permutation of an epoch
    length = round(1 / rate)
    if step % length == 0:
        state["order"] = generator.permutation(examples)
    return np.sort(state["order"][step % length :: length])


def blocks(generator, step, examples, rate):
    """The planned number of examples, but always neighbours."""
    return np.sort((generator.integers(examples) + np.arange(generator.binomial(examples, rate))) % examples)


def half_missing(generator, step, size):
    normal = generator.standard_normal(size)
    normal[: size // 6] = 0.0
    return normal


def reused(generator, step, size):
    return np.random.default_rng(step // 2).standard_normal(size)


def once_for_all_parameters(generator, step, size):
    return np.resize(generator.standard_normal(-(-size // 6)), size)


TRAINERS = {
    "no noise": partial(train, deviation=lambda right: 0.0),
    "half the noise": partial(train, deviation=lambda right: right / 2),
    "a twentieth less noise": partial(train, deviation=lambda right: 0.95 * right),
    "variance for standard deviation": partial(train, deviation=lambda right: right**2),
    "standard deviation for variance": partial(train, deviation=lambda right: right**0.5),
    "noise for the mean on a sum": partial(train, deviation=lambda right: right / 20),
    "noise once per microbatch": partial(train, deviation=lambda right: right * 2**0.5),
    "a parameter without noise": partial(train, noise=half_missing),
    "first step without noise": partial(train, noise=lambda g, step, n: g.standard_normal(n) * (step > 0)),
    "a stream that is used twice": partial(train, noise=reused),
    "one number for all coordinates": partial(train, noise=lambda g, step, n: np.full(n, g.standard_normal())),
    "one stream for every parameter": partial(train, noise=once_for_all_parameters),
    "uniform noise": partial(train, noise=lambda g, step, n: g.uniform(-(3**0.5), 3**0.5, n)),
    "the mean is clipped": partial(train, clip=of_mean),
    "the sum is clipped": partial(train, clip=of_sum),
    "coordinates are clipped": partial(train, clip=every_coordinate),
    "each half is clipped to the whole bound": partial(train, clip=in_halves),
    "twice the bound": partial(train, clip=lambda gradients, bound: clipped(gradients, 2 * bound)),
    "nothing is clipped": partial(train, clip=lambda gradients, bound: np.nan_to_num(gradients).sum(0)),
    "NaN is summed": partial(train, clip=without_care),
    "divided by the number drawn": partial(train, divided=lambda total, number, expected: total * expected / max(number, 1)),
    "divided by something else": partial(train, divided=lambda total, number, expected: total * 1.1),
    "no noise on an empty draw": partial(train, divided=lambda total, number, expected: total * (number > 0)),
    "a shuffle": partial(train, draw=shuffled),
    "coins that are flipped once": partial(train, draw=lambda g, step, n, q: poisson(np.random.default_rng(1), step, n, q)),
    "coins that are flipped every other step": partial(
        train, draw=lambda g, step, n, q: poisson(np.random.default_rng(step // 2), step, n, q)
    ),
    "a fixed number": partial(train, draw=lambda g, step, n, q: np.sort(g.choice(n, round(n * q), replace=False))),
    "twice as many": partial(train, draw=lambda g, step, n, q: poisson(g, step, n, min(1.0, 2 * q))),
    "neighbours together": partial(train, draw=blocks),
    "with replacement": partial(train, draw=lambda g, step, n, q: np.sort(g.integers(0, n, g.binomial(n, q)))),
}  # fmt: skip
