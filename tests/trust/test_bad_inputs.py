"""Bad settings, data, models and optimizers: each is refused before the first step, in one line that names it."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

import plans
import privet
from privet.errors import InvalidArgumentError, LedgerError, UnsupportedModelError
from rounding import assert_equal_up_to_rounding

N = 20


def data(n=N):
    same = torch.Generator().manual_seed(0)  # a run is resumed with the data of its start only
    return TensorDataset(torch.randn(n, 4, generator=same), torch.randint(0, 3, (n,), generator=same))


def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


plan = partial(plans.plan, examples=N, sampling=privet.sampling.Poisson(5), steps=3, delta=1e-3)


def noisy(multiplier):
    return lambda: plan(noise=privet.noise.Gaussian(multiplier))


def train(model=None, the_plan=None, optimizer=None, dataset=None, loss=loss_fn, **options):
    model = nn.Linear(4, 3) if model is None else model
    make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.3))
    return privet.Training(
        the_plan or plan(), model, loss, make(model.parameters()), data() if dataset is None else dataset, **options
    )


class Stream(IterableDataset):
    def __iter__(self):
        return iter(data())


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x - x.mean(0))


def two_rows(items):
    return torch.zeros(2 * len(items), 4), torch.zeros(2 * len(items)).long()


def half_images():
    return train(nn.Linear(4, 3).half(), dataset=TensorDataset(torch.randn(N, 4).half(), torch.zeros(N, dtype=torch.long)))


def resumed(folder, change):
    training = train(directory=folder)
    next(iter(training))
    training.close()
    change(folder)
    model = nn.Linear(4, 3)
    privet.Training.resume(folder, model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.3), data())


def other_noise(folder):
    text = (folder / "plan.json").read_text(encoding="utf-8")
    (folder / "plan.json").write_text(text.replace("2.3", "1.3"), encoding="utf-8")


CASES = [
    (noisy(-1.0), "noise.multiplier is -1.0"),
    (noisy(0.0), "non_private"),
    (noisy(math.nan), "noise.multiplier is nan"),
    (noisy(math.inf), "noise.multiplier is inf"),
    (noisy(True), "noise.multiplier is True"),
    (noisy("1.0"), "noise.multiplier is '1.0'"),
    (noisy(torch.tensor(1.0)), "noise.multiplier is tensor"),
    (lambda: train(the_plan=plan(clipping=privet.clipping.Layerwise({"weight": privet.clipping.Flat(0.7)}))), "bias"),
    (lambda: plan(sparsification=privet.sparsification.Random(1.0)), "sparsification.final_rate is 1.0"),
    (lambda: train(dataset=DataLoader(data(), shuffle=True)), "loader.dataset"),
    (lambda: train(dataset=Stream()), "map-style"),
    (lambda: train(dataset=DataLoader(data(), sampler=WeightedRandomSampler([1.0] * N, N))), "loader.dataset"),
    (lambda: train(dataset=DataLoader(data(), drop_last=True)), "loader.dataset"),
    (lambda: train(dataset=data(0)), "0 examples"),
    (lambda: train(dataset=Subset(data(), [0] * N)), "an example occurs twice"),
    (lambda: train(dataset=list(range(N)), collate=two_rows), "(2,)"),
    (lambda: train(physical_batch_size=0), "physical_batch_size is 0"),
    (lambda: privet.units.Groups(data(), 0), "size is 0"),
    (lambda: train(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))), "BatchNorm1d"),
    (lambda: train(nn.Sequential(nn.Linear(4, 3), nn.SyncBatchNorm(3))), "SyncBatchNorm"),
    (lambda: train(Centred()), "changes with its neighbours"),
    (lambda: train(nn.Linear(4, 3).requires_grad_(False)), "no trainable parameter"),
    (lambda: train(optimizer=torch.optim.LBFGS), "LBFGS"),
    (lambda: train(nn.DataParallel(nn.Linear(4, 3))), "DataParallel"),
    (half_images, "torch.float16"),
    (lambda: train(nn.Linear(4, 3, dtype=torch.complex64)), "torch.complex64"),
    (lambda: train(loss=lambda m, b: F.cross_entropy(m(b[0]), b[1])), "one loss per example"),
    (lambda: train(loss=lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="none") / len(b[0])), "neighbours"),
]  # fmt: skip


@pytest.mark.parametrize(("attempt", "says"), CASES, ids=[says for _, says in CASES])
def test_it_is_refused_by_name(attempt, says):
    with pytest.raises((InvalidArgumentError, UnsupportedModelError)) as refusal:
        attempt()
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("damage", "says"), [
    (other_noise, "noise"),
    (lambda folder: (folder / "ledger").unlink(), "has no ledger"),
    (lambda folder: (folder / "plan.json").unlink(), "no plan.json"),
    (lambda folder: (folder / "ledger").write_bytes(b"00000000 {}\n"), "damaged"),
], ids=["another multiplier", "no ledger", "no plan", "a damaged ledger"])  # fmt: skip
def test_a_run_that_does_not_fit_its_files_is_not_resumed(tmp_path, damage, says):
    with pytest.raises(LedgerError, match=says):
        resumed(tmp_path / "run", damage)


def test_a_directory_with_a_run_is_refused(tmp_path):
    train(directory=tmp_path / "run").run()
    with pytest.raises(LedgerError, match="holds a run already"):
        train(directory=tmp_path / "run")


class Again(torch.optim.SGD):
    """An optimizer that evaluates the loss itself, as closures do."""

    def step(self, closure=None):
        assert closure is None, "training hands out no closure"
        return super().step()


def test_no_closure_can_erase_the_noise():
    """Opacus under Lightning ran the backward pass again in the closure, after the noise was added."""
    train(optimizer=lambda parameters: Again(parameters, lr=0.3)).run()


def test_noise_cannot_change_behind_the_accountant():
    """A scheduler of the multiplier alone, or one assignment, makes other libraries account for noise that was not added."""
    run = train()
    with pytest.raises(AttributeError):
        run.plan.noise.multiplier = 1e-9
    with pytest.raises(AttributeError):
        run.plan = plan()
    spent = run.epsilon("rdp")
    run.run()
    assert spent < run.epsilon("rdp") == run.plan.epsilon("rdp")


@pytest.mark.parametrize("label", [-1, 3, 5000])
def test_a_label_that_is_not_declared_contributes_nothing(tmp_path, label):
    """It is refused neither when the file is read nor later, as that would tell of a private row."""
    np.savez(tmp_path / "data.npz", x_train=np.ones((3, 4), np.float32), y_train=np.array([0, 1, label]))
    found = privet.data.load(tmp_path / "data.npz", classes=3)
    norms = privet.per_example_norms(nn.Linear(4, 3), loss_fn, found.train.tensors)
    assert (norms > 1e-12).tolist() == [True, True, False]  # a norm is rounded up


@pytest.mark.parametrize("rule", [*privet.clipping.NORM_RULES.values()], ids=lambda rule: rule.__name__)
def test_no_rule_raises_a_label_that_is_not_declared_above_nothing(rule):
    model, (inputs, _) = nn.Linear(4, 3), data(3).tensors
    labels = torch.tensor([0, 1, privet.data.UNDECLARED])
    whole = privet.clipped_sum(model, loss_fn, (inputs, labels), rule(0.3)).tensors
    others = privet.clipped_sum(model, loss_fn, (inputs[:2], labels[:2]), rule(0.3)).tensors
    for name, value in whole.items():
        assert_equal_up_to_rounding(value, others[name])
