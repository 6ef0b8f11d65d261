import math

import pytest
import torch
from scipy import stats
from torch import nn

from privet.errors import InvalidArgumentError
from privet.tuning import Setting, diagonal

BASE = Setting(learning_rate=0.4, bound=0.3, momentum=0.6, noise_multiplier=1.7)


def test_every_combination_has_the_noise_of_the_base():
    found = diagonal(BASE, bounds=(0.1, 0.3, 3.0), momenta=(0.0, 0.9), noise_multipliers=(0.8, 1.7))
    assert len(set(found)) == 12
    assert {round(setting.noise / BASE.noise, 12) for setting in found} == {1.0}
    assert diagonal(BASE) == (BASE,)


def test_for_adam_learning_rate_and_bound_are_independent():
    found = diagonal(BASE, bounds=(0.1, 3.0), optimizer="adam")
    assert [(setting.learning_rate, setting.bound) for setting in found] == [(0.4, 0.1), (0.4, 3.0)]


def test_the_noise_in_the_parameters_is_measured_to_be_the_same(holds_twice):
    """Pure noise through torch's own SGD: the variance of the parameters is steps · (ησC/(1−µ))², when the start is forgotten."""
    width, steps = 4000, 300

    def experiment():
        found = {}
        for setting in diagonal(BASE, bounds=(0.05, 2.0), momenta=(0.0, 0.8)):
            weight = nn.Parameter(torch.zeros(width, dtype=torch.float64))
            sgd = torch.optim.SGD([weight], lr=setting.learning_rate, momentum=setting.momentum)
            for _ in range(steps):
                weight.grad = setting.noise_multiplier * setting.bound * torch.randn(width, dtype=torch.float64)
                sgd.step()
            # What the first and last few steps have not passed on yet: Σ(1 − µⁿ)² instead of the number of steps.
            share = sum((1 - setting.momentum**n) ** 2 for n in range(1, steps + 1))
            statistic = weight.detach().square().sum().item() / (BASE.noise**2 * share)
            found[str(setting)] = 2 * min(stats.chi2.sf(statistic, width), stats.chi2.cdf(statistic, width))
            assert share == pytest.approx(steps, rel=0.05)
        return found

    holds_twice(experiment)


@pytest.mark.parametrize(("name", "values"), [
    ("learning_rate", (0.0, 1.0)), ("bound", (0.1, -1.0)), ("momentum", (0.1, 1.0, 1.0)), ("momentum", (0.1, 1.0, -0.1)),
    ("noise_multiplier", (0.1, 1.0, 0.9, math.inf)),
])  # fmt: skip
def test_settings_out_of_range_are_refused(name, values):
    with pytest.raises(InvalidArgumentError, match=name):
        Setting(*values)


def test_unknown_optimizers_are_refused():
    with pytest.raises(InvalidArgumentError, match="optimizer"):
        diagonal(BASE, optimizer="lbfgs")
