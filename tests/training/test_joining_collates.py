"""Collate functions that join items along no common dimension: ids with offsets. Graphs: test_torch_geometric.py."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import one_layer
import privet
from privet import Reading
from privet.errors import PrivetError

N, BOUND, SIGMA = 16, 10.0, 1e-3  # no gradient is as long as the bound, and the noise is small


def bag(index):
    return torch.randint(50, (2 + index % 3,), generator=torch.Generator().manual_seed(index)), index % 3


def join(items):
    ids, labels = zip(*items, strict=True)
    return torch.cat(ids), torch.tensor([0, *map(len, ids[:-1])]).cumsum(0), torch.tensor(labels)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(50, 8), nn.Linear(8, 3)

    def forward(self, batch):
        return self.head(self.table(batch[0], batch[1])), batch[2]


def loss(model, batch):
    return F.cross_entropy(*model(batch), reduction="none")


def centred(model, batch):
    scores, labels = model(batch)
    return F.cross_entropy(scores - scores.mean(0), labels, reduction="none") + scores.sum(1)


DATA = [bag(index) for index in range(N)]
READINGS = {
    "the shapes of real items": Reading(),
    "a made-up item": Reading(spec=bag(0)),
    "a public batch of one": Reading(probe_batch=join(DATA[:1])),
}


def make(reading, loss=loss):
    torch.manual_seed(0)
    full = {"sampling": privet.sampling.FullBatch(), "clipping": privet.clipping.Flat(bound=BOUND)}
    plan, model = one_layer.plan(steps=1, multiplier=SIGMA, examples=N, **full), Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return privet.Training(plan, model, loss, optimizer, DATA, collate=join, reading=reading)


@pytest.mark.parametrize("reading", READINGS)
def test_they_are_checked_and_trained_as_they_are(reading):
    """A step is that of plain autograd on the joined batch."""
    training = make(READINGS[reading])
    assert training.method == "ghost"
    model = training.model
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = torch.autograd.grad(loss(model, join(DATA)).mean(), list(model.parameters()))
    training.run()
    for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(p.detach(), before[name] - gradient, atol=10 * SIGMA * BOUND / N, rtol=0)


@pytest.mark.parametrize("reading", list(READINGS)[:2])
def test_a_loss_that_compares_the_joined_examples_is_refused(reading):
    with pytest.raises(PrivetError, match="changes with its neighbours in the batch"):
        make(READINGS[reading], centred)


def test_a_public_batch_of_several_is_refused_because_it_cannot_be_taken_apart():
    with pytest.raises(PrivetError, match=r"no common first dimension.*batch of one example, collate\(\[item\]\)"):
        make(Reading(probe_batch=join(DATA[:2])))
