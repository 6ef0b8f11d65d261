from queue import SimpleQueue

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from privet.clipping import Flat
from privet.errors import InvalidArgumentError
from privet.federated import LocalSteps, Round, Simulation
from privet.units import Users
from rounding import assert_equal_up_to_rounding

WIDE = Flat(1e6)
SIZES = (5, 3, 8, 3, 1, 5)


def loss_fn(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def clients_of(sizes=SIZES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(k, 4, generator=generator), torch.randint(3, (k,), generator=generator)) for k in sizes]


def small_model(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def told_by(model, rule=WIDE):
    return Round(1, {name: parameter.detach().clone() for name, parameter in model.named_parameters()}, rule)


def gathered(simulation, told, cohort):
    return simulation.gather(told, np.array(cohort, dtype=np.int64)).tensors


def reference(model, client, local):
    content, labels = client
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=local.learning_rate)
    width = min(local.batch_size or len(labels), len(labels))
    for step in range(local.steps):
        places = [(step * (local.batch_size or width) + offset) % len(labels) for offset in range(width)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(content[places]), labels[places])
        for parameter, first in zip(model.parameters(), start, strict=True):
            loss = loss + local.proximal / 2 * (parameter - first).square().sum()
        loss.backward()
        optimizer.step()
    found = [first - parameter.detach() for first, parameter in zip(start, model.parameters(), strict=True)]
    with torch.no_grad():
        for parameter, first in zip(model.parameters(), start, strict=True):
            parameter.copy_(first)
    return found


LOCAL = {
    "FedAvg": LocalSteps(learning_rate=0.3, steps=4, batch_size=2),
    "whole": LocalSteps(learning_rate=0.2, steps=2),
    "FedProx": LocalSteps(learning_rate=0.3, steps=5, batch_size=3, proximal=0.7),
    "FedSGD": LocalSteps.fed_sgd(),
}


@pytest.mark.parametrize("vectorise", [True, False])
@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL)
def test_updates_are_those_of_plain_sgd(local, vectorise):
    model, clients = small_model(), clients_of()
    simulation = Simulation(model, loss_fn, clients, local, at_once=4, vectorise=vectorise)
    found = gathered(simulation, told_by(model), range(len(clients)))
    expected = [reference(model, client, local) for client in clients]
    for tensor, *parts in zip(found.values(), *expected, strict=True):
        torch.testing.assert_close(tensor, sum(parts), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weight", [None, 4])
def test_together_is_one_after_another_up_to_rounding(weight):
    model, local = small_model(), LocalSteps(learning_rate=0.5, steps=6, batch_size=2, full_weight=weight)
    content = TensorDataset(torch.randn(40, 4), torch.randint(3, (40,)))
    users = Users(content, ids=[number % 9 for number in range(40)], cap=4)
    told, found = told_by(model, Flat(0.4)), []
    for vectorise, at_once in ((True, 32), (True, 2), (False, 3)):
        simulation = Simulation(model, loss_fn, users, local, at_once=at_once, vectorise=vectorise)
        assert (simulation.vectorised, simulation.clients, simulation.privacy_unit) == (vectorise, 9, "one user")
        found.append(gathered(simulation, told, range(9)))
    for other in found[1:]:
        for name, tensor in found[0].items():
            torch.testing.assert_close(other[name], tensor, rtol=1e-5, atol=1e-6)


def test_padding_does_not_count():
    model, local = small_model(), LocalSteps(learning_rate=0.4, steps=3, batch_size=3)
    content, labels = torch.randn(5, 4), torch.randint(3, (5,))
    users = Users(TensorDataset(content, labels), ids=[0, 0, 0, 1, 1], cap=4)
    found = gathered(Simulation(model, loss_fn, users, local), told_by(model), [1])
    wide = LocalSteps(learning_rate=0.4, steps=3)  # a batch of all
    expected = reference(model, (content[3:], labels[3:]), wide)
    for tensor, value in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(tensor, value, rtol=1e-4, atol=1e-6)


def test_weights_follow_the_number_of_examples_up_to_one():
    model, clients = small_model(), clients_of((1, 3, 4, 8))
    told = told_by(model, Flat(0.01))  # so short that every update is clipped
    local = LocalSteps(learning_rate=0.5, steps=2, full_weight=4)
    simulation = Simulation(model, loss_fn, clients, local)
    lengths = [
        float(torch.cat([tensor.flatten() for tensor in gathered(simulation, told, [client]).values()]).norm())
        for client in range(4)
    ]
    assert lengths == pytest.approx([0.0025, 0.0075, 0.01, 0.01], rel=1e-3)


@pytest.mark.parametrize("vectorise", [True, False])
def test_user_code_sees_the_examples_of_one_client(vectorise):
    seen = SimpleQueue()  # no container that the guard would restore

    def watching(model, batch):
        seen.put(tuple(batch[0].shape))
        return loss_fn(model, batch)

    model = small_model()
    simulation = Simulation(model, watching, clients_of((6, 6, 6, 5)), LOCAL["whole"], vectorise=vectorise)
    for _ in range(seen.qsize()):  # of the made-up clients
        seen.get()
    gathered(simulation, told_by(model), range(4))
    assert {seen.get() for _ in range(seen.qsize())} == {(6, 4), (5, 4)}


def test_clients_of_another_structure_contribute_zero_and_the_first_is_refused():
    model, good = small_model(), clients_of((4, 4))
    odd = [(torch.randn(3, 4), torch.zeros(2, dtype=torch.int64)), (torch.randn(3, 4), "text"), None, torch.tensor(1.0)]
    found = gathered(Simulation(model, loss_fn, [*good, *odd], LOCAL["whole"]), told_by(model), range(6))
    expected = gathered(Simulation(model, loss_fn, good, LOCAL["whole"]), told_by(model), range(2))
    for name, tensor in expected.items():
        assert_equal_up_to_rounding(found[name], tensor)
    items = [{"inputs": torch.randn(4), "labels": torch.tensor(1), "text": "a"} for _ in range(6)]
    users = Users(items, ids=[0, 0, 1, 1, 2, 2], cap=2)
    with pytest.raises(InvalidArgumentError, match="clients"):
        Simulation(model, loss_fn, users, LOCAL["whole"])


@pytest.mark.parametrize("examples", [1, 60])
@pytest.mark.parametrize("vectorise", [True, False])
def test_all_examples_of_a_client_together_move_the_sum_by_at_most_the_sensitivity(examples, vectorise):
    model, others, local = small_model(), clients_of((4, 4, 2)), LocalSteps(learning_rate=0.5, steps=8, batch_size=20)
    told, held = told_by(model, Flat(0.05)), [*others, *((1e3 * x, y) for x, y in clients_of((examples,), seed=9))]
    simulation = Simulation(model, loss_fn, held, local, vectorise=vectorise)
    whole, without = (gathered(simulation, told, cohort) for cohort in (range(4), range(3)))
    moved = torch.cat([(whole[name] - without[name]).flatten() for name in whole]).norm()
    assert 0.99 * 0.05 < moved <= 0.05 * (1 + 1e-5)


def test_a_client_that_fails_contributes_zero_and_nobody_hears_of_it():
    model = nn.Embedding(7, 3)

    def embedding_loss(model, batch):
        return model(batch).sum(-1)

    good = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 0])]
    bad = torch.tensor([1, 700, 3])  # an index that the table does not have
    for vectorise in (True, False):
        told = told_by(model)
        with_bad, without = (
            gathered(Simulation(model, embedding_loss, held, LocalSteps(0.1, 2), vectorise=vectorise), told, range(len(held)))
            for held in ([good[0], bad, good[1]], good)
        )
        assert_equal_up_to_rounding(with_bad["weight"], without["weight"])


def test_a_list_of_clients_that_changes_between_rounds_changes_no_client():
    model, clients = small_model(), clients_of()
    simulation = Simulation(model, loss_fn, clients, LOCAL["whole"])
    before = gathered(simulation, told_by(model), range(len(clients)))
    clients.reverse()
    after = gathered(simulation, told_by(model), range(len(clients)))
    assert all(torch.equal(before[name], after[name]) for name in before)


class Normalising(nn.Module):
    """Divides its input by the largest value that it has seen, and adds rows of a table."""

    def __init__(self):
        super().__init__()
        self.head, self.table = nn.Linear(4, 3), nn.Embedding(3, 3)
        self.register_buffer("largest", torch.tensor(4.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, content):
        x, rows = content
        self.largest = torch.maximum(self.largest, x.abs().amax())
        self.calls += 1
        return self.head(4 * x / self.largest) * self.calls + self.table(rows)


def with_rows(*rows):
    clients = clients_of((4,) * len(rows))
    for x, _ in clients:
        x[0] *= 100
    return [((x, torch.full((4,), row)), y) for (x, y), row in zip(clients, rows, strict=True)]


def test_buffers_live_through_the_local_steps_of_a_client_together_and_one_by_one():
    torch.manual_seed(4)
    model, clients = Normalising(), with_rows(0, 1, 2)
    together, alone = (Simulation(model, loss_fn, clients, LOCAL["FedAvg"], vectorise=way) for way in (None, False))
    assert together.vectorised
    assert not alone.vectorised
    found, expected = (gathered(each, told_by(model), [0, 1, 2]) for each in (together, alone))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)
    assert (model.largest, model.calls) == (4, 0)


@pytest.mark.parametrize("bad", [0, 3, 6])
def test_a_client_that_raises_runs_alone(bad, monkeypatch):
    torch.manual_seed(4)
    rows, alone = [0, 1, 2, 1, 0, 2, 1], []
    rows[bad] = 99
    model = Normalising()
    simulation = Simulation(model, loss_fn, with_rows(*rows), LOCAL["FedAvg"])
    one_by_one = simulation._one_by_one

    def noted(parameters, clients, seeds):
        alone.append(clients[0][0][1][:, 0].tolist())
        return one_by_one(parameters, clients, seeds)

    monkeypatch.setattr(simulation, "_one_by_one", noted)
    assert simulation.vectorised
    everyone, others = (gathered(simulation, told_by(model), [i for i in range(7) if i != out]) for out in (None, bad))
    assert alone == [[99]]
    for name, tensor in others.items():
        torch.testing.assert_close(everyone[name], tensor, rtol=1e-4, atol=1e-5)


class Remembering(nn.Module):
    """Adds a part of what it saw last to its input: a model that would couple one client to the next."""

    def __init__(self):
        super().__init__()
        self.head, self.seen = nn.Linear(4, 3), torch.zeros(4)

    def forward(self, x):
        mixed = x + 10 * self.seen
        self.seen = x.detach().mean(0)
        return self.head(mixed)


def batch_norm():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("make", "at_once", "vectorise"), [(Remembering, 1, True), (Remembering, 1, False), (batch_norm, 8, None)]
)
def test_what_a_model_remembers_of_a_client_reaches_no_other(make, at_once, vectorise):
    torch.manual_seed(3)
    model = make()
    before = {name: each.clone() for name, each in model.named_buffers()}
    simulation = Simulation(model, loss_fn, clients_of((4, 4, 4)), LOCAL["FedAvg"], at_once=at_once, vectorise=vectorise)
    assert simulation.vectorised == bool(vectorise)
    alone = gathered(simulation, told_by(model), [2])
    together, rest = (gathered(simulation, told_by(model), cohort) for cohort in ([0, 1, 2], [0, 1]))
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name] - rest[name], tensor, rtol=1e-3, atol=1e-5)
    assert all(torch.equal(each, before[name]) for name, each in model.named_buffers())
    assert not getattr(model, "seen", torch.zeros(1)).any()


def test_modules_without_batching_rules_train_one_client_after_another():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 3)

        def forward(self, x):
            if float(x.sum()) > 1e9:  # a branch on values
                return self.head(x[:, -1])
            return self.head(self.recurrent(x.view(len(x), 2, 2))[0][:, -1])

    model = Last()
    simulation = Simulation(model, loss_fn, clients_of((4, 4)), LOCAL["whole"])
    assert not simulation.vectorised
    found = gathered(simulation, told_by(model), [0, 1])
    assert all(tensor.isfinite().all() and tensor.any() for tensor in found.values())
    with pytest.raises(InvalidArgumentError, match="vectorise"):
        Simulation(model, loss_fn, clients_of((4, 4)), LOCAL["whole"], vectorise=True)


def test_neither_the_model_nor_the_generators_change():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    simulation, state = Simulation(model, loss_fn, clients_of(), LOCAL["FedAvg"]), torch.get_rng_state()
    first, second = (gathered(simulation, told_by(model), [0, 1, 2]) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))
    assert not torch.equal(first["0.weight"], second["0.weight"])  # dropout is fresh


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"loss_fn": lambda model, batch: loss_fn(model, batch).mean()}, "loss per example"),
        ({"loss_fn": lambda model, batch: batch["absent"]}, "made-up"),
        ({"local": 0.1}, "local"),
        ({"at_once": 0}, "at_once"),
        ({"vectorise": "yes"}, "vectorise"),
    ],
)
def test_arguments_are_checked(change, named):
    arguments = {"loss_fn": loss_fn, "clients": clients_of(), "local": LOCAL["whole"]} | change
    with pytest.raises(InvalidArgumentError, match=named):
        Simulation(small_model(), **arguments)


@pytest.mark.parametrize(
    "change", [{"learning_rate": 0.0}, {"steps": 0}, {"batch_size": 0}, {"proximal": -0.1}, {"full_weight": 0}]
)
def test_local_steps_are_checked(change):
    with pytest.raises(InvalidArgumentError, match=f"local.{next(iter(change))}"):
        LocalSteps(**({"learning_rate": 0.1, "steps": 1} | change))
