"""The general methods: bounded memory, examples in order, and no example sees another."""

import cases
import pytest
import torch
from torch import nn

from privet.clipping import Flat
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum, functional, per_example_gradients
from privet.gradients.engine import tapes
from privet.gradients.functional import one_by_one, vectorised


@pytest.mark.parametrize("held", [1, 100, 250, 1 << 24])
@pytest.mark.parametrize("name", ["mlp", "transformer", "tied head"])
def test_the_result_does_not_depend_on_how_many_gradients_are_held(name, held, monkeypatch):
    (case,) = cases.by_name(name)
    model, batch = case.model(torch.float64), case.batch(7, torch.float64)
    expected = per_example_gradients(model, case.loss, batch, method="loop")
    size = sum(parameter.numel() for parameter in model.parameters())
    monkeypatch.setattr(functional, "_HELD", held * size // 100)
    found = per_example_gradients(model, case.loss, batch, method="vectorised")
    for parameter, value in found.items():
        assert torch.allclose(value, expected[parameter], rtol=1e-10, atol=1e-12)


def test_memory_is_bounded_by_what_is_held(monkeypatch):
    model, x = nn.Linear(10, 10), torch.randn(7, 10)
    monkeypatch.setattr(functional, "_HELD", 250)
    sizes = [tape.examples for tape in vectorised(model, lambda m, x: m(x).sum(1), x, dict(model.named_parameters()))]
    assert sizes == [2, 2, 2, 1]


def test_auto_forms_the_next_gradients_only_after_the_first_were_used(monkeypatch):
    (case,) = cases.by_name("positions of several examples in another order")
    model, batch = case.model(), case.batch(6)
    monkeypatch.setattr(functional, "_HELD", 2 * 28)
    seen = []

    def loss(m, b):
        seen.append(len(b[0]))
        return case.loss(m, b)

    stream = tapes(model, loss, batch, dict(model.named_parameters()))
    next(stream)
    calls = len(seen)
    list(stream)
    assert len(seen) == calls + 2


def test_the_loop_gives_every_example_alone():
    seen = []

    def loss(m, x):
        seen.append(x.clone())
        return m(x).sum(1)

    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    list(one_by_one(model, loss, x, dict(model.named_parameters())))
    assert torch.equal(torch.cat(seen), x)
    assert [len(part) for part in seen] == [1] * 4


@pytest.mark.parametrize("method", ["tape", "vectorised", "loop"])
def test_what_has_no_examples_is_shared_by_all(method):
    model = nn.Linear(3, 2)
    batch = {"x": torch.randn(4, 3), "mask": torch.tensor([1.0, 0.0]), "power": 2}
    found = per_example_gradients(model, lambda m, b: ((m(b["x"]) * b["mask"]) ** b["power"]).sum(1), batch, method=method)
    assert found["weight"].shape == (4, 2, 3)
    assert not found["weight"][:, 1].any()
    assert found["weight"][:, 0].any()


@pytest.mark.parametrize("method", ["vectorised", "loop", "auto"])
def test_a_scalar_loss_is_refused(method):
    with pytest.raises(InvalidArgumentError, match="one loss per example"):
        per_example_gradients(nn.Linear(3, 2), lambda m, x: m(x).sum(), torch.randn(4, 3), method=method)


def test_dropout_differs_between_examples():
    model, x = nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.5)), torch.ones(2, 50)
    first, second = per_example_gradients(model, lambda m, x: m(x).sum(1), x, method="vectorised")["0.bias"]
    assert not torch.equal(first, second)


def test_models_that_cannot_be_vectorised_go_one_by_one():
    def loss(m, x):
        row = m.weight[0] if float(x.sum()) > 0 else m.weight[1]  # decided by the content: no vmap
        return (x * row.square()).sum(1)

    model, x = nn.Linear(3, 2, bias=False), torch.tensor([[1.0, 1, 1], [-1, -1, -1]])
    expected = torch.stack(
        [torch.stack([2 * model.weight[0], torch.zeros(3)]), torch.stack([torch.zeros(3), -2 * model.weight[1]])]
    )
    assert torch.allclose(per_example_gradients(model, loss, x)["weight"], expected)
    with pytest.raises(RuntimeError):
        clipped_sum(model, loss, x, Flat(0.7), method="vectorised")
