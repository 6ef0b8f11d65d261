"""Supervised fine-tuning in two processes is that of one, for examples and for users, whose examples all ranks choose alike."""

import json
import warnings
from dataclasses import replace

import pytest

pytest.importorskip("trl")
pytest.importorskip("datasets")

import torch
from test_private_sft import completions, plan, trainer, users_plan

from distributed.processes import announce, run_ranks
from privet import noise
from privet.distributed.world import ALONE

STEPS = 4
ROUNDING = 1e-6  # float32 sums in another order
CASES = {
    "examples": ({}, plan(STEPS)),
    "users": ({"user_column": "who", "user_cap": 3}, users_plan(8, steps=STEPS)),
    "some examples of a user": ({"user_column": "who", "user_cap": 2}, users_plan(8, steps=STEPS)),
}
COMPARED = ("examples", "users")  # one process chooses other examples of a user


def train(world, folder):
    """Train the cases; save the parameters, which all ranks must have alike."""
    warnings.simplefilter("ignore")
    announce(world)
    options = {"ddp_backend": "gloo"} if world.size > 1 else {}
    for name, (given, private_plan) in CASES.items():
        fixed = replace(private_plan, noise=noise.Gaussian(1.3, source="fixed"))
        mine = trainer(folder / f"{name} {world.size}", given=given, private_plan=fixed, **options)
        mine.train()
        assert type(mine.model_wrapped) is type(mine.model)
        assert mine.training.steps_spent == mine.state.global_step == STEPS
        own = torch.cat([value.detach().flatten() for value in mine.model.parameters()])
        assert all(torch.equal(own, other) for other in world.gather(own))
        if world.first:
            torch.save(own, folder / f"{name}-{world.size}.pt")


@pytest.mark.slow
def test_two_processes_fine_tune_as_one(tmp_path):
    run_ranks(2, train, tmp_path)
    train(ALONE, tmp_path)
    for name in COMPARED:
        several, alone = (torch.load(tmp_path / f"{name}-{size}.pt") for size in (2, 1))
        assert float((several - alone).abs().max()) <= ROUNDING, name


# What rank 1 does differently → its error.
REFUSALS = {
    "column": ({"given": {"user_column": "nobody", "user_cap": 3}}, "user_column is 'nobody'"),
    "ids": ({"data": completions().map(lambda row: {"who": row["who"] + 0.5})}, "ids is 'of type object'"),
}


def refuse(world, folder):
    """Let rank 1 refuse what the others accept."""
    warnings.simplefilter("ignore")
    announce(world)
    given, found = {"user_column": "who", "user_cap": 3}, {}
    for name, (change, _) in REFUSALS.items():
        options = {"given": given, "private_plan": users_plan(8, steps=STEPS), **(change if world.rank == 1 else {})}
        world.gather(name)  # all begin at once
        try:
            trainer(folder / name, ddp_backend="gloo", **options)
        except Exception as error:
            found[name] = str(error)
    (folder / f"{world.rank}.json").write_text(json.dumps(found))


@pytest.mark.slow
def test_what_one_rank_refuses_ends_the_fine_tuning_of_all(tmp_path):
    run_ranks(2, refuse, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    for name, (_, text) in REFUSALS.items():
        assert text in second[name], name
        assert first[name].startswith(f"rank 1 failed: {text}"), name
