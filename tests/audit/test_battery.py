"""`pytest -m guarantee` needs two files of the user, and a wrong model fails it."""

import contextlib
import json
import multiprocessing
import os
import sys

import pytest

from privet.audit import FAMILIES
from privet.audit._mechanism import whitebox

PLUGINS = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
OPTIONS = ["-q", "--strict-markers", *PLUGINS, "-m", "guarantee", "--certificate", "c.json"]
CONFTEST = 'pytest_plugins = ["privet.audit.plugin"]\n'
TESTS = """
import privet, pytest, torch
from torch import nn
from torch.nn import functional as F

from privet.audit.battery import *


class Centred(nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        return out - out.mean(0)


@pytest.fixture(scope="module")
def model():
    return MODEL(5, 3)


@pytest.fixture(scope="module")
def loss_fn():
    return lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")


@pytest.fixture(scope="module")
def batch():
    return torch.randn(6, 5), torch.arange(6) % 3


@pytest.fixture(scope="module")
def plan():
    return privet.Plan(
        examples=300, sampling=privet.sampling.Poisson(30), steps=50, clipping=privet.clipping.Flat(0.7), delta=1e-4,
        noise=privet.noise.Gaussian(1.7),
    )


@pytest.fixture(scope="module")
def observations():
    return 10_000


def test_of_another_kind():
    raise AssertionError("not selected")
"""


def run_pytest(folder, options):
    """Run pytest in a folder, in a process that has all libraries already, and exit with its status."""
    os.chdir(folder)
    whitebox._FEWEST_STEPS = 16
    del sys.modules["conftest"]
    with open("printed", "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        status = pytest.main([*OPTIONS, *options])
    os._exit(status)


@pytest.mark.parametrize(("module", "failing"), [("nn.Linear", []), ("Centred", list(FAMILIES))])
def test_the_users_model_is_tested(module, failing, tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_mine.py").write_text(TESTS.replace("MODEL", module), encoding="utf-8")
    options = ["-k", "test_model or of_another"] if failing else []
    process = multiprocessing.get_context("fork").Process(target=run_pytest, args=(tmp_path, options))
    process.start()
    process.join()
    printed = (tmp_path / "printed").read_text(encoding="utf-8")
    assert process.exitcode == int(bool(failing)), printed
    certificate = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert certificate["passed"] is not bool(failing)
    assert failing or certificate["mechanism"]["passed"]
    assert f"ORACLE: {'the model can be trained' if failing else 'the sum equals that of plain autograd, in float64'}" in printed
    assert "deselected" in printed
    for family in failing:
        assert f"test_model[{family}]" in printed
