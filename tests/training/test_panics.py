"""What one example raises ends no run, though it is no `Exception`: extensions panic, and libraries have kinds of their own."""

import asyncio

import pytest
import torch
from torch import nn

import privet


class PanicError(BaseException):
    pass


class Rows(torch.utils.data.Dataset):
    def __init__(self, where, error):
        self.x, self.where, self.error = torch.randn(24, 3), where, error

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if self.where.startswith("reading") and index == 7:
            raise self.error("of row 7")
        return self.x[index], torch.tensor(1e9 * (index == 7 and self.where == "loss"))


@pytest.mark.parametrize("error", [PanicError, asyncio.CancelledError])
@pytest.mark.parametrize("where", ["reading", "reading ahead", "loss"])
def test_a_row_that_panics_contributes_nothing(where, error):
    model = nn.Linear(3, 1)

    def loss(m, batch):
        if float(batch[1]) > 1e6:
            raise error("of row 7")
        return m(batch[0]).square().sum(1)

    plan = privet.Plan(
        examples=24, sampling=privet.sampling.FullBatch(), steps=3, clipping=privet.clipping.Flat(bound=0.2), delta=1e-3,
        noise=privet.noise.Gaussian(2.0),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reading = privet.Reading(workers=int(where == "reading ahead"))
    training = privet.Training(plan, model, loss, optimizer, Rows(where, error), reading=reading)
    try:
        training.run()
    except BaseException as found:
        pytest.fail(f"{type(found).__name__} ended the run")
    assert training.steps_spent == 3
