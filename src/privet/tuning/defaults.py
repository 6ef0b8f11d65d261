"""Defaults: model, clip bound, batch, steps and learning rate from public facts, by a rule with measured constants.

Let B be the expected batch size, T the number of steps, C the clip bound, σ the noise multiplier and m the momentum. SGD moves a
parameter by at most η·C/(1 − m) per step, and the noise of all steps adds η/(1 − m)·(σ·C/B)·√T to it, as a standard deviation.
Two limits give the learning rate η:

- the noise that has gathered in a parameter at the end stays at most `weight_noise`;
- a step stays at most `travel` long, measured as η·C/(1 − m), so that training is stable when there is hardly any noise.

With full batches σ is about √T/µ, where µ(ε, δ) describes the Gaussian mechanism, so the first limit makes η fall as 1/T: the way
that the parameters can go, N·µ·`weight_noise`, does not depend on T, and more steps ruin nothing. Steps beyond those that both
limits allow gain little, so T is their number within a range that time allows, and B spends the rest of the time. Batches below N
lose nothing as long as σ stays above 1 or so.

Adam and RMSprop divide by the size of their input, noise included. Under much noise they take steps of about η in random
directions, whatever σ and B are, so η·√T gathers in a parameter, and η is `weight_noise`/√T. Adagrad's steps shrink as 1/√t, and
η·√(1 + log T) gathers.

The shape of the rule is that of the learning rate R/(√T·√(1 + d·σ²/B²)) of Bassily, Smith, Thakurta 2014, "Private Empirical Risk
Minimization", Theorem 2.4, whose second term it keeps. The constants are measured: see
docs/results/defaults.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from privet.accounting.classic import gaussian
from privet.errors import InvalidArgumentError, between, choice, count, positive, real
from privet.plan import Plan

TASKS = ("classification", "regression")
_MOMENTUM = 0.9
# For optimizers that divide by the size of their input: η·√T over `weight_noise`, measured. Uncorrected averages start small.
_ADAPTIVE = {"adam": 1.0, "adamw": 1.0, "adam-uncorrected": 0.3, "rmsprop": 0.5}
# For optimizers without a rule: Adam without the noise's bias divides by less than the noise, by how much is unknown.
_OTHER_RATE = 2e-3
# NAG's last moves add up about T over this many releases.
_NAG_SHARE = 4.0
_SGD = ("sgd", "heavy-ball", "nesterov")
# N·µ per input, above which a hidden layer gains more than its noise costs: for tables, and for inputs of unknown scale.
_SIGNAL_FOR_TABLE, _SIGNAL_FOR_MLP = 50, 100
_SMALLEST_IMAGE = 14
_SMALLEST_BATCH, _FEWEST_PASSES = 256, 10
# Of convex training: Λ·ε, measured on tables of 1,279 to 464,810 rows (docs/results/convex.md).
_STRENGTHS = {"objective": 4.0, "output": 64.0}


@dataclass(frozen=True)
class _Family:
    """Measured constants of some networks; pairs are for classification and regression."""

    bound: float  # clip bound C
    weight_noise: tuple[float, float]  # largest standard deviation of the noise in a parameter at the end
    travel: tuple[float, float]  # largest η·C/(1 − m) of a step
    steps: tuple[int, int]  # fewest and most
    reads: float  # examples that all steps read together, which is what a run costs
    physical_batch_size: int  # examples that go through the model at once


_LINEAR = _Family(bound=1.0, weight_noise=(0.5, 0.07), travel=(30.0, 3.0), steps=(100, 500), reads=2e6, physical_batch_size=2048)
_TABLE = _Family(bound=1.0, weight_noise=(0.5, 0.07), travel=(10.0, 3.0), steps=(100, 1000), reads=2e6, physical_batch_size=2048)
_DENSE = _Family(bound=1.0, weight_noise=(0.2, 0.07), travel=(10.0, 3.0), steps=(100, 1000), reads=1e6, physical_batch_size=1024)
_EDGES = _Family(bound=0.1, weight_noise=(0.15, 0.07), travel=(8.0, 1.0), steps=(100, 700), reads=1.2e6, physical_batch_size=1024)
_CNN = _Family(bound=0.1, weight_noise=(0.08, 0.07), travel=(3.0, 1.0), steps=(100, 700), reads=7.2e5, physical_batch_size=1024)
# Their activations may take much more memory.
_OTHERS = replace(_CNN, physical_batch_size=256)
# All other networks are convolutional, or made for features of images and sentences.
_FAMILIES = {
    "logistic": _LINEAR,
    "linear": _LINEAR,
    "table": _TABLE,
    "mlp": _DENSE,
    "regression-mlp": _DENSE,
    "edge-cnn": _EDGES,
    "cnn": _CNN,
}


@dataclass(frozen=True)
class Defaults:
    """Settings for a run, all from public facts."""

    bound: float  # clip bound C
    batch_size: float  # expected batch size B, from 1 to the number of examples
    steps: int  # T ≥ 1
    momentum: float  # m in [0, 1)
    physical_batch_size: int


def choose_model(
    examples: int, input_shape: tuple[int, ...], *, task: str, schema: bool, epsilon: float | None, delta: float
) -> str:
    """Return the name of a network that this much signal supports.

    Images of at least 14 pixels a side get the network "edge-cnn". A table with a schema gets "table", and other inputs "mlp",
    if N·µ(ε, δ) per input is large enough for a hidden layer; else a linear model, to which noise does the least harm. An unknown
    ε counts as 1.

    >>> choose_model(39_074, (105,), task="classification", schema=True, epsilon=3.0, delta=2.5e-6)
    'table'
    >>> choose_model(300, (105,), task="regression", schema=True, epsilon=1.0, delta=3e-4)
    'linear'
    """
    choice("task", task, TASKS)
    if len(input_shape) == 3 and min(input_shape[1:]) >= _SMALLEST_IMAGE and task == "classification":
        return "edge-cnn"
    signal = count("examples", examples) * _find_mu(1.0 if epsilon is None else epsilon, delta)
    if signal >= (_SIGNAL_FOR_TABLE if schema else _SIGNAL_FOR_MLP) * math.prod(input_shape):
        return "table" if schema else "mlp" if task == "classification" else "regression-mlp"
    return "logistic" if task == "classification" else "linear"


def choose_defaults(
    model: str,
    examples: int,
    *,
    task: str = "classification",
    epsilon: float | None,
    delta: float,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: float | None = None,
    reads: float | None = None,
) -> Defaults:
    """Return settings for a run; what is given is kept, and the rest adapts to it. Only public facts are used.

    Args:
        model: name of the network.
        examples: public number of examples N ≥ 1, or of the units that are clipped as a whole.
        task: "classification" or "regression".
        epsilon: target ε > 0; None if it is not known yet, for the fewest steps.
        delta: δ in (0, 1).
        steps, epochs: number of steps, or of passes over the data, if one of them is given.
        batch_size: expected batch size, if it is given.
        reads: limit on the number of examples that all steps read together; for smaller batches, unless these are given.

    >>> choose_defaults("logistic", 1437, epsilon=3.0, delta=7e-5)
    Defaults(bound=1.0, batch_size=1437, steps=100, momentum=0.9, physical_batch_size=2048)
    >>> choose_defaults("logistic", 1437, epsilon=3.0, delta=7e-5, steps=3000).batch_size
    667
    >>> choose_defaults("logistic", 1437, epsilon=3.0, delta=7e-5, reads=1e5).batch_size
    1000
    """
    family = _FAMILIES.get(model, _OTHERS)
    for name, value in (("steps", steps), ("epochs", epochs), ("batch_size", batch_size), ("reads", reads)):
        if value is not None:
            positive(name, value)
    if steps is not None and epochs is not None:
        raise InvalidArgumentError("epochs", epochs, "left out when steps are given", "Choose one of the two.")
    fewest, most = family.steps
    useful = fewest
    if epsilon is not None:
        noise, travel = _limits(family, task)
        way = count("examples", examples) * _find_mu(epsilon, delta) * noise
        useful = round(min(max(fewest, way / travel), most))
    if epochs is not None:
        size = batch_size or _fit(epochs * examples / fewest, examples)
        number = max(1, math.floor(epochs * examples / size))
    else:
        # A small batch that was asked for takes more steps to see every example a few times.
        passes = 0.0 if batch_size is None else _FEWEST_PASSES * examples / batch_size
        number = steps or max(useful, math.ceil(passes))
        size = batch_size or _fit(min(reads or math.inf, family.reads) / number, examples)
    return Defaults(family.bound, size, number, _MOMENTUM, family.physical_batch_size)


def choose_learning_rate(
    plan: Plan, model: str, *, task: str = "classification", optimizer: str = "sgd", momentum: float = _MOMENTUM
) -> float:
    """Return the largest learning rate that keeps within the limits on noise and steps; only public facts are used.

    It falls with the noise and, as calibrated noise grows with the steps, about as 1/T. It is the same function of η·C for every
    clip bound. "adam-bc" has no rule and gets 0.002, and the noise determines that of "sgld".

    >>> from privet import clipping, sampling
    >>> plan = Plan(examples=1437, sampling=sampling.FullBatch(), steps=100, clipping=clipping.Flat(1.0), delta=7e-5)
    >>> round(choose_learning_rate(plan.calibrate(3.0), "logistic"), 2)
    0.57
    """
    if not 0 <= real("momentum", momentum) < 1:
        raise InvalidArgumentError("momentum", momentum, "at least 0 and below 1", "A typical value is 0.9.")
    noise, travel = _limits(_FAMILIES.get(model, _OTHERS), task)
    if optimizer in _ADAPTIVE:
        return _ADAPTIVE[optimizer] * noise / math.sqrt(plan.total_steps)
    if optimizer == "adagrad":
        return noise / math.sqrt(1 + math.log(plan.total_steps))
    if optimizer == "nag":
        momentum = max(0.0, 1 - _NAG_SHARE / plan.total_steps)
    elif optimizer not in _SGD:
        return _OTHER_RATE
    sensitivity = plan.clipping.sensitivity if math.isfinite(plan.clipping.sensitivity) else 1.0
    gathered = plan.accumulated_noise() * sensitivity / plan.divisor
    return (1 - momentum) * min(travel / sensitivity, noise / gathered if gathered > 0 else math.inf)


def _find_mu(epsilon: float, delta: float) -> float:
    between("delta", delta, 0.0, 1.0)
    return gaussian.mu(positive("epsilon", epsilon), delta)


def _limits(family: _Family, task: str) -> tuple[float, float]:
    """Return the largest noise in a parameter and the longest step."""
    which = TASKS.index(choice("task", task, TASKS))
    return family.weight_noise[which], family.travel[which]


def _fit(size: float, examples: int) -> int:
    return round(min(max(size, _SMALLEST_BATCH), examples))


def choose_regularisation(mechanism: str, epsilon: float | None) -> float:
    """Return Λ for the sum of the losses of rows of norm at most 1; ε = None counts as 1. Only the target is used, no data.

    Noise on the objective moves the weights by about σ·L/(H + Λ) in a direction of curvature H, and σ grows as 1/ε; noise on the
    minimiser is σ·L/Λ in all directions, which calls for more.
    """
    return _STRENGTHS[choice("mechanism", mechanism, _STRENGTHS)] / positive("epsilon", 1.0 if epsilon is None else epsilon)
