"""Training of models under FSDP2 gives what one process gives, by module and with the whole model gathered."""

import warnings

import pytest
import torch

from distributed.processes import run_ranks
from distributed.sharded_trainings import CASES, make, whole
from privet.distributed.world import ALONE

QUICK = (
    "AdamW, scheduler", "adaptive", "empty ranks", "tied", "recomputed outside", "frozen", "lengths", "raising", "derived", "LoRA",
    "outside",
)  # fmt: skip
ROUNDING = 1e-6  # float32 sums in another order, over some steps of small updates


def train_all(world, folder, names, gathered):
    """Train the cases; save parameters, how they were summed, and the number of steps that count."""
    warnings.simplefilter("ignore")
    world.gathered, found = gathered, {}
    for name in names:
        with make(name, world) as training:
            training.run()
            assert all(each.grad is None for each in training.model.parameters())
            sums = getattr(training, "_sums", None)
            way = "alone" if sums is None else "by module" if sums.passes is not None else "gathered"
            found[name] = whole(training.model), way, training.steps_spent
    if world.first:
        torch.save(found, f"{folder}/{world.size}-{gathered}.pt")


def compare(folder, sizes, names):
    train_all(ALONE, folder, names, False)
    alone = torch.load(folder / "1-False.pt")
    worst = {}
    for size in sizes:
        for gathered in (False, True):
            run_ranks(size, train_all, folder, names, gathered)
            several = torch.load(folder / f"{size}-{gathered}.pt")
            for name in names:
                parameters, way, spent = several[name]
                assert way == ("gathered" if gathered else CASES[name].way), name
                assert spent == alone[name][2]
                worst[name, size, way] = float((parameters - alone[name][0]).abs().max())
    assert max(worst.values()) <= ROUNDING, {case: error for case, error in worst.items() if error > ROUNDING}


def test_two_ranks_with_shards_give_the_parameters_of_one_process(tmp_path):
    compare(tmp_path, (2,), QUICK)


@pytest.mark.slow
def test_ranks_with_shards_give_the_parameters_of_one_process_for_every_kind_of_model(tmp_path):
    compare(tmp_path, (2, 3), tuple(CASES))
