"""Whether a loss means the same for examples in a batch and for each alone: in-batch negatives, mixup and balancing do not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from privet._utils.randomness import seed_generators
from privet.errors import UnsupportedModelError
from privet.gradients.core.examples import Examples
from privet.gradients.core.losses import uncompiled
from privet.gradients.core.randomness import Draws
from privet.gradients.layers.random import Draw
from privet.gradients.methods.calls import GuardedCalls
from privet.gradients.methods.ghost import Subject
from privet.gradients.methods.past_iterates import holding
from privet.gradients.probe.synthetic_batch import join, joinable

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
_LOOSE = 3e-2
_STEP = 0.1  # to parameters that are not the initial ones
_MIDDLE = 15  # numbers of which the median is taken


class _Steady(Draw):
    """Draws numbers that are the same in all places, so that a batch and an example alone get the same."""

    def __init__(self) -> None:
        super().__init__(Draws(1, lambda: 0), None)

    def __call__(self, fill: Callable[[Tensor, torch.Generator], Tensor], like: Tensor) -> Tensor:
        """Return the median of some numbers everywhere."""
        drawn = fill(torch.empty(_MIDDLE, dtype=like.dtype, device=like.device), torch.Generator(like.device).manual_seed(0))
        return drawn.flatten().sort().values[_MIDDLE // 2].expand(like.shape).clone()


class _SteadyCalls(GuardedCalls):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.randperm:  # what mixes examples has to be seen
            return torch.arange(args[0]).flip(0)
        return super().__torch_function__(func, types, args, kwargs)


@contextlib.contextmanager
def inner_dropout_off(model: nn.Module) -> Iterator[None]:
    """Switch off the dropout that recurrent and attention layers apply inside one call of torch."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, nn.RNNBase | nn.MultiheadAttention)]
    before = [layer.dropout for layer in layers]
    for layer in layers:
        layer.dropout = 0.0
    try:
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.dropout = value


def _losses(subject: Subject, batch: Any, seed: int = 0) -> Tensor:
    """Return what the loss function returns for a plain batch, with steady random numbers; nothing outlives it.

    Args:
        subject: whose loss is asked.
        batch: plain.
        seed: of what is drawn in ways that cannot be made steady.
    """
    seed_generators(seed)
    steady = _SteadyCalls(subject.guard, _Steady())
    with torch.no_grad(), uncompiled(), inner_dropout_off(subject.model), subject.guard.fresh(), steady:
        return subject.loss_fn(subject.model, batch).detach()


def differing_losses(subject: Subject, examples: Examples, joined: Any) -> tuple[Tensor, Tensor] | None:
    """Return the losses of examples alone and in a batch if they differ; None if they do not, or cannot be compared.

    Args:
        subject: whose loss is asked.
        examples: public ones, of one structure.
        joined: the same as one plain batch.
    """

    def alone_with(seed: int) -> Tensor:
        each = (_losses(subject, _cloned(examples.one(position)), seed) for position in range(examples.count))
        return torch.cat([losses.reshape(-1) for losses in each])

    try:
        together, alone = _losses(subject, joined), alone_with(0)
        if any(not torch.equal(alone, alone_with(seed)) for seed in (1, 2, 3)):
            return None
    except Exception:  # a program that takes one example only is none that a batch could change
        return None
    if together.shape != alone.shape or not together.is_floating_point():
        return None
    low = torch.finfo(together.dtype).bits < 32 or torch.is_autocast_enabled("cpu")
    tolerance = _LOOSE if low else _TOLERANCE.get(together.dtype, _LOOSE)
    size = tolerance * float(torch.stack([together, alone]).double().nan_to_num().abs().max())
    same = torch.allclose(together.double(), alone.double(), rtol=tolerance, atol=size, equal_nan=True)
    return None if same else (alone, together)


def _cloned(batch: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)


def refuse_in_batch_loss(subject: Subject, examples: Examples) -> None:
    """Refuse a loss that compares or mixes the examples of a batch: one example at a time, it would silently be another loss.

    Raises:
        UnsupportedModelError: it is one.
    """
    if examples.count < 2 or not joinable(examples):
        return
    generator = torch.Generator().manual_seed(0)
    moved = {name: p.detach() + _STEP * torch.randn(p.shape, generator=generator).to(p) for name, p in subject.parameters.items()}
    different = differing_losses(subject, examples, _cloned(join(examples))) is not None
    # Parameters that are zero at the start may hide what a loss compares.
    with holding(subject.parameters, moved):
        different = different or differing_losses(subject, examples, _cloned(join(examples))) is not None
    if different:
        raise UnsupportedModelError(
            "the loss of an example changes with its neighbours in the batch (a contrastive loss, mixup, load balancing or batch "
            "statistics, say). It would be computed for each example alone, where it means something else, and no clipping "
            "could bound "
            "it otherwise: compute each example's loss from that example"
        )
