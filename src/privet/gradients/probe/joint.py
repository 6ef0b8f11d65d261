"""Detection of losses that depend on the other examples of a batch: in-batch negatives, mixup, load balancing."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from privet._utils.randomness import seed_generators
from privet.errors import PrivetWarning, UnsupportedModelError
from privet.gradients.core.examples import Examples
from privet.gradients.core.patches import force_eager
from privet.gradients.core.randomness import Draw, Draws
from privet.gradients.methods.calls import GuardedCalls
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.passes import swap_values
from privet.gradients.probe.synthetic_batch import is_joinable, join_examples

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
_LOOSE = 3e-2
_SEEDS = 2  # numbers that cannot be made constant are drawn with each
_ROUNDING = 1e-2  # of a tolerance: differences that are too small to be those of another loss
_STEP = 0.1  # standard deviation of the change to parameters that differ from the initial ones
_MIDDLE = 15  # random numbers per median


class _ConstantDraw(Draw):
    """Draws one number for all entries, so that a batch and a single example get the same."""

    def __init__(self) -> None:
        super().__init__(Draws(1, lambda: 0), None)

    def __call__(self, fill: Callable[[Tensor, torch.Generator], Tensor], like: Tensor) -> Tensor:
        """Return a tensor filled with the median of a few random numbers."""
        drawn = fill(torch.empty(_MIDDLE, dtype=like.dtype, device=like.device), torch.Generator(like.device).manual_seed(0))
        return drawn.flatten().sort().values[_MIDDLE // 2].expand(like.shape).clone()


class _ConstantCalls(GuardedCalls):
    low_precision = False  # whether anything was computed in less than float32

    def call(self, *arguments: Any) -> Any:
        found = super().call(*arguments)
        if isinstance(found, Tensor) and found.is_floating_point() and found.element_size() < 4:
            self.low_precision = True
        return found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.randperm:  # not the identity, so that mixing of examples is detected
            return torch.arange(args[0]).flip(0)
        return super().__torch_function__(func, types, args, kwargs)


@contextlib.contextmanager
def disable_inner_dropout(model: nn.Module) -> Iterator[None]:
    """Return a context without the dropout that recurrent and attention layers apply inside one torch call."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, nn.RNNBase | nn.MultiheadAttention)]
    before = [layer.dropout for layer in layers]
    for layer in layers:
        layer.dropout = 0.0
    try:
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.dropout = value


def compute_losses(program: Program, batch: Any, seed: int = 0) -> Tensor:
    """Return the losses of a plain batch, with constant random numbers, or draws with a seed, and isolated state."""
    seed_generators(seed)
    steady = _ConstantCalls(program.guard, _ConstantDraw())
    with torch.no_grad(), force_eager(), disable_inner_dropout(program.model), program.guard.isolate(), steady:
        losses = program.loss_fn(program.model, batch).detach()
    program.low_precision |= steady.low_precision
    return losses


def losses_differ(program: Program, batches: Sequence[Any], joined: Any, *, reordered: bool = False) -> bool:
    """Return whether losses of public batches of one and of a joined batch differ; False if they cannot be compared.

    One number for the joined batch is compared with the mean and with the sum of the losses of the batches of one.

    Args:
        reordered: whether the joined batch may have another order.
    """
    # Parameters that are zero at first may hide the dependence, and others may hide it where they are not.
    tried = [dict(program.parameters), move_parameters(program)]
    return any(_differ_at(program, values, batches, joined, reordered=reordered) for values in tried)


def move_parameters(program: Program) -> dict[str, Tensor]:
    """Return other values for the parameters, near their own."""
    generator = torch.Generator().manual_seed(0)
    return {name: torch.normal(p.detach().cpu(), _STEP, generator=generator).to(p) for name, p in program.parameters.items()}


def _differ_at(program: Program, values: dict[str, Tensor], batches: Sequence[Any], joined: Any, *, reordered: bool) -> bool:
    def alone_with(seed: int) -> Tensor:
        return torch.cat([compute_losses(program, clone_batch(batch), seed).reshape(-1) for batch in batches])

    try:
        with swap_values(program.parameters, values):
            together, alone = compute_losses(program, clone_batch(joined)), alone_with(0)
            reduced = together.numel() == 1 < alone.numel()
            if not (reduced or together.shape == alone.shape) or not together.is_floating_point():
                return False
            tolerance = _LOOSE if program.low_precision else _TOLERANCE.get(together.dtype, _LOOSE)
            expected = [alone.mean(), alone.sum()] if reduced else [alone]
            pairs = [(together.reshape(each.shape), each) for each in expected]
            if reordered:
                pairs = [(one.flatten().sort().values, other.flatten().sort().values) for one, other in pairs]
            if any(_agree(one, other, tolerance) for one, other in pairs):
                return False
            # Random numbers, such as the shares of mixup, may also change how the loss of a single example is rounded.
            return all(_agree(alone, alone_with(seed), _ROUNDING * tolerance) for seed in range(1, _SEEDS))
    except Exception:  # a program that accepts only one example cannot depend on a batch
        return False


def _agree(one: Tensor, other: Tensor, tolerance: float) -> bool:
    if one.shape != other.shape:
        return False
    size = tolerance * float(torch.stack([one, other]).double().nan_to_num().abs().max())
    return torch.allclose(one.double(), other.double(), rtol=tolerance, atol=size, equal_nan=True)


def clone_batch(batch: Any) -> Any:
    """Return a batch with copies of its tensors."""
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)


def refuse_in_batch_loss(program: Program, examples: Examples) -> None:
    """Compute `refuse_mixed_losses` for examples that can be joined to a batch."""
    if examples.count > 1 and is_joinable(examples):
        same = examples.share_constants()
        refuse_mixed_losses(program, [same.get(position) for position in range(same.count)], join_examples(same))


def refuse_mixed_losses(program: Program, alone: Sequence[Any], joined: Any) -> None:
    """Refuse a loss that compares or mixes the examples of a batch: computed for one example at a time, it is another loss.

    Warn of one that is the mean or the sum of the examples' losses, which is taken apart.
    """
    if losses_differ(program, alone, joined):
        raise UnsupportedModelError(
            "the loss of an example changes with its neighbours in the batch (for example a contrastive loss, mixup, load "
            "balancing, batch statistics, or a branch on any(), all() or max() over the batch). Privet computes the loss of each "
            "example alone, which would be a different loss, and clipping cannot bound the original one: compute each example's "
            "loss from that example only. The check calls the loss once with several made-up examples, where code for a "
            "batch of one, such as words[0], looks the same: keep the batch dimension (flatten(0, 1), torch.vmap), "
            "or leave the check out with reading=privet.Reading(probe=False), which the statement then says"
        )
    try:
        together = compute_losses(program, clone_batch(joined))
    except Exception:  # a program for one example only
        return
    if together.numel() == 1 < len(alone):
        warnings.warn(
            "the loss of a batch is one number, the mean or the sum of its examples' losses. Privet computes each example's loss "
            "alone, clips its gradient, and averages as the plan says. Return one loss per example: reduction='none'",
            PrivetWarning, stacklevel=2,
        )  # fmt: skip
