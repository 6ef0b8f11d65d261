"""Discretisation on nodes is pessimistic and preserves the masses of P and Q."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting.pld.discrete_loss import connect_dots, nodes, regrid


def hockey_stick(losses, masses, epsilon):
    return float(np.sum(masses * -np.expm1(np.minimum(epsilon - losses, 0.0))))


def uneven(seed, start, number=31):
    return 0.07 * start + np.cumsum(np.random.default_rng(seed).uniform(0.01, 0.2, number))


def cells(seed, ends):
    """Return random masses of P and Q in cells, whose ratios are within the cells' losses."""
    generator, number = np.random.default_rng(seed), len(ends) - 1
    p = generator.dirichlet(np.ones(number))
    inside = ends[:-1] + np.diff(ends) * generator.uniform(0, 1, number)
    return inside, p, p * np.exp(-inside)


@given(seed=st.integers(0, 10**6), start=st.integers(-40, 20))
def test_connected_masses_keep_p_and_q_and_dominate(seed, start):
    ends = uneven(seed, start)
    inside, p, q = cells(seed, ends)
    masses = connect_dots(ends, p, q, np.zeros_like(p), np.zeros_like(p))
    assert masses.min() >= 0
    assert masses.sum() == pytest.approx(1, rel=1e-12)
    assert np.sum(masses * np.exp(-ends)) == pytest.approx(q.sum(), rel=1e-10)
    for epsilon in ends:  # exact on the nodes, where a straight line in e^ε meets the curve
        assert hockey_stick(ends, masses, epsilon) == pytest.approx(hockey_stick(inside, p, epsilon), abs=1e-12)
    for epsilon in np.linspace(ends[0] - 0.1, ends[-1], 77):
        assert hockey_stick(ends, masses, epsilon) >= hockey_stick(inside, p, epsilon) - 1e-13


@pytest.mark.parametrize("start", [-12_000, 9_000, 11_000])
def test_masses_out_of_floating_point_range_move_up(start):
    ends, p = 0.07 * np.arange(start, start + 11.0), np.full(10, 0.1)
    q = p * np.exp(-ends[:-1] - 0.035) if start > -10_000 else np.full(10, 1e300)
    masses = connect_dots(ends, p, q, np.zeros(10), np.zeros(10))
    assert np.isfinite(masses).all()
    assert masses.sum() == pytest.approx(1)
    if start > 10_000:
        assert masses[0] == 0


@given(seed=st.integers(0, 10**6))
def test_what_rounding_may_have_hidden_moves_up(seed):
    ends = uneven(seed, 3)
    _, p, q = cells(seed, ends)
    plain = connect_dots(ends, p, q, np.zeros_like(p), np.zeros_like(p))
    wary = connect_dots(ends, p, q, 1e-3 * p, 1e-3 * q)
    assert wary.min() >= 0
    assert wary.sum() == pytest.approx(plain.sum())
    assert (np.cumsum(wary)[:-1] <= np.cumsum(plain)[:-1] + 1e-15).all()
    assert (np.cumsum(wary)[:-1] < np.cumsum(plain)[:-1] - 1e-9).any()


@given(seed=st.integers(0, 10**6), power=st.integers(-8, -1))
@settings(max_examples=50)
def test_any_losses_come_to_nodes_with_p_and_q_kept(seed, power):
    generator = np.random.default_rng(seed)
    values, masses = generator.normal(1.3, 2.0, 50), generator.dirichlet(np.ones(50)) * 0.9
    found = regrid(values, masses, 0.1, 2.0**power)
    assert found.infinite.tolist() == [0.1]
    assert found.masses.shape == (1, len(found.values))
    assert found.masses.min() >= 0
    assert found.masses.sum() == pytest.approx(0.9)
    assert np.sum(found.masses * np.exp(-found.values)) == pytest.approx(np.sum(masses * np.exp(-values)), rel=1e-9)
    for epsilon in np.linspace(-3, 5, 40):
        assert hockey_stick(found.values, found.masses[0], epsilon) >= hockey_stick(values, masses, epsilon) - 1e-13


# Of numbers below the smallest normal one, a number of widths may be zero.
normal = st.floats(0.0, 900.0, allow_subnormal=False)


@given(power=st.integers(-30, -2), low=normal, high=normal)
@settings(max_examples=60)
def test_nodes_are_dense_at_zero_and_sparser_outwards(power, low, high):
    width = 2.0**power
    grid = nodes(width, -low, high)
    values, distances = grid.values, np.diff(grid.values)
    assert 0.0 in values
    assert values[0] <= -low
    assert values[-1] >= high
    assert (distances > 0).all()
    away = np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    assert (distances <= np.maximum(width, away / 64)).all()
    assert (distances >= width).all()
    assert distances.max() <= max(grid.widest, width)
    assert len(values) <= 2**14 + 600 + 2 * 130 * 40
    np.testing.assert_array_equal(values / width, np.rint(values / width))


@given(power=st.integers(-20, -3), low=st.floats(0.0, 30.0), high=st.floats(0.0, 30.0))
@settings(max_examples=40)
def test_coarser_nodes_are_some_of_the_finer_ones(power, low, high):
    """So that a coarser grid never has the smaller ε."""
    fine, coarse = nodes(2.0**power, -low, high), nodes(2.0 ** (power + 1), -low, high)
    inside = coarse.values[(coarse.values >= fine.low) & (coarse.values <= fine.high)]
    assert np.isin(inside, fine.values).all()
