"""What random programs are compared with: plain autograd on one example at a time, and what must be left as it was.

Nothing here uses the library: a fresh copy of the model for every example, batches of one, float64.
"""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from programs import Program, loss_fn
from torch import Tensor, nn

Gradients = dict[str, Tensor]

# The library shrinks every contribution by this factor, so that rounding cannot carry it over the bound.
SHRINK = 1 - 2**-20


def gradients(program: Program, dtype: torch.dtype = torch.float64, shift: float = 0.0) -> Gradients:
    """Return name → (B, *shape): every example's gradient by itself, in a precision, at slightly shifted values."""
    model, batch = program.model().to(dtype), program.batch()
    generator = torch.Generator().manual_seed(program.seed + 2)

    def shifted(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        value = value.detach().to(dtype)
        return value + shift * (1 + value.abs()) * torch.randn(value.shape, generator=generator, dtype=dtype)

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(shifted(parameter))
    batch = {name: shifted(value) for name, value in batch.items()}
    rows = [_gradient(_copy(model), {name: value[i : i + 1] for name, value in batch.items()}) for i in range(program.sizes.B)]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _copy(model: nn.Module) -> nn.Module:
    """Return a copy that shares what no program writes to, and what takes most of the time to copy: lines and tables of hooks."""
    tables = [x for module in model.modules() for x in vars(module).values() if type(x) is OrderedDict]
    return copy.deepcopy(model, {id(x): x for x in (*model.lines, *tables)})


def _gradient(model: nn.Module, example: Mapping[str, Tensor]) -> Gradients:
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    losses = loss_fn(model, example)
    assert losses.shape == (1,)
    found = [None] * len(named)
    if losses.requires_grad:
        found = torch.autograd.grad(losses.sum(), [*named.values()], allow_unused=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(named.items(), found, strict=True)}


def losses(program: Program) -> tuple[Tensor, Tensor]:
    """Return the losses of the batch, computed at once and one at a time, each by a fresh copy of the model."""
    model, batch = program.model(), program.batch()
    rows = [{name: value[i : i + 1] for name, value in batch.items()} for i in range(program.sizes.B)]
    return loss_fn(_copy(model), batch).detach(), torch.cat([loss_fn(_copy(model), row).detach() for row in rows])


def norms(found: Gradients) -> Tensor:
    """Return (B,) norms over all parameters together, in float64."""
    return torch.stack([value.double().flatten(1).square().sum(1) for value in found.values()]).sum(0).sqrt()


def clipped_sum(found: Gradients, bound: float) -> Gradients:
    """Return the sum of gradients, each scaled down to the bound; one that is not finite counts zero."""
    weights = SHRINK * (bound / norms(found)).clamp(max=1.0)
    finite = norms(found).isfinite()
    return {name: torch.einsum("b,b...->...", weights[finite], value[finite].double()) for name, value in found.items()}


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Return the L2 distance over all tensors together, in float64."""
    assert {name: value.shape for name, value in one.items()} == {name: value.shape for name, value in other.items()}
    return sum(float((one[name].double() - other[name].double()).square().sum()) for name in one) ** 0.5


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Return all that a model remembers, as plain values."""
    return {f"{name}.{key}": _plain(x) for name, module in model.named_modules() for key, x in vars(module).items()}


def _plain(value: Any) -> Any:
    match value:
        case Tensor():
            try:
                return (str(value.dtype), value.requires_grad, value.is_leaf and value.grad is not None, value.detach().tolist())
            except RuntimeError:  # what was left by a transform that is over
                return "unreadable"
        case nn.Module():
            return type(value).__name__
        case dict():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return type(value).__name__
