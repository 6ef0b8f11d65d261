import asyncio
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.data import Dataset

import privet
from one_layer import BOUND, RATE, Probe, linear_loss, plan, released, setup
from privet.errors import LedgerError
from privet.gradients import engine
from privet.gradients.methods.tape import clip
from privet.reading.batches import split
from privet.reading.rows import physical_batches
from privet.training.loop import StepError, sum_gradients

N, D = 12, 6


class Items(Dataset):
    """Examples as a list of what they hold, or of exceptions that reading them raises."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        if isinstance(item, BaseException):
            raise item
        return (item,)


class OverTime(Probe):
    """Loss ⟨w, mean of the rows⟩ of an example of any length."""

    def forward(self, x):
        return (x.mean(1) * self.w).sum(1)


def train(items, model=None, loss=linear_loss, clipping=None, **options):
    made = plan(N, steps=4, multiplier=0.0, examples=N, **({} if clipping is None else {"clipping": clipping}))
    return setup(made, None, model=model or Probe(D), loss=loss, dataset=Items(items), **options)


def clipped(rows):
    """Return the sum that a step without noise releases for examples with these gradients."""
    return sum(row * min(1.0, BOUND / float(row.norm())) for row in rows)


def check(training, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = released(training)
        except StepError:
            pytest.fail("one example ended the step")
        torch.testing.assert_close(found, clipped(rows), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["auto", "ghost", "loop"])
@pytest.mark.parametrize("size", [1, 5, N])
def test_examples_of_several_shapes_are_one_sum(method, size):
    items = [torch.randn(1 + i % 4, D) * 10.0 ** (i % 3 - 1) for i in range(N)]
    training = train(items, OverTime(D), method=method, physical_batch_size=size)
    check(training, [item.mean(0) for item in items])


class PanicError(BaseException):
    """No `Exception`, as what an extension raises that panics."""


ERRORS = [
    ValueError("secret"), StopIteration(), IndexError(7), MemoryError(), torch.cuda.OutOfMemoryError(), LedgerError("no"),
    PanicError("secret"), asyncio.CancelledError("secret"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "size", "workers"),
    [*zip(ERRORS, [1, 5, N] * 3, [0] * 8, strict=False), (ERRORS[0], N, 0), (ERRORS[6], 5, 1), (ERRORS[7], 5, 1)],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_an_example_that_cannot_be_read_contributes_zero(error, size, workers, capfd):
    items = [torch.randn(D) for _ in range(N)]
    expected = [item for i, item in enumerate(items) if i not in (4, 9)]
    items[4] = items[9] = error
    check(train(items, physical_batch_size=size, reading=privet.Reading(workers=workers)), expected)
    assert "".join(capfd.readouterr()) == ""


ODD = [
    None, "words", torch.randn(3), torch.randn(D).to_sparse(), {"x": 1}, object(), torch.zeros(0), torch.zeros(D, device="meta"),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_an_example_of_another_kind_contributes_zero(odd):
    """The model cannot take it: it is a group of its own, and fails alone."""
    items = [torch.randn(D) for _ in range(N)]
    expected = [*items[:4], *items[5:]]
    items[4] = odd
    check(train(items), expected)


@pytest.mark.parametrize("size", [1, N])
@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_weight_that_torch_caches_is_not_that_of_an_earlier_example(method, size):
    """Within `cached()`, only the examples of the first pass had a gradient through a parametrized weight."""
    items = [torch.randn(D) for _ in range(N)]
    model = parametrize.register_parametrization(Probe(D), "w", nn.Hardtanh(-9, 9))
    training = train(items, model, method=method, physical_batch_size=size)
    with parametrize.cached():
        model(torch.zeros(1, D))  # what the user computed is in the cache
        next(iter(training))
        assert parametrize._cache
    summed = -model.parametrizations.w.original.detach() / RATE * training.plan.divisor
    torch.testing.assert_close(summed, clipped(items), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("early", [True, False])
def test_another_default_device_does_not_matter(early):
    """What the library allocates for itself is on the CPU; "meta" stands for an accelerator."""
    items, model = [torch.randn(D) for _ in range(N)], Probe(D)
    with torch.device("meta" if early else "cpu"):
        training = train(items, model)
    torch.set_default_device("meta")
    try:
        found = released(training)
    finally:
        torch.set_default_device(None)
    torch.testing.assert_close(found, clipped(items), rtol=1e-4, atol=1e-4)


def test_a_step_whose_examples_all_fail_is_a_step_like_any_other():
    items = [torch.randn(D) for _ in range(N)]
    training = train(items)
    training._rows.dataset.items = [ValueError()] * N
    assert float(released(training).norm()) == 0
    assert training.steps_spent == 1


def raising(error):
    def fail(x, chosen):
        if bool(chosen):
            raise error
        return x

    return fail


# What the model is given, of an input and whether it is one of an example that fails.
FAILING = {
    "raises": raising(RuntimeError("secret")),
    "ends": raising(StopIteration),
    "panics": raising(PanicError("secret")),
    "has two losses": lambda x, chosen: torch.cat([x, x]) if bool(chosen) else x,
    "has another shape": lambda x, chosen: x[:, :2] if bool(chosen) else x,
    "is no tensor": lambda x, chosen: None if bool(chosen) else x,
    "is out of range": lambda x, chosen: x * torch.ones(2)[chosen.long() * 5],
}


@pytest.mark.parametrize("method", ["auto", "ghost", "loop"])
@pytest.mark.parametrize("failing", FAILING)
def test_an_example_whose_model_or_loss_fails_contributes_zero(failing, method, capfd):
    items = [torch.randn(D) for _ in range(N)]
    expected = [item for i, item in enumerate(items) if i not in (2, 3)]
    for i in (2, 3):
        items[i] = items[i] + 100

    def loss(model, batch):
        (x,) = batch
        return model(FAILING[failing](x, x.max() > 50))

    check(train(items, loss=loss, method=method), expected)
    assert "".join(capfd.readouterr()) == ""


class Dropped(Probe):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5))


class Drawn(Probe):
    def forward(self, x):
        scale = random.random() + float(np.random.random_sample())
        return super().forward(x * torch.rand(D) * scale + torch.empty(D).normal_())


@pytest.mark.parametrize("kind", [Dropped, Drawn])
@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_users_seed_does_not_repeat_what_a_model_draws(kind, method):
    items, runs = [torch.randn(D) for _ in range(N)], []
    for _ in range(2):
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(0)
        training = train(items, kind(D), method=method)
        runs.append([released(training) for _ in range(4)])
    found = [*runs[0], *runs[1]]
    assert all(not torch.equal(one, other) for i, one in enumerate(found) for other in found[:i])


@pytest.mark.parametrize(("kind", "method", "workers"), [(Dropped, "auto", 0), (Drawn, "loop", 0), (Drawn, "auto", 1)])
def test_a_users_generators_are_as_before_after_every_step(kind, method, workers):
    training = train([torch.randn(D) for _ in range(N)], kind(D), method=method, reading=privet.Reading(workers=workers))

    def states():
        kind, numbers, *rest = np.random.get_state()
        return torch.get_rng_state().tolist(), kind, numbers.tolist(), rest, random.getstate()

    before = states()
    for _ in training:
        assert states() == before


def test_a_model_with_dropout_needs_no_loop():
    training = train([torch.randn(D) for _ in range(N)], Dropped(D))
    assert training.method == "ghost"
    training.run()
    assert training._engine.looped == 0


def test_examples_are_dropped_independently_of_one_another():
    made = plan(2, steps=1, multiplier=0.0, examples=2, clipping=privet.clipping.Flat(1e9))
    training = setup(made, torch.tensor([[1.0], [3.0]]).expand(2, 200), model=Dropped(200))
    values = set((released(training) / 2).round().int().tolist())
    assert values == {0, 1, 3, 4}  # neither, one of them, the other, both


def test_a_fault_of_the_library_in_a_step_tells_nothing_of_the_draw(monkeypatch):
    def fail(*_):
        raise RuntimeError("41 examples were drawn: [3, 5, 8]")

    training = train([torch.randn(D) for _ in range(N)])
    monkeypatch.setattr(engine.RunningSum, "add", fail)
    with pytest.raises(StepError, match="the step counts") as caught:
        training.run()
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None
    assert "41" not in str(caught.value)
    assert training.steps_spent == 1


@pytest.mark.parametrize("size", [5, N])
def test_norms_are_in_the_order_of_the_draw(size):
    items = [torch.full((1 + i % 3, D), 0.1 * (i + 1)) for i in range(N)]
    training = train(items, OverTime(D))
    clipper = engine.Clipper.of(training._engine.parameters, training.plan.clipping)
    batches = physical_batches(training._rows, split(np.arange(N), 1, size))
    found = sum_gradients(training._engine, batches, clipper)
    torch.testing.assert_close(
        found.norms, torch.tensor([float(item.mean(0).norm()) for item in items]).double(), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize("fails_alone", [False, True])
def test_gradients_that_cannot_be_summed_together_are_summed_in_halves(fails_alone, monkeypatch):
    """An example may take a path on which a rule fails; if it fails alone as well, it contributes zero.

    The others stay together: the loop would round their norms otherwise, and one example would move all of them.
    """
    items = [torch.randn(D) for _ in range(N)]
    items[2] = items[2] + 100
    together, failures = [], []

    def fragile(tape, rule, groups):
        loud = float(tape.group_norms(groups).max()) > 50
        if loud and (fails_alone or tape.examples > 1) and len(failures) < 100:
            failures.append(tape.examples)
            raise RuntimeError("private")
        together.append(tape.examples)
        return clip(tape, rule, groups)

    monkeypatch.setattr(engine, "clip", fragile)
    check(train(items), [item for i, item in enumerate(items) if i != 2 or not fails_alone])
    assert sum(together) == N - fails_alone
    assert max(together) == N // 2
    assert len(failures) < 100
