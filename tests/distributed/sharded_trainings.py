"""Models of every kind under FSDP2, with the fixed source of noise."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, TensorDataset

import privet
from privet import clipping, noise, optim, sampling, units

N, WORDS, LENGTH, WIDTH = 60, 61, 6, 17


class Block(nn.Module):
    """A layer of a transformer, whose matrices have rows that no number of ranks divides."""

    def __init__(self, recomputed="", width=WIDTH):
        super().__init__()
        self.norm, self.attention, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width + 1), nn.Linear(2 * width + 1, width)
        self.recomputed = recomputed

    def body(self, x):
        query, key, value = self.attention(self.norm(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True))
        return x + self.down(F.gelu(self.up(x)))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False) if self.recomputed == "inside" else self.body(x)


class Words(nn.Module):
    """A small language model."""

    def __init__(self, recomputed="", times=1, *, tied=False, adds_in_place=False):
        super().__init__()
        self.embedding, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.parts = nn.ModuleList(Block(recomputed) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.recomputed, self.times, self.adds_in_place = recomputed, times, adds_in_place
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, words):
        x = self.embedding(words) + self.places[: words.shape[1]]
        for part in [*self.parts] * self.times:
            x = checkpoint(part, x, use_reentrant=False) if self.recomputed == "outside" else part(x)
            if self.adds_in_place:
                x += 0.1
        return self.head(self.norm(x))


def word_losses(model, batch):
    return (
        F.cross_entropy(model(batch[0]).flatten(0, 1), batch[0].roll(-1, 1).flatten(), reduction="none")
        .view(batch[0].shape)
        .mean(1)
    )


def raising_losses(model, batch):
    if batch[0][0, 0] > WORDS * 0.8:
        raise ValueError("of one example")
    return word_losses(model, batch)


def splitting_losses(model, batch):
    return word_losses(model, batch) * (2 if batch[0][0, 0].item() > WORDS // 2 else 1)


def early_losses(model, batch):
    """Leave the last layer out for some examples."""
    parts, model.depth = model.parts, None
    if batch[0][0, 0].item() > WORDS // 2:
        x = model.embedding(batch[0]) + model.places
        return model.head(parts[0](x)).square().mean((1, 2))
    return word_losses(model, batch)


class Derived(nn.Module):
    """Uses a tensor that is computed from a parameter, whose values the sum of gradients needs again."""

    def __init__(self, how):
        super().__init__()
        self.weight, self.other, self.how = nn.Parameter(torch.randn(WIDTH, WIDTH) * 0.2), nn.Linear(WIDTH, WIDTH), how

    def forward(self, x):
        weight = {"square": self.weight.square, "affine": lambda: 2 * self.weight + 1, "transposed": self.weight.t}[self.how]()
        return self.other(torch.tanh(F.linear(x, weight)))


class Layers(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 9, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 1, batch_first=True)

    def forward(self, x):
        return x + self.attention(x, x, x, need_weights=False)[0]


class Adapted(nn.Module):
    """A frozen layer with a trained matrix of low rank."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)
        self.base.requires_grad_(False)

    def forward(self, x):
        return x + torch.tanh(self.base(x) + self.up(self.down(x)))


class Outside(Layers):
    """Reads a parameter outside its module."""

    def forward(self, x):
        return super().forward(x) + F.linear(x, self.parts[0].weight)


def square_losses(model, batch):
    return model(batch[0]).square().flatten(1).sum(1)


def freeze(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("attention" in name or "head" in name)
    return model


class Lengths(Dataset):
    """Sequences of different lengths."""

    def __init__(self, words):
        self.words = words

    def __len__(self):
        return N

    def __getitem__(self, index):
        return (self.words[index, : 2 + index % 4],)


@dataclass
class Case:
    """A training of a sharded model; what it does not say is SGD with momentum on a small language model."""

    model: Any = Words
    losses: Any = word_losses
    plan: dict[str, Any] = field(default_factory=dict)
    optimizer: Any = lambda model, plan: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rows: Any = None  # vectors in place of words: their shape
    data: Any = TensorDataset
    options: dict[str, Any] = field(default_factory=dict)
    scheduled: bool = False
    way: str = "by module"  # how it is summed unless the world says "gathered"


def two_optimizers(model, plan):
    matrices, others = [], []
    for parameter in model.parameters():
        (matrices if parameter.dim() > 1 else others).append(parameter)
    return optim.Combined(torch.optim.AdamW(matrices, lr=1e-3), torch.optim.SGD(others, lr=0.1))


LANGEVIN = optim.sgld_noise(0.1, batch_size=8, sensitivity=0.5, diffusion=0.05)
VECTORS = {"losses": square_losses, "rows": (WIDTH,)}
SEQUENCES = {"losses": square_losses, "rows": (4, WIDTH)}
CASES = {
    "SGD": Case(),
    "AdamW, scheduler": Case(optimizer=lambda model, plan: torch.optim.AdamW(model.parameters(), lr=1e-3), scheduled=True),
    "AdamBC": Case(
        optimizer=lambda model, plan: optim.AdamBC(
            model.parameters(), lr=1e-3, floor=0.01, noise_deviation=plan.gradient_deviations().tolist()
        )
    ),
    "SGLD": Case(
        plan={"noise": replace(LANGEVIN, source="fixed")},
        optimizer=lambda model, plan: optim.SGLD(model.parameters(), 0.1, examples=N, diffusion=0.05),
    ),
    "Combined": Case(optimizer=two_optimizers),
    "layerwise": Case(plan={"clipping": clipping.Layerwise(clipping.Flat(0.5))}),
    "adaptive": Case(plan={"clipping": clipping.AdaptiveQuantile(clipping.Flat(0.5))}),
    "automatic": Case(plan={"clipping": clipping.Automatic(0.5)}),
    "empty ranks": Case(plan={"sampling": sampling.Poisson(batch_size=1)}),
    "correlated": Case(
        plan={"sampling": sampling.BallsInBins(batch_size=12), "noise": noise.Banded(1.0, bands=3, source="fixed")}
    ),
    "workers": Case(options={"reading": privet.Reading(1)}),
    "users": Case(plan={"unit": "one user"}, losses=units.grouped(word_losses)),
    "tied": Case(lambda: Words(tied=True)),
    "reused": Case(lambda: Words(times=2)),
    "recomputed inside": Case(lambda: Words("inside")),
    "recomputed outside": Case(lambda: Words("outside")),
    "in place": Case(lambda: Words(adds_in_place=True)),
    "frozen": Case(lambda: freeze(Words())),
    "lengths": Case(data=Lengths),
    "control flow": Case(losses=splitting_losses, way="gathered"),
    "early exit": Case(losses=early_losses, way="gathered"),
    "raising": Case(losses=raising_losses),
    "derived": Case(lambda: Layers(*map(Derived, ("affine", "transposed", "square"))), **VECTORS),
    "LSTM": Case(lambda: Layers(Recurrent(), nn.Linear(9, 3)), **SEQUENCES),
    "MultiheadAttention": Case(lambda: Layers(Attending(), nn.GroupNorm(1, 4)), **SEQUENCES),
    "LoRA": Case(lambda: Layers(Adapted(), Adapted(), nn.Linear(WIDTH, 3)), **VECTORS),
    "convolution": Case(lambda: Layers(nn.Conv1d(4, 5, 3), nn.BatchNorm1d(5).eval(), nn.Conv1d(5, 2, 3)), **SEQUENCES),
    "outside": Case(lambda: Outside(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)), way="gathered", **VECTORS),
    "one by one": Case(options={"method": "loop"}, way="gathered"),
}  # fmt: skip


def shard(model, **options):
    """Shard the parts of a model, and then the rest of it, as users do."""
    from torch.distributed.fsdp import fully_shard

    for part in model.parts:
        fully_shard(part, **options)
    return fully_shard(model, **options)


def make(name, world, directory=None, *, resume=False, steps=6, source="fixed", already=False):
    """Return the training of a case, on this rank; sharded in several processes."""
    case = CASES[name]
    torch.manual_seed(0)
    words = torch.randint(WORDS, (N, LENGTH)) if case.rows is None else torch.randn(N, *case.rows)
    model, data = case.model(), case.data(words)
    values = {
        "examples": N, "sampling": sampling.Poisson(batch_size=8), "steps": steps, "delta": 1e-5, "accept_large_delta": True,
        "clipping": clipping.Flat(0.5), "noise": noise.Gaussian(1.0, source=source), **case.plan,
    }  # fmt: skip
    if values.get("unit") == "one user":
        data = units.Users(data, torch.randint(20, (N,)).tolist(), cap=3, words=noise.FixedSource().words)
        values["examples"] = len(data)
    plan = privet.Plan(**values)
    if world.size > 1 and not already:
        shard(model)
    optimizer = case.optimizer(model, plan)
    options = {"physical_batch_size": 3, "world": world, **case.options}
    if case.scheduled:
        options["scheduler"] = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.total_steps)
    if resume:
        return privet.Training.resume(directory, model, case.losses, optimizer, data, **options)
    return privet.Training(plan, model, case.losses, optimizer, data, directory, **options)


def whole(model):
    """Return the parameters of a model, flat, in float64."""
    every = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in model.parameters()]
    return torch.cat([each.detach().double().flatten() for each in every])
