"""Ways to write models, losses and batches, units, rules, momentum and masks that must be accepted and trained correctly."""

from __future__ import annotations

from collections import UserDict, namedtuple

import torch
from harness import Task, Verdict, flat, plain_gradients, train, trained_right, training_of, valid
from materials import CLASSES, WIDTH, Body, Listed, classify, listed, model_of, perceptron, points
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Subset, TensorDataset, default_collate

import privet

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


@valid()
def dropout_differs_between_examples():
    """Twenty equal examples do not all have the same mask."""
    make = lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(40, 1, bias=False))
    data = TensorDataset(torch.ones(20, 40), torch.zeros(20))
    outcome = train(Task(make, lambda model, batch: model(batch[0])[:, 0], bound=1e3), data)
    if outcome.change is None:
        return Verdict(False, f"wrongly refused: {outcome.refusal or outcome.stop}")
    counts = (outcome.change / 2).round()
    return Verdict(bool((counts % 20 != 0).any()), "masks differ" if bool((counts % 20 != 0).any()) else "all masks are equal")


# ---------------------------------------------------------------- units, rules and momentum
@valid()
def users_with_several_examples():
    """A user's mean loss is clipped as one."""
    ids = [k % 6 for k in range(18)]

    def make_users(left: list[int]):
        rows = [k for k in range(18) if ids[k] in left]
        data = TensorDataset(*(tensor[rows] for tensor in DATA.tensors))
        users = privet.units.Users(data, [ids[k] for k in rows], cap=5)
        users.without = lambda index: make_users(left[:index] + left[index + 1 :])
        return users

    def alone(model, index):
        rows = [k for k in range(18) if ids[k] == index]
        return classify(model, tuple(tensor[rows] for tensor in DATA.tensors)).mean()

    task = Task(perceptron, privet.units.grouped(classify), alone=alone, plan={"unit": "one user"})
    return trained_right(task, make_users(list(range(6))), remove=(0, 3))


@valid()
def views_of_each_example():
    """Two views are averaged before an example is clipped."""
    loss = privet.units.averaged(classify, lambda batch: (batch[0] * 0.5, batch[1]), 2)
    alone = lambda model, index: classify(
        model, (DATA.tensors[0][index : index + 1] * 0.5, DATA.tensors[1][index : index + 1])
    ).sum()
    return trained_right(Task(perceptron, loss, alone=alone), DATA, remove=(0, 5))


def clipped(gradients: dict[str, Tensor], bound: float, factor: float = 1.0) -> dict[str, Tensor]:
    """Return gradients times a factor, clipped together."""
    weight = factor * min(1.0, bound / (factor * float(flat(gradients).norm())))
    return {name: weight * gradient for name, gradient in gradients.items()}


@valid()
def inner_momentum():
    """Gradients at past parameters, here equal to the present ones, are added before clipping."""
    weights = lambda gradients: clipped(gradients, 1.0, 1.9)
    plan = {"momentum": privet.momentum.InnerOuter(inner=0.9, outer=1.0, length=1)}
    return trained_right(Task(perceptron, classify, steps=2, weights=weights, plan=plan), DATA, remove=(0, 5))


@valid()
def momentum_of_each_example():
    """Averages of each example's gradients, which are all equal here."""
    weights = lambda gradients: clipped(gradients, 1.0)
    plan = {"momentum": privet.momentum.PerExample(decay=0.3)}
    return trained_right(Task(perceptron, classify, steps=3, weights=weights, plan=plan), DATA, remove=(0, 5))


@valid()
def layers_clipped_by_themselves():
    """A bound of 1/√2 for each of two layers."""

    def weights(gradients):
        found = {}
        for layer in ("0.", "2."):
            found.update(clipped({name: g for name, g in gradients.items() if name.startswith(layer)}, 2**-0.5))
        return found

    rule = privet.clipping.Layerwise(privet.clipping.Flat(1.0))
    return trained_right(Task(perceptron, classify, clipping=rule, weights=weights), DATA, remove=(0, 5))


@valid()
def random_masks():
    """Coordinates outside a mask count neither in the sum nor in the norm."""
    plan = {"sparsification": privet.sparsification.Random(final_rate=0.5)}
    task = Task(perceptron, classify, steps=4, plan=plan)
    outcome = train(task, DATA)
    if outcome.change is None:
        return Verdict(False, f"wrongly refused: {outcome.refusal or outcome.stop}")
    kept = outcome.change != 0
    masked = [flat(gradient) * kept for gradient in plain_gradients(task, DATA)]
    expected = sum(gradient * min(1.0, 1 / float(gradient.norm())) for gradient in masked)
    off = float((outcome.change - expected).norm() / expected.norm())
    return Verdict(
        off < 1e-3 and 0 < float(kept.double().mean()) < 1, f"off by {off:.2g} with {float(kept.double().mean()):.2f} kept"
    )


@valid()
def noise_and_sampling_as_usual():
    """Poisson sampling, noise, a scheduler, weight averaging and reading by workers: accepted and run."""
    plan = {"sampling": privet.sampling.Poisson(6), "noise": privet.noise.Gaussian(1.0)}
    training = training_of(Task(perceptron, classify, steps=5, plan=plan), listed(DATA))
    training.run()
    return Verdict(training.steps_spent == 5, f"{training.steps_spent} steps")
