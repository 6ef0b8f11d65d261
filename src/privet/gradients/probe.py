"""The probe: before training, check on made-up examples that clipping this model means what it promises.

Two or three made-up examples of the real shapes go through a float64 copy of the model, with random layers such as
dropout switched off:

1. each example's gradient must be the same with and without its neighbours, or no clip bound limits what one person does;
2. the norms of the fast method must be those of plain autograd, one example at a time;
3. no parameter or buffer may change, as both are released with the model.

No private value is looked at, so what the probe says tells nobody anything.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from privet.errors import PrivetError, UnsupportedModelError
from privet.gradients.directions import Directions
from privet.gradients.engine import METHODS, trainable
from privet.gradients.functional import one_by_one, plain_gradients
from privet.gradients.history import Method
from privet.gradients.interception import LossFunction, checked_losses
from privet.gradients.made_up import small_batches
from privet.gradients.projections import products, weighted_sum
from privet.gradients.steady import STEADY
from privet.gradients.trees import belongs, examples_in, rows

_TOLERANCE = 1e-7
# Between a forward-mode and a backward pass in single precision; half precision differs by ten times as much.
_FORWARD_TOLERANCE = 1e-4
# Gradients are compared relative to their size; below this size, what rounding leaves of a saturated loss is not a difference.
_NEGLIGIBLE = 1e-8
_DROPOUT = {
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout,
}  # fmt: skip


class _Comparable(TorchFunctionMode):
    """Makes dropout the identity, other randomness steady and single precision double, so that two passes can be compared."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, options = pytree.tree_map(_in_double, (tuple(args), dict(kwargs or {})))
        if func in _DROPOUT:
            return args[0] if args else options["input"]
        if func is F.scaled_dot_product_attention and "dropout_p" in options:
            options["dropout_p"] = 0.0
        if func in STEADY:
            return STEADY[func](*args, **options)
        if func is Tensor.float:
            return args[0].double()
        return func(*args, **options)


def _in_double(argument: object) -> object:
    return torch.float64 if argument is torch.float32 else argument


@contextlib.contextmanager
def _inner_dropout_off(model: nn.Module) -> Iterator[None]:
    """Switch off the dropout that recurrent and attention layers apply inside one call."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, nn.RNNBase | nn.MultiheadAttention)]
    before = [layer.dropout for layer in layers]
    for layer in layers:
        layer.dropout = 0.0
    try:
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.dropout = value


def _gradients_within(model: nn.Module, loss_fn: LossFunction, batch: Any, position: int) -> dict[str, Tensor]:
    """Return one example's gradients, computed with the whole batch beside it."""
    parameters = trainable(model)
    loss = checked_losses(loss_fn(model, batch), examples_in(batch))[position]
    if not loss.requires_grad:
        raise UnsupportedModelError(
            "the loss depends on no trainable parameter, so nothing but noise would be learned; look for detach(), no_grad() or "
            "an integer on the way from the parameters to the loss"
        )
    found = plain_gradients(loss, parameters.values())
    return {
        name: torch.zeros_like(parameter) if value is None else value
        for (name, parameter), value in zip(parameters.items(), found, strict=True)
    }


def _differs(one: Tensor, other: Tensor, scale: float) -> bool:
    return not bool((one - other).abs().max() <= _TOLERANCE * scale) if one.numel() else False


def _first_coupled_module(model: nn.Module, loss_fn: LossFunction, batch: Any, position: int) -> str:
    """Return the name of the first module whose output for one example changes with its neighbours."""

    def outputs(part: Any, examples: int, row: int) -> list[tuple[str, Tensor]]:
        seen: list[tuple[str, Tensor]] = []

        def keep(name: str) -> Any:
            def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
                if isinstance(output, Tensor) and belongs(output, examples):
                    seen.append((name, output[row].detach()))

            return hook

        handles = [module.register_forward_hook(keep(name)) for name, module in model.named_modules() if name]
        try:
            loss_fn(model, part)
        finally:
            for handle in handles:
                handle.remove()
        return seen

    alone = outputs(rows(batch, slice(position, position + 1)), 1, 0)
    beside = outputs(batch, examples_in(batch), position)
    for (name, one), (_, other) in zip(alone, beside, strict=False):
        if one.shape == other.shape and _differs(one, other, 1.0 + float(one.abs().max() if one.numel() else 0)):
            return f"module {name!r} ({type(model.get_submodule(name)).__name__})"
    return "the loss, or code outside any submodule"


def refuse_batch_statistics(model: nn.Module) -> None:
    """Refuse layers that are known to normalise over the batch.

    Raises:
        UnsupportedModelError: a batch normalisation layer is in training mode, whether or not it is trainable.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise UnsupportedModelError(
                f"module {name!r} is a {type(module).__name__} that normalises over the batch, so one example changes the "
                "gradients of all others; use nn.GroupNorm, or keep it frozen in eval() mode with its running statistics"
            )


def _state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield what is released with a model."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def _float64_copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model).double()
    except Exception as error:
        raise UnsupportedModelError(
            f"the model cannot be copied for the check before training ({type(error).__name__}: {error}); Training(probe=False) "
            "skips it, on your own responsibility"
        ) from error


def probe(
    model: nn.Module, loss_fn: LossFunction, batch: Any, *, public: bool = False, methods: Sequence[str] = tuple(METHODS)
) -> str:
    """Check a model and a loss on made-up examples, and return the fastest method that is right for them.

    Args:
        model: the module in the mode in which it will be trained; it is copied, not changed.
        loss_fn: (model, batch) → (B,) losses.
        batch: a batch with the real structure, shapes and types; its content is used only if it is public.
        public: whether the batch may be used as it is.
        methods: the methods to choose from, the most wanted first.

    Returns:
        The first of the methods that gives the gradients and norms of plain autograd.

    Raises:
        UnsupportedModelError: examples are coupled, a buffer changes, the loss does not depend on the model, or no method gives
            the gradients of plain autograd. The message names the culprit.
        InvalidArgumentError: the loss function does not return one loss per example.
    """
    refuse_batch_statistics(model)
    trainable(model)
    twin = _float64_copy(model)
    batches = small_batches(batch, public)
    with _Comparable(), _inner_dropout_off(twin):
        before = {name: tensor.detach().clone() for name, tensor in _state(twin)}
        try:
            alone = [_one_at_a_time(twin, loss_fn, made) for made in batches]
        except PrivetError:
            raise
        except Exception as error:
            raise UnsupportedModelError(
                f"the model or loss fails on a made-up batch of the real shapes ({type(error).__name__}: {error}); pass "
                "probe_batch=, a public batch that it accepts, or fix the model for a single example"
            ) from error
        for example in itertools.chain(*alone):
            for name in (name for name, value in example.items() if not bool(value.isfinite().all())):
                raise UnsupportedModelError(
                    f"the gradient of {name!r} is not finite on made-up examples (standard normal numbers), so nothing can be "
                    "checked; clamp what the model or loss divides by or takes the logarithm of"
                )
        for name, tensor in _state(twin):
            if not torch.equal(tensor, before[name]):
                kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
                raise UnsupportedModelError(
                    f"{kind} {name!r} changes in the forward pass, so the released model would hold private data that no noise "
                    "covers; freeze it (track_running_stats=False, eval() mode), or keep it out of the model"
                )
        for made, expected in zip(batches, alone, strict=True):
            _check_isolation(twin, loss_fn, made, expected)
        return _first_right(methods, twin, loss_fn, batches, alone)


def _check_isolation(model: nn.Module, loss_fn: LossFunction, batch: Any, alone: list[dict[str, Tensor]]) -> None:
    for position, expected in enumerate(alone):
        scale = _NEGLIGIBLE + max(float(value.abs().max()) for value in expected.values() if value.numel())
        with torch.enable_grad():
            within = _gradients_within(model, loss_fn, batch, position)
        for name, value in within.items():
            if _differs(value, expected[name], scale):
                culprit = _first_coupled_module(model, loss_fn, batch, position)
                raise UnsupportedModelError(
                    f"an example's gradient of {name!r} changes with its neighbours in the batch: {culprit} mixes examples. "
                    "Clipping cannot bound what one example does to the sum; compute on each example by itself"
                )


def _one_at_a_time(model: nn.Module, loss_fn: LossFunction, batch: Any) -> list[dict[str, Tensor]]:
    tapes = one_by_one(model, loss_fn, batch, trainable(model))
    return [{name: value[0] for name, value in tape.gradients().items()} for tape in tapes]


def _norm(gradients: dict[str, Tensor]) -> float:
    return float(torch.stack([value.square().sum() for value in gradients.values()]).sum().sqrt())


def _refuse_difference(
    method: Method, model: nn.Module, loss_fn: LossFunction, batch: Any, alone: list[dict[str, Tensor]]
) -> None:
    """Raise if a method's gradients or norms are not those of plain autograd."""
    parameters = trainable(model)
    tapes = list(method(model, loss_fn, batch, parameters))
    norms = torch.cat([tape.group_norms((tuple(parameters),))[0] for tape in tapes])
    gradients = [tape.gradients() for tape in tapes]
    for position, expected in enumerate(alone):
        size = _norm(expected)
        for name, value in expected.items():
            if _differs(torch.cat([part[name] for part in gradients])[position], value, _NEGLIGIBLE + size):
                raise UnsupportedModelError(f"wrong gradient of {name}")
        if abs(float(norms[position]) - size) > _TOLERANCE * (_NEGLIGIBLE + size):
            raise UnsupportedModelError("wrong norm over all parameters")


def _first_right(
    methods: Sequence[str], model: nn.Module, loss_fn: LossFunction, batches: list[Any], alone: list[list[dict[str, Tensor]]]
) -> str:
    problems = []
    for name in methods:
        try:
            for batch, expected in zip(batches, alone, strict=True):
                _refuse_difference(METHODS[name], model, loss_fn, batch, expected)
            return name
        except Exception as error:  # a method that fails here is not used; the next one is more general
            problems.append(f"{name}: {error}")
    raise UnsupportedModelError("no method gives the gradients of plain autograd; " + "; ".join(problems))


def probe_projections(model: nn.Module, loss_fn: LossFunction, batch: Any, *, public: bool = False) -> None:
    """Check that what is estimated in forward mode is the gradient that plain backward passes sum, for made-up examples.

    Args:
        model, loss_fn, batch, public: as for `probe`, which is to be asked first.

    Raises:
        UnsupportedModelError: the model draws random numbers, has no forward-mode derivatives, or these are not its gradients in
            the precision that it computes in.
    """
    parameters = trainable(model)
    made = pytree.tree_map(_as_precise, small_batches(batch, public)[0], batch)
    device = next(iter(parameters.values())).device
    before = _random_states(device)
    try:
        directions = list(Directions().drawn(parameters, 2))
        found = torch.stack([products(model, loss_fn, made, parameters, direction) for direction in directions])
    except PrivetError:
        raise
    except Exception as error:
        raise UnsupportedModelError(
            f"norms cannot be estimated: the model has no forward-mode derivative ({type(error).__name__}: {error}); clip by "
            "exact norms"
        ) from error
    if any(not torch.equal(one, other) for one, other in zip(before, _random_states(device), strict=True)):
        raise UnsupportedModelError(
            "the model draws random numbers (dropout, say), so that the gradient whose norm is estimated is not the one that is "
            "summed; switch them off, or clip by exact norms"
        )
    for position in range(found.shape[1]):
        chosen = torch.zeros(found.shape[1], dtype=torch.float64, device=device)
        chosen[position] = 1.0
        gradient = weighted_sum(model, loss_fn, made, parameters, chosen)
        size = _norm({name: value.double() for name, value in gradient.items()})
        for direction, value in zip(directions, found, strict=True):
            expected = sum(float((direction[name].double() * gradient[name].double()).sum()) for name in gradient)
            if not abs(float(value[position]) - expected) <= _FORWARD_TOLERANCE * (_NEGLIGIBLE + size):
                raise UnsupportedModelError(
                    "forward-mode derivatives are not the gradients that are summed: the model computes in low precision "
                    "(autocast), or keeps parameters outside of its modules; clip by exact norms"
                )


def _as_precise(made: object, real: object) -> object:
    return made.to(real.dtype) if isinstance(made, Tensor) and isinstance(real, Tensor) else made


def _random_states(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
