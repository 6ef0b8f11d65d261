"""Training in any number of processes gives what one process gives: the same draws, sums, noise and updates."""

import warnings

import pytest
import torch

from distributed.processes import run_ranks
from distributed.trainings import CASES, make, parameters_of

pytestmark = pytest.mark.xdist_group("ranks")


def train_all(world, folder, names):
    warnings.simplefilter("ignore")
    found = {}
    for name in names:
        training = make(name, world)
        training.run()
        own = parameters_of(training)
        same = all(torch.equal(own, other) for other in world.gather(own))
        found[name] = own, same, training.steps_spent
        training.close()
    if world.first:
        torch.save(found, f"{folder}/{world.size}.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for size in (1, 2, 3):
        run_ranks(size, train_all, folder, list(CASES))
    return {size: torch.load(folder / f"{size}.pt") for size in (1, 2, 3)}
