"""The tensors of a model that a checkpoint holds: those that steps change, and not the frozen base of an adapter."""

from __future__ import annotations

__all__ = ["ChangedTensors", "frozen_digest"]

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

# Bytes of frozen parameters that are compared, spread evenly: some 10 ms, and all of a small model.
_BYTES, _LEAST = 2**24, 2**12


def _frozen(module: nn.Module) -> dict[str, Tensor]:
    """Return the frozen parameters by all of their names."""
    named = module.named_parameters(remove_duplicate=False)
    return {name: parameter for name, parameter in named if not parameter.requires_grad}


def frozen_digest(module: nn.Module) -> str | None:
    """Return the SHA-256 of a module's frozen parameters; None if there are none.

    Of a large base, numbers spread evenly over each parameter are compared, so another base or a change by training shows, but
    perhaps not a change of single numbers. Quantised parameters are compared by name, type and shape.
    """
    named = _frozen(module)
    if not named:
        return None
    found, share = hashlib.sha256(), max(_LEAST, _BYTES // len(named))
    for name, parameter in named.items():
        found.update(f"{name} {parameter.dtype} {tuple(parameter.shape)};".encode())
        if type(parameter) in (Tensor, nn.Parameter) and parameter.layout is torch.strided and parameter.numel():
            flat, most = parameter.detach().reshape(-1), max(2, share // parameter.element_size())
            if len(flat) > most:
                positions = torch.linspace(0, len(flat) - 1, most, dtype=torch.float64, device=flat.device)
                flat = flat[positions.long()]
            found.update(memoryview(flat.contiguous().cpu().view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return found.hexdigest()


class ChangedTensors:
    """State of a module without its frozen parameters, as long as these are what they were at the start.

    A frozen parameter that something else changes, such as a teacher that follows the trained parameters, is part of the state
    from then on.

    Args:
        module: model or average, as it is before the first step or before its state is restored.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module, self._start = module, frozen_digest(module)

    def state_dict(self) -> dict[str, Any]:
        """Return the trained parameters, the buffers, and frozen parameters that have changed."""
        state = self._module.state_dict()
        if frozen_digest(self._module) != self._start:
            return state
        frozen = _frozen(self._module).keys()
        return {name: tensor for name, tensor in state.items() if name not in frozen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; frozen parameters that it does not hold stay as they are.

        Raises:
            RuntimeError: a tensor that steps change is missing, or one is unknown or has another shape.
        """
        missing, unknown = self._module.load_state_dict(state, strict=False)
        missing = [name for name in missing if name not in _frozen(self._module)]
        if missing or unknown:
            raise RuntimeError(
                "; ".join([*(f"{name} is missing" for name in missing), *(f"{name} is unknown" for name in unknown)])
            )
