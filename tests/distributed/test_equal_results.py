"""Training in any number of processes gives what one process gives: the same draws, sums, noise and updates."""

import warnings

import pytest
import torch

from distributed.processes import run_ranks
from distributed.trainings import CASES, make, parameters_of
from privet.distributed.world import ALONE

# In the quick tests: each kind of sum, of draw, of noise and of state once.
QUICK = (
    "AdamW, average, scheduler", "empty ranks", "adaptive layerwise", "projected", "ranked masks", "InnerOuter", "users",
    "BallsInBins", "banded noise", "augmented", "raising", "counted rows", "bfloat16",
)  # fmt: skip
ROUNDING = 1e-6  # float32 sums in another order, over some steps of small updates


def train_all(world, folder, names):
    """Train the cases; save parameters, whether all ranks have the same, and the number of steps that count."""
    warnings.simplefilter("ignore")
    found = {}
    for name in names:
        with make(name, world) as training:
            training.run()
            own = parameters_of(training)
            same = all(torch.equal(own, other) for other in world.gather(own))
            found[name] = own, same, training.steps_spent
    if world.first:
        torch.save(found, f"{folder}/{world.size}.pt")


def compare(folder, sizes, names):
    for size in sizes:
        run_ranks(size, train_all, folder, names)
    train_all(ALONE, folder, names)
    alone = torch.load(folder / "1.pt")
    for size in sizes:
        several = torch.load(folder / f"{size}.pt")
        for name in names:
            parameters, same, spent = several[name]
            assert same, f"{name}: {size} ranks have different parameters"
            assert spent == alone[name][2]
            difference = float((parameters - alone[name][0]).abs().max())
            assert difference <= ROUNDING, f"{name}: {size} processes are {difference} from one"


def test_two_processes_give_the_parameters_of_one(tmp_path):
    compare(tmp_path, (2,), QUICK)


@pytest.mark.slow
def test_processes_give_the_parameters_of_one_for_everything_that_a_plan_can_say(tmp_path):
    compare(tmp_path, (2, 3), tuple(CASES))


def test_the_comparison_tells_other_draws_and_noise():
    """Without it, equal parameters would say little: other random numbers change them by a thousand times the rounding."""
    found = []
    for source in ("fixed", "secure"):
        with make("SGD", ALONE, source=source) as training:
            training.run()
            found.append(parameters_of(training))
    assert float((found[0] - found[1]).abs().max()) >= 1000 * ROUNDING
