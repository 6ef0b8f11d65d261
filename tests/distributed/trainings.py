"""Plans of every kind for training in several processes, with the fixed source of noise."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset, Subset, TensorDataset

import privet
from privet import clipping, momentum, noise, sampling, schedules, sparsification, units

N, D, CLASSES, ROWS = 240, 7, 3, 50


def losses(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def raising_losses(model, batch):
    if batch[0].sum() > 5:
        raise ValueError("of one example")
    return losses(model, batch)


class Augmented(Dataset):
    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index] + 0.1 * torch.randn(D), self.labels[index]


class Words(Dataset):
    """Sequences of different lengths."""

    def __init__(self):
        self.rows = [torch.randint(ROWS, (1 + index % 4,)) for index in range(N)]

    def __len__(self):
        return N

    def __getitem__(self, index):
        return self.rows[index], index % CLASSES


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(ROWS, 4), nn.Linear(4, CLASSES)

    def forward(self, words):
        return self.head(self.embedding(words).mean(1))


@dataclass
class Case:
    """A training; what it does not say is plain SGD on Poisson samples with flat clipping."""

    plan: dict[str, Any] = field(default_factory=dict)
    optimizer: Any = lambda model, plan: torch.optim.SGD(model.parameters(), lr=0.2)
    model: Any = lambda: nn.Sequential(nn.Linear(D, 11), nn.LayerNorm(11), nn.Tanh(), nn.Linear(11, CLASSES))
    data: Any = TensorDataset
    loss: Any = losses
    options: dict[str, Any] = field(default_factory=dict)
    averaged: bool = False
    scheduled: bool = False
    convert: Any = lambda tensor: tensor


FLAT, RATE, WORKERS = clipping.Flat(1.0), {"sampling": sampling.Poisson(batch_size=20)}, {"reading": privet.Reading(1)}
# The check before the first step is each rank's own, and takes longer than these trainings; "workers" has it here.
UNCHECKED = privet.Reading(probe=False)
LANGEVIN = privet.optim.sgld_noise(0.1, batch_size=20, sensitivity=1.0, diffusion=0.05)


def adam(model, plan):
    return torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3)


def nesterov(model, plan):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)


def adam_bc(model, plan):
    return privet.optim.AdamBC.of(plan, model, lr=0.01, floor=1e-4)


def langevin(model, plan):
    return privet.optim.SGLD(model.parameters(), 0.1, examples=N, diffusion=0.05)


CASES = {
    "SGD": Case(),
    "momentum": Case(optimizer=nesterov),
    "AdamW, average, scheduler": Case(optimizer=adam, averaged=True, scheduled=True),
    "AdamBC": Case(optimizer=adam_bc),
    "SGLD": Case({"noise": replace(LANGEVIN, source="fixed")}, optimizer=langevin),
    "empty ranks": Case({"sampling": sampling.Poisson(batch_size=1.5), "steps": 12}),
    "empty steps": Case({"sampling": sampling.Poisson(batch_size=0.6), "steps": 12}, options={"physical_batch_size": 1}),
    "adaptive quantile": Case({"clipping": clipping.AdaptiveQuantile(FLAT)}),
    "adaptive layerwise": Case({"clipping": clipping.AdaptiveQuantile(clipping.Layerwise(FLAT))}),
    "layerwise": Case({"clipping": clipping.Layerwise(FLAT)}),
    "noise per group": Case({"clipping": clipping.Layerwise(FLAT, noise="per group")}),
    "automatic": Case({"clipping": clipping.Automatic(bound=1.0)}),
    "PSAC": Case({"clipping": clipping.PSAC(bound=1.0)}),
    "projected": Case({"clipping": clipping.Projected(FLAT, projections=16)}),
    "GEP": Case({"clipping": clipping.GEP(FLAT, FLAT, dimensions=6, anchors=24, public="others")}),
    "random masks": Case({"sparsification": sparsification.Random(final_rate=0.9, refresh=1)}),
    "ranked masks": Case({"sparsification": sparsification.Ranked(final_rate=0.5)}),
    "InnerOuter": Case({"momentum": momentum.InnerOuter(inner=0.9, outer=0.1, length=2)}),
    "PerExample": Case({"sampling": sampling.FullBatch(), "momentum": momentum.PerExample(0.5)}),
    "users": Case({"unit": "one user", "sampling": sampling.Poisson(batch_size=8)}, loss=units.grouped(losses)),
    "Shuffle": Case({"sampling": sampling.Shuffle(batch_size=20), "adjacency": "replace-one"}),
    "BallsInBins": Case({"sampling": sampling.BallsInBins(batch_size=20)}),
    "FixedSize": Case({"sampling": sampling.FixedSize(batch_size=20), "adjacency": "replace-one"}),
    "FullBatch": Case({"sampling": sampling.FullBatch()}),
    "banded noise": Case(
        {
            "sampling": sampling.CyclicPoisson(batch_size=20, cycle=4),
            "noise": noise.Banded(multiplier=1.0, bands=4, source="fixed"),
        }
    ),
    "buffered Toeplitz noise": Case(
        {
            "sampling": sampling.FixedOrder(batch_size=20),
            "noise": noise.BufferedToeplitz(multiplier=1.0, buffers=2, source="fixed"),
        }
    ),
    "tree noise": Case({"sampling": sampling.FixedOrder(batch_size=20), "noise": noise.Tree(multiplier=1.0, source="fixed")}),
    "scheduled bound": Case({"bound_schedule": schedules.Geometric(rate=0.1)}),
    "scheduled noise": Case(
        {"noise": noise.Gaussian(multiplier=1.0, source="fixed", schedule=schedules.Geometric(rate=0.1))}
    ),
    "no noise": Case({"noise": noise.Gaussian(multiplier=0.0, non_private=True, source="fixed")}),
    "augmented": Case(data=Augmented),
    "workers": Case({"clipping": clipping.Projected(FLAT, projections=16)}, data=Augmented, options=WORKERS),
    "raising": Case(loss=raising_losses),
    "different lengths": Case(model=Bag, data=lambda *_: Words()),
    "public rows": Case(
        {"embeddings": sparsification.FEST({"embedding.weight": range(0, ROWS, 3)})}, model=Bag, data=lambda *_: Words()
    ),
    "counted rows": Case(
        {"embeddings": sparsification.AdaFEST(["embedding.weight"], bound=1.0, threshold=5.0, share=0.1)},
        model=Bag, data=lambda *_: Words(),
    ),
    "bfloat16": Case(optimizer=adam, convert=lambda tensor: tensor.bfloat16()),
    "float64": Case(convert=lambda tensor: tensor.double()),
}  # fmt: skip


def make(name, world, directory=None, *, resume=False, steps=6, source="fixed", shard=None):
    """Return the training of a case, on this rank."""
    case = CASES[name]
    torch.manual_seed(0)
    inputs, labels = torch.randn(N, D), torch.randint(CLASSES, (N,))
    data = case.data(case.convert(inputs), labels)
    values = {
        "examples": N, "steps": steps, "delta": 1e-3, "clipping": FLAT, "noise": noise.Gaussian(1.0, source=source), **RATE,
        **case.plan,
    }  # fmt: skip
    if case.loss is not losses and "unit" in values:
        data = units.Users(data, torch.randint(60, (N,)).tolist(), cap=3, words=noise.FixedSource().words)
        values["examples"] = len(data)
    plan = privet.Plan(**values)
    model = case.convert(case.model())
    options = {"physical_batch_size": 8, "world": world, "reading": UNCHECKED, **case.options}
    optimizer = case.optimizer(model, plan)
    if case.averaged:
        options["average"] = AveragedModel(model)
    if case.scheduled:
        options["scheduler"] = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.total_steps)
    if isinstance(plan.clipping, clipping.GEP):
        options["public"] = TensorDataset(torch.randn(60, D), torch.randint(CLASSES, (60,)))
    if shard is not None:
        data = Subset(data, shard)
    if resume:
        return privet.Training.resume(directory, model, case.loss, optimizer, data, **options)
    return privet.Training(plan, model, case.loss, optimizer, data, directory, **options)


def parameters_of(training):
    """Return all parameters that a training changes, flat, in float64."""
    held = [training.model, training.averaged_model]
    return torch.cat([each.detach().double().flatten() for model in held if model is not None for each in model.parameters()])
