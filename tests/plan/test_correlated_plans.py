import math
from dataclasses import replace

import numpy as np
import pytest

import privet
from plans import plan
from privet import accounting, clipping, momentum, noise, schedules, sparsification
from privet.errors import InvalidArgumentError
from privet.optim import SGLD
from privet.sampling import BallsInBins, CyclicPoisson, FixedOrder, FixedSize, FullBatch, Poisson, Shuffle, TruncatedPoisson

CYCLIC = {"sampling": CyclicPoisson(512, cycle=8), "noise": noise.Banded(2.3)}
FIXED = {"sampling": FixedOrder(512), "noise": noise.BufferedToeplitz(2, multiplier=2.3)}
TREE = {"sampling": BallsInBins(512), "noise": noise.Tree(2.3)}
EVERY = pytest.mark.parametrize("fields", [CYCLIC, FIXED, TREE], ids=["cyclic", "fixed order", "tree"])


def test_coefficients_are_those_of_the_number_of_steps():
    assert plan(**CYCLIC).noise.coefficients != plan(**CYCLIC, steps=3000).noise.coefficients
    assert plan(**CYCLIC, steps=3).noise.coefficients[3:] == (0.0,) * 5
    given = noise.Banded(2.3, bands=2, coefficients=(1, 0.5))
    assert plan(**{**CYCLIC, "noise": given}).noise == given


def test_momentum_and_learning_rate_change_the_coefficients():
    heavy = noise.Banded(2.3, momentum=0.9, learning_rate=schedules.ToZero())
    made = plan(**{**CYCLIC, "noise": heavy})
    assert made.noise.coefficients != plan(**CYCLIC).noise.coefficients
    assert privet.Plan.from_json(made.to_json()) == made


def test_bands_are_poisson_releases_of_cycles():
    made = plan(**CYCLIC, steps=301)
    assert made.events() == (accounting.Event(8 * 512 / 60_000, 2.3, 38),)
    assert made.events(9) == (accounting.Event(8 * 512 / 60_000, 2.3, 2),)
    assert made.events(0) == ()
    assert made.divisor == 512
    norm = np.linalg.norm(made.noise.coefficients) / made.noise.coefficients[0]
    assert made.multipliers() == pytest.approx(np.full(301, 2.3 * norm))


def test_a_fixed_order_is_one_release():
    made = plan(**FIXED, steps=300)  # 118 steps an epoch: three
    assert made.events() == (accounting.Event(1.0, 2.3, 1),)
    earlier = [made.events(steps)[0].noise_multiplier for steps in (1, 117, 118, 119, 236, 299)]
    assert earlier == sorted(earlier, reverse=True)
    assert earlier[-1] >= 2.3
    assert earlier[0] == pytest.approx(made.multipliers()[0])  # the first step is one Gaussian release


def test_bands_in_a_fixed_order_are_as_many_releases_as_epochs():
    made = plan(**{**FIXED, "noise": noise.Banded(2.3)}, steps=300)
    norm = np.linalg.norm(made.noise.coefficients) / made.noise.coefficients[0]
    assert made.multipliers()[0] == pytest.approx(2.3 * math.sqrt(3) * norm)
    assert made.epsilon() == plan(sampling=FullBatch(), steps=3, noise=noise.Gaussian(2.3 * math.sqrt(3))).epsilon()


def test_a_tree_is_one_release_per_epoch():
    made = plan(**TREE, steps=300)
    assert made.events() == (accounting.Event(1.0, 2.3, 3),)  # and not the amplified events of BallsInBins
    assert made.multipliers()[0] == pytest.approx(2.3 * math.sqrt(7))  # an epoch of 118 steps has seven levels
    assert plan(**TREE, steps=30).multipliers()[0] == pytest.approx(2.3 * math.sqrt(5))


@EVERY
def test_plans_are_calibrated(fields):
    unknown = fields["noise"].__class__()
    made = plan(**{**fields, "noise": unknown}).calibrate(3.0)
    assert 2.99 < made.epsilon() <= 3.0
    assert made.epsilon(steps=100) < made.epsilon()
    assert made.guarantee().epsilon == made.epsilon()


def test_steps_are_solved_for_where_they_cost():
    for fields in (CYCLIC, TREE):
        made = plan(**{**fields, "steps": None}).calibrate(2.0)
        assert made.epsilon() <= 2.0
        assert made.noise == fields["noise"].fit(made.sampling.pattern(60_000, made.steps), "")
    for found in (FIXED, {**FIXED, "noise": noise.Banded(2.3)}):
        with pytest.raises(InvalidArgumentError, match=r"^steps is None; it must be a number"):
            plan(**{**found, "steps": None})


# bands → multiplier and mean error of prefix sums in units of the bound, at ε = 4
TRADE = {1: (0.8708, 27.54), 2: (1.0554, 23.70), 16: (2.3658, 20.19)}


@pytest.mark.parametrize("bands", TRADE)
def test_bands_trade_amplification_for_cancellation(bands):
    from privet.noise.correlated.strategies import iterates

    made = plan(
        examples=50_000, sampling=CyclicPoisson(500, cycle=bands), steps=2000, delta=1e-6, noise=noise.Banded(bands=bands)
    ).calibrate(4.0)
    multiplier, error = TRADE[bands]
    assert made.noise_multiplier == pytest.approx(multiplier, abs=1e-4)
    assert made.multipliers()[0] * math.sqrt(iterates(2000).error(made.noise.strategy)) == pytest.approx(error, abs=0.01)
    if bands == 2:  # the square root of the prefix sums, cut off, is worse
        cut = replace(made, noise=noise.Banded(multiplier, bands=2, coefficients=(1.0, 0.5)))
        assert cut.multipliers()[0] * math.sqrt(iterates(2000).error(cut.noise.strategy)) == pytest.approx(24.90, abs=0.01)


def test_deviations_are_those_of_the_steps():
    made = plan(**CYCLIC, clipping=clipping.Flat(0.7))
    fresh = made.multipliers()[0] * 0.7 / 512
    assert made.gradient_deviations()[0] == pytest.approx(fresh)
    assert made.gradient_deviations()[-1] > 1.2 * fresh
    assert made.accumulated_noise() < 0.8 * np.linalg.norm(plan(sampling=Poisson(512), noise=noise.Gaussian(2.3)).multipliers())


def test_the_statement_says_how_noise_is_made_and_sampled():
    text = str(plan(**CYCLIC).guarantee())
    assert "correlated over 8 steps" in text
    assert "joins each step of its group independently" in text
    assert "standard deviation 2.3 times that bound" not in text
    assert "joins one step of every epoch" in plan(**TREE).guarantee().assumed
    assert "always the same" in plan(**FIXED).guarantee().assumed


MISFITS = [
    ({"clipping": clipping.AdaptiveQuantile(clipping.Flat(1.0))}, "clipping"),
    ({"clipping": clipping.Projected(clipping.Flat(1.0), 50)}, "clipping"),
    ({"sparsification": sparsification.Random(0.5)}, "sparsification"),
    ({"sparsification": sparsification.Ranked(0.5)}, "sparsification"),
    ({"bound_schedule": schedules.Linear()}, "bound_schedule"),
    ({"sampling": Poisson(512)}, "sampling"),
    ({"sampling": TruncatedPoisson(512, 700)}, "sampling"),
    ({"sampling": FixedSize(512), "adjacency": "replace-one"}, "sampling"),
]


@EVERY
def test_what_does_not_go_with_correlated_noise_is_refused(fields):
    assert plan(**fields, momentum=momentum.InnerOuter(0.9, 0.1, 2)).events() == plan(**fields).events()
    for changes, argument in MISFITS:
        with pytest.raises(InvalidArgumentError, match=rf"^{argument} is "):
            plan(**{**fields, **changes})


@pytest.mark.parametrize(("fields", "argument"), [
    ({"sampling": CyclicPoisson(512, cycle=7), "noise": noise.Banded(2.3)}, "noise.bands"),
    ({"sampling": CyclicPoisson(512, cycle=8), "noise": noise.BufferedToeplitz(2)}, "sampling"),
    ({"sampling": CyclicPoisson(512, cycle=8), "noise": noise.Tree()}, "sampling"),
    ({"sampling": CyclicPoisson(512, cycle=200), "noise": noise.Banded(2.3)}, "sampling.cycle"),
    ({**FIXED, "steps": 2**20 + 1}, "steps"),
    ({"sampling": Shuffle(512), "noise": noise.Tree(2.3)}, "adjacency"),
    ({**CYCLIC, "noise": noise.Banded(2.3, bands=3, coefficients=(1, 2, 4))}, "noise"),  # its inverse explodes
    ({"sampling": CyclicPoisson(512, cycle=8), "noise": noise.Gaussian(2.3), "steps": 301}, None),
])  # fmt: skip
def test_combinations_without_a_proof_are_refused(fields, argument):
    if argument is None:
        assert plan(**fields).events() == (accounting.Event(8 * 512 / 60_000, 2.3, 38),)
        return
    with pytest.raises(InvalidArgumentError, match=rf"^{argument} is "):
        plan(**fields)


@pytest.mark.parametrize(("make", "argument"), [
    (lambda: noise.Banded(bands=0), "noise.bands"),
    (lambda: noise.Banded(bands=2000), "noise.bands"),
    (lambda: noise.Banded(bands=2, coefficients=(1.0,)), "noise.coefficients"),
    (lambda: noise.Banded(bands=2, coefficients=(1.0, -0.1)), "noise.coefficients"),
    (lambda: noise.Banded(bands=2, coefficients=(0.0, 1.0)), "noise.coefficients"),
    (lambda: noise.Banded(bands=2, coefficients=(1.0, math.nan)), "noise.coefficients"),
    (lambda: noise.Banded(bands=2, coefficients="ab"), "noise.coefficients"),
    (lambda: noise.Banded(momentum=1.0), "noise.momentum"),
    (lambda: noise.Banded(learning_rate=0.1), "noise.learning_rate"),
    (lambda: noise.Banded(0.0), "noise.multiplier"),
    (lambda: noise.Banded(source="mine"), "noise.source"),
    (lambda: noise.BufferedToeplitz(0), "noise.buffers"),
    (lambda: noise.BufferedToeplitz(17), "noise.buffers"),
    (lambda: noise.BufferedToeplitz(1, decays=(0.5,)), "noise.scales"),
    (lambda: noise.BufferedToeplitz(1, decays=(1.0,), scales=(0.5,)), "noise.decays"),
    (lambda: noise.BufferedToeplitz(2, decays=(0.5,), scales=(0.5,)), "noise.decays"),
])  # fmt: skip
def test_arguments_out_of_range_are_refused(make, argument):
    with pytest.raises(InvalidArgumentError, match=rf"^{argument} is "):
        make()


def test_langevin_dynamics_need_independent_noise():
    import torch

    sampler = SGLD([torch.nn.Parameter(torch.zeros(2))], lr=0.1, examples=60_000)
    with pytest.raises(InvalidArgumentError, match=r"^noise is "):
        sampler.check(plan(**CYCLIC))
