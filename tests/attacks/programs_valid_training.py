"""Ways to write models, losses and batches that must be accepted and trained correctly."""

from __future__ import annotations

from collections import UserDict, namedtuple

import torch
from harness import Task, Verdict, trained_right, valid
from materials import CLASSES, WIDTH, Body, Listed, classify, listed, model_of, perceptron, points
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Subset, TensorDataset, default_collate

DATA = points()


def right(make, loss=classify, data=DATA, *, tolerance=1e-3, **options) -> Verdict:
    """Return the verdict on a model or loss on points."""
    return trained_right(Task(make, loss, **options), data, remove=(0, 5), tolerance=tolerance)


def body(forward):
    """Return a factory of two layers with this forward."""
    return lambda: model_of(forward, inner=nn.Linear(WIDTH, 7), outer=nn.Linear(7, CLASSES))


@valid()
def checkpointing_without_reentry():
    """As torch recommends it."""
    return right(body(lambda self, x: self.outer(checkpoint(lambda v: self.inner(v).tanh(), x, use_reentrant=False))))


@valid()
def checkpointing_with_reentry():
    """The older kind, which runs a backward pass within the backward pass."""

    def forward(self, x):
        return checkpoint(lambda v: self.outer(v.tanh()), self.inner(x), use_reentrant=True)

    return right(body(forward))


class Encoding(UserDict):
    """A mapping such as tokenizers return, with a device."""

    def to(self, device):
        return Encoding({name: value.to(device) for name, value in self.items()})


@valid()
def mapping_of_the_users_own():
    """Collate returns a UserDict."""

    def collate(items):
        x, y = default_collate(items)
        return Encoding(inputs=x, labels=y)

    loss = lambda model, batch: F.cross_entropy(model(batch["inputs"]), batch["labels"], reduction="none")
    return right(perceptron, loss, listed(DATA), collate=collate)


Pair = namedtuple("Pair", "inputs labels")


@valid()
def named_tuples_and_nested_dicts():
    """Items are named tuples with a dict in them."""
    items = [Pair({"x": x, "scale": torch.tensor(1.5)}, int(y)) for x, y in DATA]

    def loss(model, batch):
        return F.cross_entropy(model(batch.inputs["x"]) * batch.inputs["scale"][:, None], batch.labels, reduction="none")

    return right(perceptron, loss, Listed(items))


@valid()
def texts_padded_to_the_longest_with_a_mask():
    """The padding has no effect, as the mean covers words only."""

    def forward(self, text):
        mask = (text != 0).float()[..., None]
        return self.out((self.table(text) * mask).sum(1) / mask.sum(1).clamp(min=1))

    collate = lambda items: (pad_sequence([t for t, _ in items], batch_first=True), torch.tensor([y for _, y in items]))
    items = [(torch.randint(1, 13, (2 + k % 7,)), k % CLASSES) for k in range(16)]
    make = lambda: model_of(forward, table=nn.Embedding(13, 6), out=nn.Linear(6, CLASSES))
    return right(make, classify, Listed(items), collate=collate)


@valid()
def distillation_from_a_frozen_teacher():
    """The teacher is outside the model, and frozen."""
    torch.manual_seed(1)
    teacher = perceptron().requires_grad_(False)

    def loss(model, batch):
        with torch.no_grad():
            target = teacher(batch[0]).softmax(1)
        return F.cross_entropy(model(batch[0]), target, reduction="none")

    return right(perceptron, loss)


@valid()
def model_compiled():
    """torch.compile with a backend that does not compile."""
    return right(lambda: torch.compile(perceptron(), backend="eager"))


@valid()
def forward_replaced_on_the_instance():
    """The module's `forward` is another function."""

    def make():
        model = Body()
        model.forward = lambda x: model.outer(model.hidden(x).square())
        return model

    return right(make)


@valid()
def function_of_the_old_kind():
    """A user-defined autograd function with `ctx` in its forward, which has no vmap rule."""

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, grad):
            return grad

    return right(body(lambda self, x: self.outer(Straight.apply(self.inner(x)))))


@valid()
def gradient_within_the_model():
    """`torch.func.grad` of an energy by its input."""

    def forward(self, x):
        energy = lambda v: self.inner(v).tanh().sum()
        return self.outer(F.pad(torch.func.grad(energy)(x), (0, 2)))

    return right(body(forward))


@valid()
def losses_from_a_dict_of_outputs():
    """The model returns a dict, the loss adds two of its entries."""

    def forward(self, x):
        h = self.inner(x).tanh()
        return {"logits": self.outer(h), "penalty": h.square().sum(1)}

    def loss(model, batch):
        out = model(batch[0])
        return F.cross_entropy(out["logits"], batch[1], reduction="none") + 0.1 * out["penalty"]

    return right(body(forward), loss)


@valid()
def autocast_to_bfloat16():
    """Forward under autocast."""

    def loss(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(batch[0]).float(), batch[1], reduction="none")

    return right(perceptron, loss, tolerance=0.02)


@valid()
def model_in_double_precision():
    """float64 throughout."""
    data = TensorDataset(DATA.tensors[0].double(), DATA.tensors[1])
    return right(lambda: perceptron().double(), classify, data, tolerance=1e-6)


@valid()
def partly_frozen_model():
    """Only the last layer and a bias are trained."""

    def make():
        model = perceptron()
        model[0].weight.requires_grad_(False)
        return model

    return right(make)


@valid()
def batch_norm_in_evaluation_mode():
    """Its statistics are constants; its weights are trained."""

    def make():
        model = nn.Sequential(nn.Linear(WIDTH, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, CLASSES))
        model[1].eval()
        return model

    return right(make)


@valid()
def parameter_that_is_not_used():
    """A layer does not affect the loss."""

    def make():
        model = Body()
        model.idle = nn.Linear(3, 3)
        return model

    return right(make)


@valid()
def disjoint_subsets():
    """A subset of a subset, without repetitions."""
    parts = Subset(Subset(listed(DATA), range(1, 18)), [3, 1, 2, 10, 9, 4])
    return trained_right(Task(perceptron, classify), parts, remove=())


@valid()
def small_physical_batches():
    """Five examples at a time."""
    return right(perceptron, options={"physical_batch_size": 5})
