"""Everything that steps change. It is computed from released values, so it may be saved."""

from __future__ import annotations

__all__ = ["TrainingState"]

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils import _pytree as pytree

from privet.clipping import Rule
from privet.errors import UnsupportedModelError
from privet.plan import Plan
from privet.sparsification.drawing import Masks
from privet.training.checkpoint import Stateful
from privet.training.checks import check_average, check_fresh_optimizer, check_scheduler
from privet.training.manifest.parts import wrapped
from privet.training.state.schedule import ClippingState, MaskState, PastIterates
from privet.training.state.tensors import ChangedTensors, MasterWeights, OptimizerState

# What a host saves and restores itself.
_OF_THE_HOST = ("model", "optimizer", "scheduler", "average")


class TrainingState:
    """Parameters, optimizer, scheduler, average, clipping rule, masks and momentum of a training.

    Attributes:
        parts: name → state that a checkpoint contains.
        iterates: past parameters for momentum.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None,
        average: AveragedModel | None,
    ) -> None:
        self.model, self._parameters = model, parameters
        self.device = next(iter(parameters.values())).device
        self._trained = {id(parameter) for parameter in parameters.values()}
        self._optimizer, self._scheduler, self._average = optimizer, scheduler, average
        self._masters = MasterWeights(parameters, optimizer)
        self._divisor, self._steps = plan.divisor, plan.total_steps
        self._rule = ClippingState(plan.clipping, plan.bound_factors().tolist(), tuple(parameters))
        times = plan.timetable()
        self._masks: MaskState | None = None
        if plan.sparsification is not None and times is not None:
            self._masks = MaskState(plan.sparsification, times, parameters)
        # Averages of single examples are private, so no checkpoint contains them.
        momentum = plan.momentum if plan.momentum is not None and plan.momentum.averaging is None else None
        self.iterates = PastIterates(momentum)
        found: dict[str, Stateful | None] = {
            "model": ChangedTensors(model),
            "optimizer": OptimizerState(optimizer, self._masters),
            "masters": self._masters if self._masters.names else None,
            "rule": self._rule,
            "masks": self._masks,
            "scheduler": scheduler,
            "average": None if average is None else ChangedTensors(average),
            "momentum": None if momentum is None else self.iterates,
        }
        self.parts: dict[str, Stateful] = {name: part for name, part in found.items() if part is not None}
        self._own = {name: part for name, part in self.parts.items() if name not in _OF_THE_HOST}

    def check_fresh(self) -> None:
        """Refuse an optimizer, scheduler or average with earlier state at the start of a run."""
        check_fresh_optimizer(self._optimizer, self._parameters)
        if self._scheduler is not None:
            check_scheduler(self._scheduler, self._optimizer, self._steps, fresh=True)
        if self._average is not None:
            check_average(self._average, self.model, fresh=True)

    def check_host_can_update(self) -> None:
        """Refuse a host that steps the optimizer itself if that would round its updates away."""
        if self._masters.names:
            raise UnsupportedModelError(
                f"parameter {self._masters.names[0]} is not float32, and an optimizer that the host steps would round its "
                "updates away; train in float32, with autocast for speed, or let Training step the optimizer: training.run()"
            )

    @property
    def masks(self) -> Masks | None:
        """The masks of the last step; None if it kept all coordinates."""
        return None if self._masks is None else self._masks.current

    def at(self, step: int) -> tuple[Rule, Masks | None]:
        """Return the rule and the masks of a step, counted from 1."""
        return self._rule.at(step), None if self._masks is None else self._masks.at(step)

    def put(self, released: Mapping[str, Tensor]) -> None:
        """Adapt rule, masks and momentum to a release, divided by the plan's divisor, and set the gradients of the parameters."""
        self._rule.adapt(released, self._divisor)
        if self._masks is not None:
            released = self._masks.apply(released)
        for name, direction in self.iterates.step(released, self._parameters).items():
            if not self._masters.hold(name, direction):
                self._parameters[name].grad = direction
        # Other members of the optimizer (frozen parameters) have no released gradient, so theirs is removed.
        for each in wrapped(self._optimizer):
            for member in (member for group in each.param_groups for member in group["params"]):
                if id(member) not in self._trained:
                    member.grad = None

    def update(self) -> None:
        """Change the parameters by their gradients, and then scheduler and average."""
        with self._masters.in_place():
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        if self._scheduler is not None:
            self._scheduler.step()
        if self._average is not None:
            self._average.update_parameters(self.model)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of what a host does not have, such as rule, masks and momentum as releases have changed them."""
        return {name: _copied(part.state_dict()) for name, part in self._own.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, on the device of the parameters; all of it or, after an exception, nothing."""
        before = self.state_dict()
        try:
            for name, part in self._own.items():
                part.load_state_dict(_copied(state[name], self.device))
        except BaseException:
            for name, part in self._own.items():
                part.load_state_dict(before[name])
            raise


def _copied(state: dict[str, Any], device: torch.device | None = None) -> dict[str, Any]:
    """Return a state with copies of its tensors: steps change some in place."""
    return pytree.tree_map(lambda leaf: leaf.to(device, copy=True) if isinstance(leaf, Tensor) else leaf, state)  # type: ignore[no-any-return]
