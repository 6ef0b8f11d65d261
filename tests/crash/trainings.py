"""Crash trainings and print the results as JSON: `python trainings.py FOLDER CRASHES SEED`."""

import functools
import json
import os
import random
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from sabotage import KILLED, REFUSED, SABOTEURS, Score, in_child
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.runs.verification import verify
from privet.training import loop

N, STEPS = 60, 3000
PLAN = privet.Plan(
    examples=N, sampling=privet.sampling.Poisson(12), steps=STEPS, delta=1e-5, noise=privet.noise.Gaussian(2.3),
    clipping=privet.clipping.AdaptiveQuantile(privet.clipping.Flat(0.7)),
)  # fmt: skip


def train(folder: Path, saboteur: str, chance: random.Random) -> None:
    note, beside = os.write, os.open(folder / "drawn", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    real = loop.release

    def release(*arguments: object, **options: object) -> object:
        result = real(*arguments, **options)
        note(beside, b".")
        return result

    loop.release = release
    SABOTEURS[saboteur](chance, folder)
    with training(folder) as one:
        one.run()


def training(folder: Path) -> privet.Training:
    """Return the run's next session, or its first."""
    model = nn.Linear(5, 1)
    optimizer, data = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5), TensorDataset(torch.ones(N, 5))
    arguments = model, lambda net, batch: net(batch[0])[:, 0], optimizer, data
    options = {"reading": privet.Reading(probe=False), "method": "ghost"}
    storage = privet.Storage(folder / "run", checkpoint_every=3)
    ledger = folder / "run" / "ledger"
    if ledger.exists() and b"\n" in ledger.read_bytes():
        return privet.Training.resume(storage, *arguments, **options)
    return privet.Training(PLAN, *arguments, storage, **options)


def resumed(folder: Path) -> None:
    """Take one more step and close."""
    with training(folder) as one:
        if next(iter(one)).number != one.steps_spent:
            raise AssertionError("the step is not the last that counts")


def main(folder: Path, crashes: int, seed: int) -> None:
    torch.set_num_threads(1)
    torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0).zero_grad()  # what torch imports then, the forks need not
    score, excess = Score(), 0
    for number in range(crashes):
        chance, saboteur = random.Random(f"{seed} {number}"), list(SABOTEURS)[number % len(SABOTEURS)]
        place = folder / str(number // 30)
        if not place.exists():
            place.mkdir()
            excess = 0
        code = in_child(functools.partial(train, place, saboteur, chance))
        assert code in (KILLED, REFUSED), (saboteur, code)
        score.count(saboteur)
        drawn = (place / "drawn").stat().st_size
        began = (place / "run" / "ledger").exists() and b"\n" in (place / "run" / "ledger").read_bytes()
        spent = verify(place / "run").steps_spent if began else 0
        score.under_counts += spent < drawn
        score.largest_over_count = max(score.largest_over_count, spent - drawn - excess)
        score.resumed += in_child(functools.partial(resumed, place)) == 0
        with (place / "drawn").open("ab") as file:
            file.write(b".")
        excess = verify(place / "run").steps_spent - (drawn + 1)
    print(json.dumps(asdict(score)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    steps = iter(training(Path(sys.argv[1]) / "left open"))  # the program ends while this loop is open
    next(steps), next(steps)
