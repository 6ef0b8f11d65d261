"""The masks of each step, and the state from which later masks are computed."""

from __future__ import annotations

__all__ = ["MaskState"]

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from privet.sparsification.drawing import Masks
from privet.sparsification.kinds import Sparsification, Timetable


class MaskState:
    """The masks of a training from step to step. They are public: they are known in advance or computed from released values.

    The same tensors are returned for all steps of a block.

    Args:
        sparsification: sparsification of the plan.
        timetable: which steps share a mask.
        parameters: name → trainable parameter.
    """

    def __init__(self, sparsification: Sparsification, timetable: Timetable, parameters: Mapping[str, Tensor]) -> None:
        self._kind, self._times = sparsification, timetable
        self._shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        self._device = next(iter(parameters.values())).device
        self._block: int | None = None
        self._masks: Masks | None = None
        # Sums of what was released in this block, and in the last one that released anything.
        self._sums: dict[str, Tensor] = {}
        self._ranking: dict[str, Tensor] = {}

    def at(self, step: int) -> Masks | None:
        """Return the masks of a step, counted from 1: name → True where a coordinate is kept; None to keep all."""
        block = self._times.block(step)
        if block != self._block:
            if self._sums:
                self._ranking, self._sums = self._sums, {}
            self._block, self._masks = block, self._of(block)
        return self._masks

    @property
    def current(self) -> Masks | None:
        """The masks of the step that was last asked for; None if it keeps all."""
        return self._masks

    def apply(self, released: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what moves the parameters: the release, of which ranking kinds drop what the step's masks drop.

        The whole release is added to the sums that rank coordinates, so that dropped ones can return.
        """
        if not self._kind.ranks:
            return released
        for name in self._shapes:
            total = self._sums.get(name)
            self._sums[name] = released[name].clone() if total is None else total.add_(released[name])
        masks = self._masks or {}
        return {name: tensor.masked_fill(~masks[name], 0) if name in masks else tensor for name, tensor in released.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which masks are computed, apart from the plan."""
        return {"block": self._block, "sums": self._sums, "ranking": self._ranking}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self._block, self._sums, self._ranking = state["block"], dict(state["sums"]), dict(state["ranking"])
        self._masks = None if self._block is None else self._of(self._block)

    def _of(self, block: int) -> Masks | None:
        found = self._kind.masks(block, self._times.blocks, self._shapes, self._ranking)
        return None if found is None else {name: mask.to(self._device) for name, mask in found.items()}
