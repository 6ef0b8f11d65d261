"""The tensors of a model that a checkpoint holds: those that steps change, and not the frozen base of an adapter."""

from __future__ import annotations

__all__ = ["ChangedTensors"]

from collections.abc import Mapping
from typing import Any

from torch import nn

from privet.training.manifest.fingerprint import frozen_digest, frozen_parameters


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
        frozen = frozen_parameters(self._module).keys()
        return {name: tensor for name, tensor in state.items() if name not in frozen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; frozen parameters that it does not hold stay as they are.

        Raises:
            RuntimeError: a tensor that steps change is missing, or one is unknown or has another shape.
        """
        missing, unknown = self._module.load_state_dict(state, strict=False)
        missing = [name for name in missing if name not in frozen_parameters(self._module)]
        if missing or unknown:
            raise RuntimeError(
                "; ".join([*(f"{name} is missing" for name in missing), *(f"{name} is unknown" for name in unknown)])
            )
