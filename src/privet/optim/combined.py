"""Several optimizers over disjoint parameters, as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from privet.errors import InvalidArgumentError


class Combined(torch.optim.Optimizer):
    """One optimizer made of several, each over parameters of its own: Muon for matrices and AdamW for the rest, for example.

    Its groups are those of the optimizers, in their order, so a scheduler changes the rates of all of them; a factor that is
    computed from the initial rates keeps their ratio. `Training` checks, describes and saves each of them. Add hooks and groups
    to the optimizers themselves, and groups before they are combined.

    Args:
        optimizers: two or more, over disjoint parameters.

    Attributes:
        optimizers: as given.

    Guarantee:
        Each optimizer receives released gradients only, so together they are post-processing.

    Raises:
        InvalidArgumentError: there are fewer than two, one is no optimizer, or a parameter belongs to two of them.

    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = Combined(torch.optim.SGD([model.weight], lr=0.1), torch.optim.AdamW([model.bias], lr=0.001))
    >>> scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> [group["lr"] for group in optimizer.param_groups]
    [0.05, 0.0005]
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        wrong = [type(each).__name__ for each in optimizers if not isinstance(each, torch.optim.Optimizer)]
        if len(optimizers) < 2 or wrong:
            allowed = "two or more torch.optim optimizers"
            fix = "Pass them one by one: Combined(first, second)."
            raise InvalidArgumentError("optimizers", wrong[0] if wrong else f"{len(optimizers)} of them", allowed, fix)
        owners = [{id(member) for group in each.param_groups for member in group["params"]} for each in optimizers]
        if len(set.union(*owners)) != sum(map(len, owners)):
            fix = "Give each parameter to one of them."
            raise InvalidArgumentError("optimizers", "with a parameter in common", "over disjoint parameters", fix)
        super().__init__([group for each in optimizers for group in each.param_groups], {})
        self.optimizers = optimizers

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse further groups: none of the optimizers would step them."""
        if hasattr(self, "optimizers"):
            allowed = "added to one of the optimizers before they are combined"
            raise InvalidArgumentError("param_group", "a new group", allowed, "Combine them again.")
        super().add_param_group(param_group)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step with each optimizer; a closure, which `Training` never passes, is called once before them."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for each in self.optimizers:
            each.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the optimizers, in their order."""
        return {"optimizers": [each.state_dict() for each in self.optimizers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the states of the optimizers; ValueError for a state of another number of them."""
        states = state_dict["optimizers"]
        if len(states) != len(self.optimizers):
            raise ValueError(f"a state of {len(states)} optimizers for {len(self.optimizers)}")
        for each, state in zip(self.optimizers, states, strict=True):
            each.load_state_dict(state)
        # Loading replaces the groups, and schedulers must keep changing those that are stepped.
        self.param_groups[:] = [group for each in self.optimizers for group in each.param_groups]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "optimizers": self.optimizers}
