"""Units, rules, momentum and masks that must be accepted and trained correctly."""

from __future__ import annotations

import torch
from harness import Task, Verdict, flat, plain_gradients, train, trained_right, training_of, valid
from materials import classify, listed, perceptron, points
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import privet

DATA = points()


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
@valid(fast=True)
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
