"""The modules of a model and their trainable parameters, and when these cannot be trained privately."""

from __future__ import annotations

import torch
from torch import nn

from privet.errors import InvalidArgumentError, UnsupportedModelError

_PRECISIONS = (torch.float32, torch.float64, torch.bfloat16)
# Wrappers that must not be trained themselves, and what they do.
_WRAPPERS = {
    **dict.fromkeys(
        ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"),
        "which averages gradients before they are clipped; pass the wrapped module, and in several processes also "
        "world=privet.distributed.World.here()",
    ),
    "AbstractGradSampleModule": "whose hooks compute gradients of single examples for Opacus; pass model.to_standard_module()",
}


def list_modules(root: nn.Module) -> list[nn.Module]:
    """Return a module and all modules inside it, each once; `modules()` takes four times as long, because it builds names."""
    found, known = [root], {id(root)}  # not a set of modules, which may be equal without being the same
    for module in found:
        for child in module._modules.values():
            if child is not None and id(child) not in known:
                known.add(id(child))
                found.append(child)
    return found


def is_sharded(module: nn.Module) -> bool:
    """Return whether `fully_shard` was called on a module itself."""
    return own_class(module) is not type(module)


def own_class(module: nn.Module) -> type:
    """Return the class of a module, which `fully_shard` replaces by one that also derives from FSDPModule."""
    kinds = type(module).__mro__
    names = [kind.__name__ for kind in kinds]
    return kinds[names.index("FSDPModule") + 1] if "FSDPModule" in names else kinds[0]


def trainable(model: nn.Module, *, sharded: bool = False) -> dict[str, nn.Parameter]:
    """Return name → parameter for all parameters with `requires_grad`, shared ones once; `sharded` ones (FSDP2) if asked for.

    Raises:
        UnsupportedModelError: there are none; one has no values or a precision that cannot be trained (float16, complex); or the
            model is wrapped to average unclipped gradients over processes or devices, or by Opacus.
    """
    for module in list_modules(model):
        for kind in type(module).__mro__:
            if kind.__name__ in _WRAPPERS:
                raise UnsupportedModelError(f"the model is or contains a {type(module).__name__}, {_WRAPPERS[kind.__name__]}")
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not parameters:
        raise UnsupportedModelError("the model has no trainable parameter: none has requires_grad=True")
    for name, parameter in parameters.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UnsupportedModelError(
                f"parameter {name} of a lazy module is uninitialised; call the model once on a public batch first"
            )
        if parameter.is_meta:
            raise UnsupportedModelError(
                f"parameter {name} is on the meta device, without values: accelerate offloads it, or it was never loaded; load "
                "the model to the device that trains it"
            )
        if hasattr(parameter, "placements") and not sharded:
            raise UnsupportedModelError(
                f"parameter {name} is a shard, and its values are on several ranks; train the model by privet.Training(..., "
                "world=privet.distributed.World.here()), and compute per-example gradients of the model before fully_shard"
            )
        if parameter.dtype not in _PRECISIONS:
            fix = "train its real and imaginary parts, and join them" if parameter.is_complex() else "call model.float()"
            raise UnsupportedModelError(
                f"parameter {name} is {parameter.dtype}; trained parameters must be float32, float64 or bfloat16: {fix}, or "
                "convert this parameter"
            )
    return parameters


def refuse_inference_mode() -> None:
    """Refuse to compute gradients in `torch.inference_mode`, where torch records nothing to differentiate."""
    if torch.is_inference_mode_enabled():
        raise InvalidArgumentError(
            "torch.inference_mode", True, "left before gradients are computed", "Use torch.no_grad, which may be active."
        )
