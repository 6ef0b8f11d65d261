"""Training in any number of processes gives what one process gives: the same draws, sums, noise and updates."""

import warnings

import pytest
import torch

from distributed.processes import run_ranks
from distributed.trainings import CASES, N, make, parameters_of
from privet.distributed.world import ALONE
from privet.errors import InvalidArgumentError

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


def train_sharded(world, folder, names):
    """Train on a data set of which rank 0 has 100 examples, and rank 1 the others."""
    warnings.simplefilter("ignore")
    world.sharded = world.size > 1
    for name in names:
        shard = range(100) if world.first else range(100, N)
        with make(name, world, shard=shard if world.sharded else None) as training:
            training.run()
            if world.first:
                torch.save(parameters_of(training), f"{folder}/{name}-{world.size}.pt")


def test_a_sharded_data_set_gives_what_the_whole_one_gives(tmp_path):
    names = ("SGD", "Shuffle", "PerExample", "different lengths")
    run_ranks(2, train_sharded, tmp_path, names)
    train_sharded(ALONE, tmp_path, names)
    for name in names:
        several, alone = (torch.load(tmp_path / f"{name}-{size}.pt") for size in (2, 1))
        assert float((several - alone).abs().max()) <= ROUNDING, name


def miscount(world, folder):
    world.sharded = True
    try:
        make("SGD", world, shard=range(100))
    except InvalidArgumentError as error:
        (folder / f"{world.rank}.txt").write_text(str(error))


def test_shards_that_are_not_the_plans_data_set_are_refused(tmp_path):
    run_ranks(2, miscount, tmp_path)
    for rank in range(2):
        assert "dataset is '100 + 100 examples on 2 ranks'" in (tmp_path / f"{rank}.txt").read_text()
