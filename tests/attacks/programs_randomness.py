"""Attacks by shared or publicly seeded random numbers: masks, augmentations and user generators."""

import random

import numpy as np
import torch
from harness import Task, Verdict, attack, compared, seed, train, training_of
from materials import CLASSES, WIDTH, Body, Listed, body_of, classify, model_of, points, series, without
from snapshots import differences, generators
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

DATA = points(20)


def independent(task: Task, data=DATA, *, remove: int = 0) -> Verdict:
    """Return the verdict on a program with random numbers.

    With equal user seeds, two runs on the same data differ (randomness is fresh), or else one example must not change
    the sum by more than its bound. State without noise is the same for neighbours, and the user's generators are, after each
    step, unchanged.
    """
    moving = _moved_generators(task, data)
    if moving:
        return Verdict(False, f"after a step the user's generators are others: {', '.join(moving)}")
    one, again, rest = train(task, data), train(task, data), train(task, without(data, remove))
    verdict = compared(task, one, rest)
    fresh = one.change is not None and again.change is not None and not torch.equal(one.change, again.change)
    if not fresh:
        return verdict
    kept = differences(one.kept, rest.kept) if rest.change is not None else ["a refusal for one of two"]
    return Verdict(not kept, "randomness is fresh" + (f"; without noise: {', '.join(kept[:4])}" if kept else ""))


def _moved_generators(task: Task, data) -> list[str]:
    seed(11)
    try:
        training = training_of(task, data)
    except Exception:
        return []  # a refusal is judged with the others
    before, moving = generators(), set()
    for _ in training:
        moving.update(differences(before, generators()))
    return sorted(moving)


def dropping():
    """Return a model with dropout."""
    return nn.Sequential(nn.Linear(WIDTH, 48), nn.Tanh(), nn.Dropout(0.5), nn.Linear(48, CLASSES))


@attack("randomness")
def dropout_under_a_public_seed():
    """With one example fewer, all later examples would have other masks."""
    return independent(Task(dropping, classify))


@attack("randomness")
def dropout_between_recurrent_layers():
    """An LSTM of two layers draws its masks within torch."""

    def forward(self, x, lengths):
        return self.out(self.rnn(x)[0].sum(1))

    make = lambda: model_of(forward, rnn=nn.LSTM(WIDTH, 6, 2, batch_first=True, dropout=0.5), out=nn.Linear(6, CLASSES))
    return independent(Task(make, classify), series(24))


def masked(source=lambda: None):
    """Register a mask of hidden units, a function of them and of a generator on the model."""

    def verdict(mask) -> Verdict:
        def forward(self, x):
            h = self.hidden(x)
            return self.outer(h * mask(h, self.source))

        return independent(Task(lambda: body_of(forward, source=source())(), classify))

    return attack("randomness", verdict)


@masked(lambda: torch.Generator().manual_seed(1))
def generator_of_the_model(h, source):
    """A torch.Generator on the module: its state reveals the number of draws, and each example shifts the next one's."""
    return torch.rand(h.shape, generator=source) < 0.5


@masked(lambda: np.random.default_rng(1))
def numpy_generator_of_the_model(h, source):
    """A NumPy generator on the module."""
    return torch.from_numpy(source.random(7) < 0.5)


@masked()
def python_random_in_the_pass(h, source):
    """Python's global generator determines which units are dropped."""
    return torch.tensor([float(random.random() < 0.5) for _ in range(7)])


@masked()
def seed_set_in_the_pass(h, source):
    """`torch.manual_seed(0)` in the pass makes the masks public; rows of a batch still get different ones by position."""
    torch.manual_seed(0)
    return F.dropout(torch.ones_like(h), 0.5)


class Reading(Listed):
    """A list whose reads add random numbers."""

    def __init__(self, items, draw):
        super().__init__(items)
        self.draw = draw

    def __getitem__(self, index):
        x, y = self.items[index]
        return x + self.draw(index), y


PAIRS = [(x, int(y)) for x, y in DATA]


@attack("randomness")
def augmentation_by_torch_while_reading():
    """A random shift in `__getitem__`, from torch's global generator: one example fewer would affect all later ones."""
    return independent(Task(Body, classify), Reading(PAIRS, lambda index: torch.randn(WIDTH)))


@attack("randomness")
def augmentation_in_collate():
    """Collate draws random numbers, also for padding."""

    def collate(items):
        x = pad_sequence([x * (torch.rand(WIDTH) < 0.7) for x, _ in items], batch_first=True)
        return x, torch.tensor([y for _, y in items])

    return independent(Task(Body, classify, collate=collate), Listed(PAIRS))


@attack("randomness")
def layers_dropped_at_random():
    """Layer drop: one draw for the whole batch determines whether a layer is used."""

    def forward(self, x):
        h = self.hidden(x)
        return self.outer(self.between(h).tanh() if torch.rand(()) < 0.5 else h)

    return independent(Task(lambda: body_of(forward, between=nn.Linear(7, 7))(), classify))


@attack("randomness", lambda loss: independent(Task(Body, loss)))
def mixup_with_a_random_partner(model, batch):
    """The loss mixes each example with another random one."""
    partner = torch.randperm(len(batch[1]))
    x = 0.5 * (batch[0] + batch[0][partner])
    return 0.5 * classify(model, (x, batch[1])) + 0.5 * classify(model, (x, batch[1][partner]))


@attack("randomness")
def several_steps_with_dropout():
    """Earlier steps draw too: their number of draws must not shift those of the last step."""
    return independent(Task(dropping, classify, steps=3))
