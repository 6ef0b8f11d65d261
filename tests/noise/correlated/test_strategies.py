import itertools
import math

import numpy as np
import pytest

from privet.noise.correlated.optimisation import optimise_bands, optimise_buffers
from privet.noise.correlated.strategies import Bands, Buffers, iterates, square_root, squared_sensitivity
from privet.schedules import Linear, ToZero

# The published optimum for 10⁵ steps and the largest error (jax_privacy).
GOLDEN = Buffers((0.9999528892, 0.9857068667), (0.0122853238, 0.1878393665))


def matrix(strategy, steps):
    column = strategy.column(steps)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])


def prefix_errors(strategy, steps):
    return np.cumsum(strategy.solve(np.ones(steps)) ** 2)


def root_mean_square(strategy, steps, reduce=np.mean):
    """Return the error of prefix sums at sensitivity 1, if every example takes part once."""
    return math.sqrt(reduce(prefix_errors(strategy, steps)) * squared_sensitivity(strategy.column(steps), steps, 1))


@pytest.mark.parametrize(
    "strategy", [Bands((1.0, 0.5, 0.2)), Bands((0.5, 0.4, 0.1, 0.3)), Buffers((0.9, 0.3), (0.2, 0.5))], ids=str
)
def test_forms_are_the_matrix_that_they_stand_for(strategy):
    whole, numbers = matrix(strategy, 30), np.random.default_rng(0).standard_normal((4, 30))
    assert np.diag(whole) == pytest.approx(1.0)
    np.testing.assert_allclose(strategy.solve(numbers) @ whole.T, numbers, atol=1e-12)


def test_columns_of_buffers_are_sums_of_powers_also_in_blocks_and_the_square_root_is_that_of_prefix_sums():
    expected = [1.0] + [0.2 * 0.9**k + 0.5 * 0.3**k for k in range(70_000 - 1)]
    np.testing.assert_allclose(Buffers((0.9, 0.3), (0.2, 0.5)).column(70_000), expected, rtol=1e-12)
    root = matrix(Bands(tuple(square_root(8))), 8)
    np.testing.assert_allclose(root @ root, np.tri(8), atol=1e-14)
    inverse = Bands(tuple(square_root(5))).solve(np.eye(1, 5)[0])
    np.testing.assert_allclose(inverse, [1, -1 / 2, -1 / 8, -1 / 16, -5 / 128], rtol=1e-9)


@pytest.mark.parametrize(("steps", "separation", "times", "bands"), [(8, 2, 3, 3), (9, 3, 3, 5), (7, 1, 4, 7), (10, 4, 2, 4)])
def test_the_sensitivity_is_that_of_the_worst_pattern(steps, separation, times, bands):
    column = np.zeros(steps)
    column[:bands] = np.sort(np.random.default_rng(bands).random(bands))[::-1]
    whole, worst = matrix(Bands(tuple(column / column[0])), steps) * column[0], 0.0
    for number in range(1, times + 1):
        for chosen in itertools.combinations(range(steps), number):
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(chosen)):
                worst = max(worst, float((whole[:, chosen].sum(1) ** 2).sum()))
    assert squared_sensitivity(column, separation, times) == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_no_gradients_of_an_example_move_the_mechanism_further(seed):
    """Also for columns that grow or are negative, where the bound is that of a majorant, and for gradients that differ."""
    chance = np.random.default_rng(seed)
    column = chance.standard_normal(12) * (chance.random(12) < 0.7)
    column[0] = abs(column[0]) + 0.1
    separation, times = int(chance.integers(1, 6)), int(chance.integers(1, 4))
    bound = squared_sensitivity(column, separation, times)
    whole = matrix(Bands(tuple(column)), 12) * column[0]
    for _ in range(200):
        gradients, step = np.zeros((12, 3)), int(chance.integers(0, 5))
        for _ in range(times):
            if step < 12:
                direction = chance.standard_normal(3)
                gradients[step] = direction / np.linalg.norm(direction)
            step += separation + int(chance.integers(0, 3))
        assert ((whole @ gradients) ** 2).sum() <= bound * (1 + 1e-12)


def test_published_sensitivities():
    assert squared_sensitivity(np.r_[1, 0.5, 0.25, np.zeros(7)], 3, 3) == 3.9375
    assert squared_sensitivity(square_root(64), 8, 8) == pytest.approx(50.155851433973446, rel=1e-13)
    expected = {1: 3.48567846, 2: 9.72840569, 5: 40.86222817, 20: 295.51585750}
    found = {times: squared_sensitivity(square_root(2000), 100, times) for times in expected}
    assert found == pytest.approx(expected, rel=1e-9)
    column = Bands((1.0, 0.2, 0.9)).column(40)  # what does not overlap adds up: a majorant of it would cost more
    assert squared_sensitivity(column, 3, 5) == pytest.approx(5 * 1.85, rel=1e-12)
    assert squared_sensitivity(column, 2, 5) > 5 * 1.85


def test_leaving_out_entries_never_raises_the_sensitivity():
    """A mechanism that starts afresh at any step is one with fewer entries: what a crash relies on."""
    column = square_root(30)
    whole = matrix(Bands(tuple(column)), 30)
    bound = squared_sensitivity(column, 5, 6)
    for start in range(1, 30):
        parted = whole.copy()
        parted[start:, :start] = 0
        assert (parted[:, ::5].sum(1) ** 2).sum() <= bound + 1e-12
    for start in (5, 10, 25):  # and with a new order from an epoch on
        both = sum(squared_sensitivity(column[:steps], 5, math.ceil(steps / 5)) for steps in (start, 30 - start))
        assert both <= bound + 1e-12


@pytest.mark.parametrize("schedule", [Linear(), ToZero()], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_iterates_are_those_of_heavy_ball(momentum, schedule):
    strategy, rates = Bands((1.0, 0.4, 0.3)), schedule.factors(20)
    steps = np.array([[rates[s] * momentum ** (s - r) if r <= s else 0.0 for r in range(20)] for s in range(20)])
    expected = ((np.tri(20) @ steps @ np.linalg.inv(matrix(strategy, 20))) ** 2).sum(1)
    assert iterates(20, momentum, rates).error(strategy) == pytest.approx(expected.mean(), rel=1e-10)
    assert iterates(20, momentum, rates, last=True).error(strategy) == pytest.approx(expected[-1], rel=1e-10)
    constant = ((np.tri(20) @ (steps / rates[:, None]) @ np.linalg.inv(matrix(strategy, 20))) ** 2).sum(1)
    assert iterates(20, momentum).error(strategy) == pytest.approx(constant.mean(), rel=1e-10)


def test_published_largest_errors():
    assert root_mean_square(Bands((1.0,)), 1000, np.max) == pytest.approx(31.6228, abs=1e-4)
    assert root_mean_square(Bands(tuple(square_root(1000))), 1000, np.max) == pytest.approx(3.26500308, rel=1e-8)
    assert root_mean_square(GOLDEN, 100_000, np.max) == pytest.approx(5.29674715, abs=1e-8)


# bands → mean error of the square root, cut off, and of the optimum
ERRORS = {
    1: (22.3719, 22.3719), 2: (16.6916, 15.9203), 4: (12.5215, 11.4310), 8: (9.4262, 8.3516), 16: (7.1374, 6.2782),
    32: (5.4805, 4.9107),
}  # fmt: skip


@pytest.mark.parametrize("bands", ERRORS)
def test_optimised_bands(bands):
    cut, optimum = ERRORS[bands]
    assert root_mean_square(Bands(tuple(square_root(bands))), 1000) == pytest.approx(cut, abs=1e-4)
    found = Bands(optimise_bands(bands, iterates(1000), bands, 1))
    assert root_mean_square(found, 1000) == pytest.approx(optimum, abs=1e-4)
    assert np.linalg.norm(found.coefficients) == pytest.approx(1.0)
    assert min(found.coefficients) >= 0
    if bands == 4:
        assert found.coefficients == pytest.approx((0.58701834, 0.50351335, 0.46818747, 0.42741580), abs=1e-5)


@pytest.mark.parametrize(("separation", "times"), [(8, 1), (3, 4), (1, 2)])
@pytest.mark.parametrize("workload", [iterates(60), iterates(60, 0.9, ToZero().factors(60))], ids=["sums", "heavy ball"])
def test_optima_are_optima(workload, separation, times):
    """Coefficients nearby are no better, whether or not columns overlap."""
    found = np.array(optimise_bands(6, workload, separation, times))

    def loss(coefficients):
        strategy = Bands(tuple(coefficients))
        squares = squared_sensitivity(strategy.column(60), separation, times)
        return workload.error(strategy) * squares

    chance, best = np.random.default_rng(1), loss(found)
    for size in (1e-3, 1e-2, 0.1):
        for _ in range(20):
            assert loss(np.sort(np.abs(found + size * chance.standard_normal(6) * found))[::-1]) >= best * (1 - 1e-5)


def test_optimised_buffers_are_as_good_as_published_ones():
    found = Buffers(*map(tuple, optimise_buffers(2, iterates(10_000, last=True), 10_000, 1)))
    assert root_mean_square(found, 10_000, np.max) <= root_mean_square(GOLDEN, 10_000, np.max)
    assert root_mean_square(found, 10_000, np.max) <= 1.1 * root_mean_square(Bands(tuple(square_root(10_000))), 10_000, np.max)


@pytest.mark.parametrize(("separation", "times"), [(2000, 1), (100, 20)])
def test_more_buffers_are_better_and_several_epochs_are_taken_into_account(separation, times):
    def error(strategy):
        return math.sqrt(iterates(2000).error(strategy) * squared_sensitivity(strategy.column(2000), separation, times))

    found = [Buffers(*map(tuple, optimise_buffers(m, iterates(2000), separation, times))) for m in (1, 2, 3)]
    errors = [error(strategy) for strategy in found]
    assert errors[0] > errors[1] * 1.01 > errors[2]
    assert errors[2] < 0.25 * error(Bands((1.0,)))
    for strategy in found:
        assert strategy.column(2000)[1] <= 1 + 1e-9  # it decreases, so its sensitivity is exact
