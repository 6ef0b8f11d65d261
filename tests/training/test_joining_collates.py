import pytest
import torch
from torch import nn
from torch.nn import functional as F

import privet
from privet import Reading
from privet.errors import PrivetError

N, BOUND, SIGMA = 16, 10.0, 1e-3  # no gradient is as long as the bound, and the noise is small


def numbers(index):
    return torch.Generator().manual_seed(index)


def bag(index):
    return torch.randint(50, (2 + index % 3,), generator=numbers(index)), index % 3


def graph(index):
    n = 3 + index % 2
    return {
        "x": torch.randn(n, 5, generator=numbers(index)), "y": torch.tensor(index % 3),
        "edges": torch.randint(n, (2, 2 * n), generator=numbers(index)),
    }  # fmt: skip


def starts(sizes):
    return torch.tensor([0, *sizes[:-1]]).cumsum(0)


def join_bags(items):
    ids, labels = zip(*items, strict=True)
    return torch.cat(ids), starts(list(map(len, ids))), torch.tensor(labels)


def join_graphs(items):
    sizes = [len(item["x"]) for item in items]
    edges = [item["edges"] + start for item, start in zip(items, starts(sizes), strict=True)]
    return {
        "x": torch.cat([item["x"] for item in items]), "edges": torch.cat(edges, 1), "y": torch.stack([g["y"] for g in items]),
        "graph": torch.repeat_interleave(torch.arange(len(items)), torch.tensor(sizes)),
    }  # fmt: skip


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(50, 8), nn.Linear(8, 3)

    def forward(self, batch):
        return self.head(self.table(batch[0], batch[1])), batch[2]


class Molecules(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, batch):
        source, target = batch["edges"]
        x = F.relu(self.inside(batch["x"]))
        x = x + torch.zeros_like(x).index_add(0, target, x[source])
        pooled = torch.zeros(len(batch["y"]), 8).index_add(0, batch["graph"], x)
        return self.head(pooled / 8), batch["y"]


def loss(model, batch):
    return F.cross_entropy(*model(batch), reduction="none")


def centred(model, batch):
    scores, labels = model(batch)
    return F.cross_entropy(scores - scores.mean(0), labels, reduction="none") + scores.sum(1)


KINDS = {"bags": (bag, join_bags, Words), "graphs": (graph, join_graphs, Molecules)}
READINGS = {
    "the shapes of real items": lambda item, join: Reading(),
    "a made-up item": lambda item, join: Reading(spec=item(0)),
    "a public batch of one": lambda item, join: Reading(probe_batch=join([item(0)])),
}


def make(kind, loss=loss, reading=READINGS["the shapes of real items"]):
    item, join, model = KINDS[kind]
    torch.manual_seed(0)
    plan = privet.Plan(
        examples=N, sampling=privet.sampling.FullBatch(), steps=1, clipping=privet.clipping.Flat(bound=BOUND),
        noise=privet.noise.Gaussian(multiplier=SIGMA), delta=1e-5,
    )  # fmt: skip
    model, data = model(), [item(index) for index in range(N)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return privet.Training(plan, model, loss, optimizer, data, collate=join, reading=reading(item, join))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reading", READINGS)
def test_they_are_checked_and_trained_as_they_are(kind, reading):
    """A step is that of plain autograd on the joined batch."""
    item, join, _ = KINDS[kind]
    training = make(kind, reading=READINGS[reading])
    assert training.method == "ghost"
    model = training.model
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = torch.autograd.grad(loss(model, join(list(map(item, range(N))))).mean(), list(model.parameters()))
    training.run()
    for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(p.detach(), before[name] - gradient, atol=10 * SIGMA * BOUND / N, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_that_compares_the_joined_examples_is_refused(kind):
    for reading in list(READINGS.values())[:2]:
        with pytest.raises(PrivetError, match="changes with its neighbours in the batch"):
            make(kind, centred, reading)


@pytest.mark.parametrize("kind", KINDS)
def test_a_public_batch_of_several_is_refused_because_it_cannot_be_taken_apart(kind):
    with pytest.raises(PrivetError, match=r"no common first dimension.*batch of one example, collate\(\[item\]\)"):
        make(kind, reading=lambda item, join: Reading(probe_batch=join([item(0), item(1)])))
