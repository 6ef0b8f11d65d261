"""Ways to write models, losses and batches, units, rules, momentum and masks that must be accepted and trained correctly."""

from collections import UserDict, namedtuple

import torch
from harness import VALID, Task, Verdict, flat, forward_pass, plain_gradients, train, trained_right, training_of, valid
from materials import CLASSES, WIDTH, Body, Listed, body_of, classify, listed, model_of, perceptron, points
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Subset, TensorDataset, default_collate

import privet

DATA = points()


def right(make, loss=classify, data=DATA, *, tolerance=1e-3, **options) -> Verdict:
    """Return the verdict on a model or loss on points."""
    return trained_right(Task(make, loss, **options), data, tolerance=tolerance)


two_layers = forward_pass(VALID, DATA, trained_right, (0,), inner=lambda: nn.Linear(WIDTH, 7))


@two_layers
def checkpointing_without_reentry(self, x):
    """As torch recommends it."""
    return self.out(checkpoint(lambda v: self.inner(v).tanh(), x, use_reentrant=False))


@two_layers
def checkpointing_with_reentry(self, x):
    """The older kind, which runs a backward pass within the backward pass."""
    return checkpoint(lambda v: self.out(v.tanh()), self.inner(x), use_reentrant=True)


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


PAIRS = Listed(Pair({"x": x, "scale": torch.tensor(1.5)}, int(y)) for x, y in DATA)


@valid(lambda loss: right(perceptron, loss, PAIRS))
def named_tuples_and_nested_dicts(model, batch):
    """Items are named tuples with a dict in them."""
    return F.cross_entropy(model(batch.inputs["x"]) * batch.inputs["scale"][:, None], batch.labels, reduction="none")


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


def changed(change) -> Verdict:
    """Return the verdict on two layers after `change(model)`."""

    def make():
        model = Body()
        change(model)
        return model

    return right(make)


@valid(changed)
def forward_replaced_on_the_instance(model):
    """The module's `forward` is another function."""
    model.forward = lambda x: model.outer(model.hidden(x).square())


@two_layers
def function_of_the_old_kind(self, x):
    """A user-defined autograd function with `ctx` in its forward, which has no vmap rule."""

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, grad):
            return grad

    return self.out(Straight.apply(self.inner(x)))


@two_layers
def gradient_within_the_model(self, x):
    """`torch.func.grad` of an energy by its input."""
    energy = lambda v: self.inner(v).tanh().sum()
    return self.out(F.pad(torch.func.grad(energy)(x), (0, 2)))


def logits_and_penalty(self, x):
    h = self.hidden(x)
    return {"logits": self.outer(h), "penalty": h.square().sum(1)}


@valid(lambda loss: right(body_of(logits_and_penalty), loss))
def losses_from_a_dict_of_outputs(model, batch):
    """The model returns a dict, the loss adds two of its entries."""
    out = model(batch[0])
    return F.cross_entropy(out["logits"], batch[1], reduction="none") + 0.1 * out["penalty"]


@valid(lambda loss: right(perceptron, loss, tolerance=0.02))
def autocast_to_bfloat16(model, batch):
    """Forward under autocast."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model(batch[0]).float(), batch[1], reduction="none")


@valid()
def model_in_double_precision():
    """float64 throughout."""
    data = TensorDataset(DATA.tensors[0].double(), DATA.tensors[1])
    return right(lambda: perceptron().double(), classify, data, tolerance=1e-6)


@valid(changed)
def partly_frozen_model(model):
    """Only the last layer and a bias are trained."""
    model.inner.weight.requires_grad_(False)


@valid()
def batch_norm_in_evaluation_mode():
    """Its statistics are constants; its weights are trained."""
    return right(lambda: nn.Sequential(nn.Linear(WIDTH, 7), nn.BatchNorm1d(7).eval(), nn.Tanh(), nn.Linear(7, CLASSES)))


@valid(changed)
def parameter_that_is_not_used(model):
    """A layer does not affect the loss."""
    model.idle = nn.Linear(3, 3)


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
    differ = bool(((outcome.change / 2).round() % 20 != 0).any())
    return Verdict(differ, "masks differ" if differ else "all masks are equal")


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
    return trained_right(task, make_users(list(range(6))), remove=(3,))


@valid()
def views_of_each_example():
    """Two views are averaged before an example is clipped."""
    loss = privet.units.averaged(classify, lambda batch: (batch[0] * 0.5, batch[1]), 2)
    alone = lambda model, index: classify(
        model, (DATA.tensors[0][index : index + 1] * 0.5, DATA.tensors[1][index : index + 1])
    ).sum()
    return trained_right(Task(perceptron, loss, alone=alone), DATA)


def clipped(gradients: dict[str, Tensor], bound: float, factor: float = 1.0) -> dict[str, Tensor]:
    """Return gradients times a factor, clipped together."""
    weight = factor * min(1.0, bound / (factor * float(flat(gradients).norm())))
    return {name: weight * gradient for name, gradient in gradients.items()}


@valid()
def inner_momentum():
    """Gradients at past parameters, here equal to the present ones, are added before clipping."""
    weights = lambda gradients: clipped(gradients, 1.0, 1.9)
    plan = {"momentum": privet.momentum.InnerOuter(inner=0.9, outer=1.0, length=1)}
    return trained_right(Task(perceptron, classify, steps=2, weights=weights, plan=plan), DATA)


@valid()
def momentum_of_each_example():
    """Averages of each example's gradients, which are all equal here."""
    weights = lambda gradients: clipped(gradients, 1.0)
    plan = {"momentum": privet.momentum.PerExample(decay=0.3)}
    return trained_right(Task(perceptron, classify, steps=3, weights=weights, plan=plan), DATA)


@valid()
def layers_clipped_by_themselves():
    """A bound of 1/√2 for each of two layers."""

    def weights(gradients):
        found = {}
        for layer in ("0.", "2."):
            found.update(clipped({name: g for name, g in gradients.items() if name.startswith(layer)}, 2**-0.5))
        return found

    rule = privet.clipping.Layerwise(privet.clipping.Flat(1.0))
    return trained_right(Task(perceptron, classify, clipping=rule, weights=weights), DATA)


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
