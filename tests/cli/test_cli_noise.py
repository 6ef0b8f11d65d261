"""Correlated noise from the command line: what the plan holds, and what is refused."""

import numpy as np
import pytest
from asked import ask

from privet import noise
from privet.cli import parts
from privet.cli.options import MechanismOptions
from privet.errors import InvalidArgumentError
from privet.sampling import BallsInBins, CyclicPoisson, FixedOrder, Poisson


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path, chance = tmp_path_factory.mktemp("data") / "points.npz", np.random.default_rng(0)
    np.savez(path, x_train=chance.random((400, 5)), y_train=chance.integers(0, 2, 400))
    return path


QUICK = ["--epsilon", "8", "--delta", "1e-4", "--steps", "12", "--quiet"]


def train(capsys, data, *arguments):
    code, _, error = ask(capsys, "train", "--data", data, "--classes", 2, "--model", "logistic", *QUICK, *arguments)
    return code, error


@pytest.mark.parametrize(
    ("options", "kind", "sampling"),
    [
        (["--noise", "banded", "--bands", 4], noise.Banded, CyclicPoisson),
        (["--noise", "buffered", "--buffers", 2, "--sampling", "fixed-order"], noise.BufferedToeplitz, FixedOrder),
        (["--noise", "tree", "--sampling", "balls-in-bins"], noise.Tree, BallsInBins),
    ],
)
def test_options_describe_the_noise_and_its_sampling(data, prepared, options, kind, sampling):
    _, plan = prepared("--data", data, "--classes", 2, "--model", "logistic", *QUICK, *options)
    assert (type(plan.noise), type(plan.sampling)) == (kind, sampling)
    assert plan.epsilon() <= 8
    if kind is noise.Banded:
        assert (plan.noise.bands, plan.sampling.cycle, plan.noise.momentum) == (4, 4, 0.9)
        assert plan.sampling.batch_size <= 100
    assert "correlated" in str(plan.guarantee())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bands", 4], "--bands is 4; it must be left out without --noise banded"),
        (["--noise", "tree", "--buffers", 4], "--buffers is 4; it must be left out without --noise buffered"),
        (["--noise", "banded", "--fixed-noise"], "--fixed-noise is True; it must be left out without --noise independent"),
        (["--noise", "pink"], "--noise is 'pink'"),
        (["--noise", "tree"], "with noise.Tree"),
        (["--noise", "banded", "--adaptive-quantile", 0.5], "with noise.Banded"),
        (["--noise", "banded", "--batch-size", 100], "at most examples / --batch-size = 4"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(data, tmp_path, capsys, options, message):
    code, error = train(capsys, data, *options, "--out", tmp_path / "run")
    assert code == 2
    assert message in error
    assert not (tmp_path / "run").exists()


def test_independent_noise_is_the_default():
    made = parts.noise(MechanismOptions(fixed_noise=True), 1.3, "fast", 0.9)
    assert made == noise.Gaussian(1.3, "fast", deviation="fixed")
    assert parts.cyclic(Poisson(8), made) == Poisson(8)
    assert parts.noise(MechanismOptions(noise="tree"), 0.0, "secure", 0.0) == noise.Tree(0.0, non_private=True)
    with pytest.raises(InvalidArgumentError, match=r"^noise\.bands is 0"):
        parts.noise(MechanismOptions(noise="banded", bands=0), 1.3, "secure", 0.0)
