"""What one rank refuses or raises ends the training on all ranks, with a message that names the rank; nobody waits in vain."""

import json
import os
import re
import signal
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet
from distributed.processes import run_ranks
from privet.distributed.world import ALONE, World

N, D = 60, 5


def losses(model, batch):
    return F.mse_loss(model(batch[0])[:, 0], batch[1], reduction="none")


def doubled_losses(model, batch):
    return 2 * losses(model, batch)


class Fails(privet.Callback):
    def on_step(self, step):
        raise KeyError("of a callback")


def fail_at_three(step, rank):
    if rank == 1 and step.number == 3:
        raise ArithmeticError("of the user")


@dataclass
class Case:
    """What rank 1 does differently: arguments of the training, a callback, an error or an end in its loop."""

    change: Any = None
    callbacks: Any = ()
    body: Any = None
    stop: int | None = None
    method: str = "run"


def other_data(arguments):
    arguments["dataset"] = TensorDataset(torch.full((N, D), 0.5), torch.zeros(N))


def fewer_data(arguments):
    arguments["dataset"] = TensorDataset(torch.zeros(N - 1, D), torch.zeros(N - 1))


def other_rate(arguments):
    arguments["optimizer"] = torch.optim.SGD(arguments["model"].parameters(), lr=0.5)


def other_loss(arguments):
    arguments["loss_fn"] = doubled_losses


def other_plan(arguments):
    arguments["plan"] = make_plan(2.0)


def other_model(arguments):
    arguments["model"] = nn.Linear(D, 2)
    arguments["optimizer"] = torch.optim.SGD(arguments["model"].parameters(), lr=0.1)


def unsupported(arguments):
    arguments["model"] = nn.Sequential(nn.BatchNorm1d(D), nn.Linear(D, 1))
    arguments["optimizer"] = torch.optim.SGD(arguments["model"].parameters(), lr=0.1)


def no_world(arguments):
    arguments["world"] = ALONE


# Name → what rank 1 does, and what the message on rank 0 says.
CASES = {
    "other data": (Case(other_data), "rank 1 with other parts than rank 0.*data"),
    "fewer data": (Case(fewer_data), "rank 1 failed: dataset is .59 examples"),
    "another rate": (Case(other_rate), "rank 1 with other parts.*options.lr"),
    "another loss": (Case(other_loss), "rank 1 with other parts.*loss"),
    "another plan": (Case(other_plan), "rank 1 with other parts.*plan"),
    "another model": (Case(other_model), "rank 1 with other parts.*model.parameters"),
    "a model that is not supported": (Case(unsupported), "rank 1 failed: .*BatchNorm"),
    "an error in the loop": (Case(body=fail_at_three), "rank 0 waits for the next step, rank 1 waits for the end of its loop"),
    "an error in a callback": (Case(callbacks=[Fails()]), "rank 0 waits for the next step, rank 1 waits for the end"),
    "a loop that ends early": (Case(stop=3), "rank 0 waits for the next step, rank 1 waits for the end of its loop"),
}


def make_plan(multiplier=1.0):
    return privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(batch_size=10), steps=6, delta=1e-3, clipping=privet.clipping.Flat(1.0),
        noise=privet.noise.Gaussian(multiplier),
    )  # fmt: skip


def train(world, case):
    """Return what a rank raises, in words, and the number of steps that it took."""
    torch.manual_seed(world.rank)  # rank 0's parameters are everybody's
    model, taken = nn.Linear(D, 1), 0
    arguments = {
        "plan": make_plan(), "model": model, "loss_fn": losses, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "dataset": TensorDataset(torch.ones(N, D), torch.zeros(N)), "world": world,
    }  # fmt: skip
    if world.rank == 1 and case.change is not None:
        case.change(arguments)
    try:
        with privet.Training(**arguments) as training:
            if case.callbacks:
                training.run(callbacks=case.callbacks if world.rank == 1 else ())
            for step in training:
                taken = step.number
                if case.body is not None:
                    case.body(step, world.rank)
                if world.rank == 1 and step.number == case.stop:
                    break
    except Exception as error:
        return f"{type(error).__name__}: {error}", taken
    return "", taken


def run_cases(world, folder):
    found = {name: train(world, case) for name, (case, _) in CASES.items()}
    found["afterwards"] = train(world, Case())
    (folder / f"{world.rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def raised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals")
    run_ranks(2, run_cases, folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_what_one_rank_refuses_ends_the_training_on_all(raised, name):
    first, second = raised[0][name][0], raised[1][name][0]
    assert re.search(CASES[name][1], first), first
    assert second or name == "a loop that ends early"


def test_the_ranks_can_train_after_a_refusal(raised):
    assert raised[0]["afterwards"] == raised[1]["afterwards"] == ["", 6]


def refuse_without_world(world, folder):
    (folder / f"{world.rank}.txt").write_text(train(ALONE, Case())[0])


def test_training_without_a_world_in_several_processes_is_refused_on_every_rank(tmp_path):
    run_ranks(2, refuse_without_world, tmp_path)
    for rank in range(2):
        text = (tmp_path / f"{rank}.txt").read_text()
        assert "world is 'one process of 2'; it must be all processes of the group" in text


def interrupt_in_reduction(world, folder):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    plain, text = World.scatter, ""

    def scatter(*arguments):
        if world.first:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(*arguments)

    World.scatter = scatter
    try:
        text = train(world, Case())[0]
    except KeyboardInterrupt:
        text = "interrupted"
    (folder / f"{world.rank}.txt").write_text(text)


def test_an_interrupt_between_collectives_waits_for_their_end(tmp_path):
    """Else the interrupted rank would vote while the others wait in the reduction, until the time-out."""
    run_ranks(2, interrupt_in_reduction, tmp_path, timeout=20.0)
    texts = [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)]
    assert texts == ["interrupted", "WorldError: rank 0 failed: KeyboardInterrupt"]
