"""Effect of clipping and noise on the gradients of one batch."""

from __future__ import annotations

__all__ = [
    "ClippedGradients",
    "Gradients",
    "Observation",
    "compute_clipped_gradients",
    "cosine_similarity",
    "l2_norm",
    "observe",
    "preserve_random_state",
]

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
from privet.gradients import trainable
from privet.gradients.core.examples import count_examples
from privet.gradients.core.losses import LossFunction
from privet.gradients.engine import tapes
from privet.gradients.masking.masks import prepare_masks
from privet.gradients.methods.tape import Tape, precise_norms
from privet_experiments.studies.marking import NonPrivate
from privet_experiments.studies.mechanism import Mechanism

Gradients = Mapping[str, Tensor]


@dataclass(frozen=True, repr=False)
class Observation(NonPrivate):
    """The gradients of a batch, before and after a mechanism.

    Args:
        step: number of training steps before the observation.
        norms: L2 norm of each example's gradient over all parameters.
        gradient_norm: L2 norm of the non-private mean gradient.
        mean_weight: mean of the rule's weights over examples and groups.
        clipped_share: fraction of the examples that the rule shortens in some group (weight below 1).
        clipped_similarity: cosine similarity of the mean gradients with and without clipping; NaN if one of them is 0.
        noised_similarity: cosine similarity of the non-private mean gradient to the clipped and noised one, for one draw of the
            noise.
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
        """Return the main numbers in one line."""
        return (
            f"step {self.step}, {len(self.norms)} examples with median norm {np.median(self.norms):.4g}, "
            f"{self.clipped_share:.1%} clipped, mean weight {self.mean_weight:.4g}, cosine similarity to the non-private "
            f"gradient {self.clipped_similarity:.4f} clipped and {self.noised_similarity:.4f} noised"
        )


@dataclass(frozen=True, eq=False)
class ClippedGradients:
    """The gradients of a batch before and after clipping.

    Args:
        norms, weights: (G, B) for the rule's groups.
        mean: name → mean gradient without clipping, over the examples with finite gradients.
        clipped: name → mean of the weighted gradients over all B examples.
    """

    norms: Tensor
    weights: Tensor
    mean: Gradients
    clipped: Gradients


def observe(
    model: nn.Module, loss_fn: LossFunction, batch: Any, mechanism: Mechanism, *, step: int = 0, seed: int = 0
) -> Observation:
    """Measure the effect of a mechanism on the gradients of a batch. The result is NOT PRIVATE, whatever the mechanism.

    Args:
        model: the model, in its training or evaluation mode; neither it nor torch's random state is changed.
        loss_fn: (model, batch) → (B,) losses.
        batch: B ≥ 1 examples, preferably public; with private ones, the result must not be released.
        mechanism: the clipping rule and its noise, such as `Mechanism.of(plan)`.
        step: step number for the result.
        seed: seed of the noise, which is not secret here.

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
    found = compute_clipped_gradients(model, loss_fn, batch, mechanism.rule)
    names = tuple(found.mean)
    scales = mechanism.rule.noise_scales(names)
    generator = torch.Generator().manual_seed(seed)
    deviations = {name: mechanism.deviation * scales.get(name, 1.0) for name in names}
    noised = {name: value + deviations[name] * _draw_normals(value, generator) for name, value in found.clipped.items()}
    return Observation(
        step=step,
        norms=tuple(found.norms.square().sum(0).sqrt().tolist()),
        gradient_norm=l2_norm(found.mean),
        mean_weight=float(found.weights.double().mean()),
        clipped_share=float((found.weights < 1).any(0).double().mean()),
        clipped_similarity=cosine_similarity(found.mean, found.clipped),
        noised_similarity=cosine_similarity(found.mean, noised),
        signal_to_noise={
            module: _signal_to_noise(found.clipped, deviations, members) for module, members in _group_by_module(names).items()
        },
    )


def compute_clipped_gradients(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    rule: Rule,
    *,
    masks: Mapping[str, Tensor] | None = None,
    method: str = "auto",
) -> ClippedGradients:
    """Return the gradients of a batch before and after clipping, by exact norms even for a rule that estimates norms.

    Args:
        masks: name → mask, True for kept coordinates; m∘g replaces g.
    """
    if count_examples(batch) == 0:
        raise InvalidArgumentError("batch", "empty", "at least one example")
    parameters = trainable(model)
    known = prepare_masks(masks or {}, parameters)
    with preserve_random_state(model):
        covering = [(index, tape.mask(known)) for index, tape in tapes(model, loss_fn, batch, parameters, method)]
    found = [tape for _, tape in covering]
    groups = rule.groups(tuple(parameters))
    norms = torch.cat([precise_norms(tape, groups) for tape in found], dim=1)
    weights = rule.weights(norms)
    finite = norms.isfinite().all(0)
    order = torch.cat([index for index, _ in covering]).argsort()
    return ClippedGradients(
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
def preserve_random_state(model: nn.Module) -> Iterator[None]:
    """Restore torch's random state at the end, so that an observation does not change the training."""
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    with torch.random.fork_rng(devices=[device.index for device in devices]):
        yield


def l2_norm(gradients: Gradients) -> float:
    """Return the L2 norm over all parameters."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in gradients.values()))


def cosine_similarity(one: Gradients, other: Gradients) -> float:
    """Return the cosine similarity of two gradients; NaN if one of them is 0."""
    product = sum(float((one[name].double() * other[name].double()).sum()) for name in one)
    sizes = l2_norm(one) * l2_norm(other)
    return product / sizes if sizes else math.nan


def _group_by_module(names: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def _signal_to_noise(clipped: Gradients, deviations: Mapping[str, float], names: Sequence[str]) -> float:
    noise = math.sqrt(sum(deviations[name] ** 2 * clipped[name].numel() for name in names))
    return l2_norm({name: clipped[name] for name in names}) / noise if noise else math.inf


def _draw_normals(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.device)
