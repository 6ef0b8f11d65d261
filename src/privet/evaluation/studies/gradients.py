"""What clipping and noise do to the gradients of one batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.clipping import Rule
from privet.errors import InvalidArgumentError
from privet.evaluation.studies.marking import NonPrivate
from privet.evaluation.studies.mechanism import Mechanism
from privet.gradients import trainable
from privet.gradients.core.examples import count_examples
from privet.gradients.core.losses import LossFunction
from privet.gradients.engine import tapes
from privet.gradients.masking.masks import prepare_masks
from privet.gradients.methods.tape import Tape, precise_norms

Gradients = Mapping[str, Tensor]


@dataclass(frozen=True, repr=False)
class Observation(NonPrivate):
    """The gradients of a batch, before and after a mechanism.

    Args:
        step: after which the parameters were looked at; 0 for none.
        norms: L2 norm of every example's gradient over all parameters.
        gradient_norm: L2 norm of their mean, the batch's gradient without privacy.
        mean_weight: mean of the rule's weights, over examples and groups.
        clipped_share: share of the examples that the rule shortens in some group (weight below 1).
        clipped_similarity: cosine of the mean gradient with and without clipping; NaN if one of them is 0.
        noised_similarity: cosine of the mean gradient without privacy with the clipped and noised one, for one draw of the noise.
        signal_to_noise: module → norm of the clipped mean gradient of its parameters over the expected norm of their noise;
            infinite without noise.
    """

    step: int
    norms: tuple[float, ...]
    gradient_norm: float
    mean_weight: float
    clipped_share: float
    clipped_similarity: float
    noised_similarity: float
    signal_to_noise: Mapping[str, float] = field(hash=False)

    def summary(self) -> str:
        """Return the numbers that fit on a line."""
        return (
            f"step {self.step}, {len(self.norms)} examples with median norm {np.median(self.norms):.4g}, "
            f"{self.clipped_share:.1%} clipped, mean weight {self.mean_weight:.4g}, cosine to the gradient without privacy "
            f"{self.clipped_similarity:.4f} clipped and {self.noised_similarity:.4f} noised"
        )


@dataclass(frozen=True, eq=False)
class Clipped:
    """The gradients of a batch's examples under a rule.

    Args:
        norms: (G, B) of the rule's groups.
        weights: (G, B) that the rule gives them.
        mean: name → mean gradient without clipping, over the examples whose gradients are finite.
        clipped: name → the mean of the weighted gradients, over all B examples.
    """

    norms: Tensor
    weights: Tensor
    mean: Gradients
    clipped: Gradients


def observe(
    model: nn.Module, loss_fn: LossFunction, batch: Any, mechanism: Mechanism, *, step: int = 0, seed: int = 0
) -> Observation:
    """Return what a mechanism does to the gradients of a batch. The result is NOT PRIVATE, whatever the mechanism.

    Args:
        model: in the mode that is meant; nothing is written to it, and torch's random generators are left as they were.
        loss_fn: (model, batch) → (B,) losses.
        batch: B ≥ 1 examples; public ones, or private ones whose owners know that the result is no release.
        mechanism: the rule and its noise; `Mechanism.of(plan)`.
        step: written into the result.
        seed: of the noise, which is no secret.

    Raises:
        InvalidArgumentError: the batch is empty.

    Source:
        Huang et al., "Enhancing DP-SGD through Non-monotonous Adaptive Scaling Gradient Weight", §V-A (gradient similarity,
        gradient scaling weight) and Fig. 2 (norms).

    >>> from privet.clipping import Flat
    >>> layer, x = nn.Linear(2, 1, bias=False), torch.tensor([[3.0, 4.0], [0.0, 0.5]])
    >>> found = observe(layer, lambda model, batch: model(batch)[:, 0], x, Mechanism(Flat(bound=1.0)))
    >>> found.norms, found.clipped_share, round(found.mean_weight, 4), found.private
    ((5.0, 0.5), 0.5, 0.6, False)
    """
    found = clipped_gradients(model, loss_fn, batch, mechanism.rule)
    names = tuple(found.mean)
    scales = mechanism.rule.noise_scales(names)
    generator = torch.Generator().manual_seed(seed)
    deviations = {name: mechanism.deviation * scales.get(name, 1.0) for name in names}
    noised = {name: value + deviations[name] * _normals(value, generator) for name, value in found.clipped.items()}
    return Observation(
        step=step,
        norms=tuple(found.norms.square().sum(0).sqrt().tolist()),
        gradient_norm=length(found.mean),
        mean_weight=float(found.weights.double().mean()),
        clipped_share=float((found.weights < 1).any(0).double().mean()),
        clipped_similarity=cosine(found.mean, found.clipped),
        noised_similarity=cosine(found.mean, noised),
        signal_to_noise={module: _ratio(found.clipped, deviations, members) for module, members in _modules(names).items()},
    )


def clipped_gradients(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    rule: Rule,
    *,
    masks: Mapping[str, Tensor] | None = None,
    method: str = "auto",
) -> Clipped:
    """Return the gradients of a batch's examples before and after clipping, by exact norms also where a rule estimates them.

    Args:
        model, loss_fn, batch: as for `observe`.
        rule: any.
        masks: name → True where an entry is kept: m∘g takes the place of g.
        method: as for `privet.per_example_gradients`.
    """
    if count_examples(batch) == 0:
        raise InvalidArgumentError("batch", "empty", "at least one example")
    parameters = trainable(model)
    known = prepare_masks(masks or {}, parameters)
    with unmoved_generators(model):
        covering = [(index, tape.mask(known)) for index, tape in tapes(model, loss_fn, batch, parameters, method)]
    found = [tape for _, tape in covering]
    groups = rule.groups(tuple(parameters))
    norms = torch.cat([precise_norms(tape, groups) for tape in found], dim=1)
    weights = rule.weights(norms)
    finite = norms.isfinite().all(0)
    order = torch.cat([index for index, _ in covering]).argsort()
    return Clipped(
        norms[:, order],
        weights[:, order],
        _weighted_mean(found, groups, torch.ones_like(norms), finite, int(finite.sum())),
        _weighted_mean(found, groups, weights, finite, norms.shape[1]),
    )


def _weighted_mean(
    found: Sequence[Tape], groups: Sequence[Sequence[str]], weights: Tensor, kept: Tensor, divisor: int
) -> dict[str, Tensor]:
    """Return name → Σᵢ wᵢ·gᵢ / divisor over the kept examples, in float64, for weights (G, B)."""
    total: dict[str, Tensor] = {}
    start = 0
    for tape in found:
        stop = start + tape.examples
        rows = kept[start:stop].nonzero().flatten()
        part = tape.index_select(rows).weighted_sum(groups, weights[:, start:stop][:, rows])
        total = {name: total.get(name, 0.0) + value.double() for name, value in part.items()}
        start = stop
    return {name: value / max(1, divisor) for name, value in total.items()}


@contextmanager
def unmoved_generators(model: nn.Module) -> Iterator[None]:
    """Leave torch's random generators as they are: a training that is looked at goes on as if it were not."""
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    with torch.random.fork_rng(devices=[device.index for device in devices]):
        yield


def length(gradients: Gradients) -> float:
    """Return the L2 norm of all of them together."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in gradients.values()))


def cosine(one: Gradients, other: Gradients) -> float:
    """Return the cosine of the angle between two gradients; NaN if one has no direction."""
    product = sum(float((one[name].double() * other[name].double()).sum()) for name in one)
    sizes = length(one) * length(other)
    return product / sizes if sizes else math.nan


def _modules(names: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def _ratio(clipped: Gradients, deviations: Mapping[str, float], names: Sequence[str]) -> float:
    noise = math.sqrt(sum(deviations[name] ** 2 * clipped[name].numel() for name in names))
    return length({name: clipped[name] for name in names}) / noise if noise else math.inf


def _normals(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.device)
