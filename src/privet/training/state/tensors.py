"""The tensors that steps change: trained parameters with their float32 masters, buffers, and no frozen base of an adapter."""

from __future__ import annotations

__all__ = ["ChangedTensors", "MasterWeights", "OptimizerState", "advance_parametrizations"]

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from privet._utils.tensors import gradient_dtype
from privet.errors import InvalidArgumentError
from privet.gradients.reachable import list_modules
from privet.training.manifest.fingerprint import frozen_digest, frozen_parameters
from privet.training.manifest.parts import wrapped


class ChangedTensors:
    """State of a module without its frozen parameters, as long as these are what they were when this was made.

    A frozen parameter that something else changes, such as a teacher that follows the trained parameters, is part of the state
    from then on.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module, self._start = module, frozen_digest(module)

    def state_dict(self) -> dict[str, Any]:
        """Return the trained parameters, the buffers, and frozen parameters that have changed."""
        state = self._module.state_dict()
        if frozen_digest(self._module) != self._start:
            return state
        frozen = frozen_parameters(self._module).keys()
        return {name: tensor for name, tensor in state.items() if name not in frozen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; frozen parameters that it lacks stay as they are, and any other difference is a RuntimeError."""
        missing, unknown = self._module.load_state_dict(state, strict=False)
        missing = [name for name in missing if name not in frozen_parameters(self._module)]
        if missing or unknown:
            raise RuntimeError(
                "; ".join([*(f"{name} is missing" for name in missing), *(f"{name} is unknown" for name in unknown)])
            )


class MasterWeights:
    """Float32 copies of low-precision parameters, which the optimizer updates; the model holds their rounding.

    A bfloat16 parameter has 8 significant bits, so an update of less than 1/512 of its value would be lost; the copies keep it.
    They are computed from releases alone, so they are as public as the parameters, and a checkpoint contains them.
    """

    def __init__(self, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._parameters = {name: p for name, p in parameters.items() if gradient_dtype(p) != p.dtype}
        self._masters = {name: p.detach().to(gradient_dtype(p), copy=True) for name, p in self._parameters.items()}

        self._gradients: dict[str, Tensor] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that have masters."""
        return tuple(self._parameters)

    def hold(self, name: str, gradient: Tensor) -> bool:
        """Keep a gradient until the parameter is its master, as torch allows no other dtype in `.grad`; return whether it has one."""
        if name in self._parameters:
            self._gradients[name] = gradient
        return name in self._parameters

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Return a context in which the parameters have the values and precision of their masters, for the optimizer to change.

        On exit, the masters are what the parameters have become, and the parameters are their rounding, in the same memory as
        before. A parameter that something else changed since the last time replaces its master where it differs. Gradients that
        were held are in `.grad`, and removed on exit.
        """
        rounded = {name: p.data for name, p in self._parameters.items()}
        for name, p in self._parameters.items():
            master = self._masters[name]
            p.data = torch.where(master.to(p.dtype) == p.data, master, p.data.to(master.dtype))
            p.grad = self._gradients.pop(name, None)
            for each in wrapped(self._optimizer):
                _widen(each.state.get(p, {}), master)
        try:
            yield
        finally:
            for name, p in self._parameters.items():
                self._masters[name], p.grad = p.data, None
                p.data = rounded[name].copy_(p.data)

    def state_dict(self) -> dict[str, Any]:
        """Return the copies."""
        return dict(self._masters)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the copies."""
        shapes = {name: (value.shape, value.dtype) for name, value in self._masters.items()}
        if {name: (value.shape, value.dtype) for name, value in state.items()} != shapes:
            raise InvalidArgumentError(
                "masters", sorted(state), f"float32 copies of {sorted(shapes)}", "The checkpoint belongs to another model."
            )
        self._masters = {name: value.to(self._masters[name].device) for name, value in state.items()}


class OptimizerState:
    """The state of an optimizer, which torch restores in the precision that the parameters have at that time."""

    def __init__(self, optimizer: torch.optim.Optimizer, masters: MasterWeights) -> None:
        self._optimizer, self._masters = optimizer, masters

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the optimizer's state."""
        with self._masters.in_place():
            self._optimizer.load_state_dict(state)


def _widen(state: dict[str, Any], master: Tensor) -> None:
    """Convert what an optimizer keeps for a parameter since before its first step to the precision of the master."""
    for key, value in state.items():
        if isinstance(value, Tensor) and value.shape == master.shape and gradient_dtype(value) != value.dtype:
            state[key] = value.to(master.dtype)


def advance_parametrizations(model: nn.Module) -> None:
    """Update buffers of parametrizations such as spectral norm as a forward pass does, but from released parameters only."""
    kind = getattr(sys.modules.get("torch.nn.utils.spectral_norm"), "SpectralNorm", ())
    # The tables themselves: asking a module for an attribute that it lacks is slow, and this runs in every step.
    concerned = [each for each in list_modules(model) if "parametrizations" in each._modules or each._forward_pre_hooks]
    with torch.no_grad() if concerned else contextlib.nullcontext():
        for module in (each for each in concerned if each.training):
            parametrized = module._modules.get("parametrizations")
            for name in parametrized if isinstance(parametrized, nn.ModuleDict) else ():
                getattr(module, name)
            for hook in (each for each in module._forward_pre_hooks.values() if isinstance(each, kind)):
                hook(module, None)
