import numpy as np
import pytest

from privet.accounting.pld import transforms
from privet.accounting.pld.discrete_loss import Losses, nodes
from privet.accounting.pld.transforms import Grid, log_transforms

WHERE = nodes(2.0**-12, -0.3, 2.5)
# Circles that wind around many times, once, and hardly at all; one with a factor that no spacing shares.
PERIODS = [2.0**-4, 0.625, 5.0, 48.0]


def losses():
    masses = np.random.default_rng().dirichlet(np.ones(len(WHERE.values)), size=2) * 0.999
    return [Losses(WHERE, masses, np.full(2, 1e-3)), Losses(WHERE, masses[::-1], np.full(2, 1e-3), mirrored=True)]


@pytest.mark.parametrize("period", PERIODS)
@pytest.mark.parametrize("name", ["_MOST_PHASES", "_LARGEST_CIRCLE", "_MANY_FREQUENCIES"])
def test_a_table_a_circle_and_chirps_give_the_same(monkeypatch, period, name):
    ways, grid = losses(), Grid(1e-10, 3.0, period, 700)
    plain = log_transforms(ways, grid)
    # Each of these takes away the way that comes before the next.
    for taken in ("_MOST_PHASES", "_LARGEST_CIRCLE", "_MANY_FREQUENCIES"):
        monkeypatch.setattr(transforms, taken, 1)
        if taken == name:
            break
    other = log_transforms(ways, grid)
    np.testing.assert_array_equal(plain.log_moments, other.log_moments)
    exact, found = (np.exp(each.logs[0] + 2j * np.pi * each.logs[1]) for each in (plain, other))
    assert np.abs(exact - found).max() <= 64 * np.finfo(np.float64).eps
    assert np.abs(exact).max() == pytest.approx(1.0)
