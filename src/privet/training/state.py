"""Everything that steps change: parameters, optimizer, scheduler, average, clipping rule, masks and momentum.

All of it is computed from released values, so it is public and may be saved. The frozen base of an adapter is not part of it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils import _pytree as pytree

from privet._utils.registry import decode, encode
from privet._utils.tensors import gradient_dtype
from privet.clipping.base import Rule
from privet.distributed.sharded import ShardedModel
from privet.distributed.sharded_state import ShardedState
from privet.distributed.world import WorldError
from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.gradients.parameters import list_modules
from privet.momentum import Momentum
from privet.plan import Plan
from privet.sparsification.drawing import Masks
from privet.sparsification.kinds import Sparsification, Timetable
from privet.training.checkpoint import Stateful
from privet.training.checks import check_average, check_fresh_optimizer, check_scheduler, members, takes_sparse, wrapped
from privet.training.manifest import frozen_digest, frozen_parameters

# What a host saves and restores itself.
_OF_THE_HOST = ("model", "optimizer", "scheduler", "average")


class ClippingState:
    """The clipping rule of each step: the plan's, scaled by the schedule of the bound and adapted to earlier releases."""

    def __init__(self, rule: Rule, factors: Sequence[float], names: Sequence[str]) -> None:
        self._rule, self._factors = rule, factors
        # A rule that is split among groups has smaller bounds there; a step at which one fails would be spent.
        for factor in {min(factors), max(factors)} - {1.0}:
            rule.scale_bound(factor).groups(rule.released(names))

    def at(self, step: int) -> Rule:
        """Return the rule of a step, counted from 1."""
        factor = self._factors[step - 1]
        return self._rule if factor == 1 else self._rule.scale_bound(factor)

    def adapt(self, released: Mapping[str, Tensor], divisor: float) -> None:
        """Adapt the rule to the statistics among the tensors that a step released, each divided by the public divisor."""
        self._rule = self._rule.adapt({name: tensor for name, tensor in released.items() if ":" in name}, divisor)

    def state_dict(self) -> dict[str, Any]:
        """Return the adapted rule as plain values."""
        return {"rule": encode(self._rule)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the adapted rule; refuse one that the plan's rule cannot have become."""
        found = decode("clipping", state["rule"], Rule)
        if type(found) is not type(self._rule) or not (found.adaptive or found == self._rule):
            fix = "The checkpoint belongs to another run."
            raise InvalidArgumentError("clipping", found, f"a rule that {self._rule} can become", fix)
        self._rule = found


class MaskState:
    """The masks of a training: public, since they are known in advance or computed from releases; one object for each block."""

    def __init__(self, sparsification: Sparsification, timetable: Timetable, parameters: Mapping[str, Tensor]) -> None:
        self._kind, self._times = sparsification, timetable
        self._shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        self._device = next(iter(parameters.values())).device
        self._block: int | None = None
        self.current: Masks | None = None  # of the step that was last asked for; None if it keeps all
        # Sums of what was released in this block, and in the last one that released anything.
        self._sums: dict[str, Tensor] = {}
        self._ranking: dict[str, Tensor] = {}

    def at(self, step: int) -> Masks | None:
        """Return the masks of a step, counted from 1: name → True where a coordinate is kept; None to keep all."""
        block = self._times.block(step)
        if block != self._block:
            if self._sums:
                self._ranking, self._sums = self._sums, {}
            self._block, self.current = block, self._of(block)
        return self.current

    def apply(self, released: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what moves the parameters: the release, of which ranking kinds drop what the step's masks drop.

        The whole release is added to the sums that rank coordinates, so that dropped ones can return.
        """
        if not self._kind.ranks:
            return released
        for name in self._shapes:
            total = self._sums.get(name)
            self._sums[name] = released[name].clone() if total is None else total.add_(released[name])
        masks = self.current or {}
        return {name: tensor.masked_fill(~masks[name], 0) if name in masks else tensor for name, tensor in released.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which masks are computed, apart from the plan."""
        return {"block": self._block, "sums": self._sums, "ranking": self._ranking}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self._block, self._sums, self._ranking = state["block"], dict(state["sums"]), dict(state["ranking"])
        self.current = None if self._block is None else self._of(self._block)

    def _of(self, block: int) -> Masks | None:
        found = self._kind.masks(block, self._times.blocks, self._shapes, self._ranking)
        return None if found is None else {name: mask.to(self._device) for name, mask in found.items()}


class PastIterates:
    """The state of a momentum from step to step: past parameters and accumulated releases. All of it is public."""

    def __init__(self, momentum: Momentum | None = None) -> None:
        self._momentum = momentum
        self._past: list[Mapping[str, Tensor]] = []  # the latest first
        self._velocity: dict[str, Tensor] = {}

    def past(self) -> tuple[tuple[float, Mapping[str, Tensor]], ...]:
        """Return the stored past parameters with their coefficients."""
        return () if self._momentum is None else tuple(zip(self._momentum.coefficients, self._past, strict=False))

    def step(self, released: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Record a step before the parameters change, and return name of a parameter → gradient for the optimizer."""
        if self._momentum is None:
            return {name: released[name] for name in parameters}
        length, accumulate = len(self._momentum.coefficients), self._momentum.accumulate
        if length:
            self._past = [{name: p.detach().clone() for name, p in parameters.items()}, *self._past][:length]
        if not self._momentum.accumulates:
            return {name: released[name] for name in parameters}
        self._velocity = {name: accumulate(self._velocity.get(name), released[name]) for name in parameters}
        # Copies, because optimizers and their hooks may write to gradients.
        return {name: velocity.clone() for name, velocity in self._velocity.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return past parameters and outer momentum."""
        return {"past": self._past, "velocity": self._velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore past parameters and outer momentum."""
        self._past, self._velocity = list(state["past"]), dict(state["velocity"])


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
        self.names = tuple(self._parameters)  # of those that have masters

    def hold(self, gradients: Mapping[str, Tensor]) -> None:
        """Keep gradients until the parameters are their masters, as torch allows no other type in `.grad`."""
        self._gradients = {name: gradients[name] for name in self._parameters}

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
            fix = "The checkpoint belongs to another model."
            raise InvalidArgumentError("masters", sorted(state), f"float32 copies of {sorted(shapes)}", fix)
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


class TrainingState:
    """Parameters, optimizer, scheduler, average, clipping rule, masks and momentum of a training.

    A checkpoint contains `parts`, by their names; `iterates` are past parameters for momentum; `divisor` is the plan's.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None,
        average: AveragedModel | None,
        shards: ShardedModel | None = None,
    ) -> None:
        self.model, self._parameters = model, parameters
        self.device = next(iter(parameters.values())).device
        self._trained = {id(parameter) for parameter in parameters.values()}
        self._optimizer, self._scheduler, self._average = optimizer, scheduler, average
        self._masters = MasterWeights(parameters, optimizer)
        self.divisor, self._steps = plan.divisor, plan.total_steps
        self._rule = ClippingState(plan.clipping, plan.bound_factors().tolist(), tuple(parameters))
        times = plan.timetable()
        self.masks: MaskState | None = None
        if plan.sparsification is not None and times is not None:
            self.masks = MaskState(plan.sparsification, times, parameters)
        # Averages of single examples are private, so no checkpoint contains them.
        momentum = plan.momentum if plan.momentum is not None and plan.momentum.averaging is None else None
        self.iterates = PastIterates(momentum)
        found: dict[str, Stateful | None] = {
            "model": ChangedTensors(model),
            "optimizer": OptimizerState(optimizer, self._masters),
            "masters": self._masters if self._masters.names else None,
            "rule": self._rule,
            "masks": self.masks,
            "scheduler": scheduler,
            "average": None if average is None else ChangedTensors(average),
            "momentum": None if momentum is None else self.iterates,
        }
        self.parts: dict[str, Stateful] = {name: part for name, part in found.items() if part is not None}
        self._sharded: list[ShardedState] = []
        if shards is not None:
            for name, optimizers in (("model", []), ("optimizer", wrapped(optimizer))):
                self._sharded.append(ShardedState(self.parts[name], shards, optimizers))
                self.parts[name] = self._sharded[-1]
        self._own = {name: part for name, part in self.parts.items() if name not in _OF_THE_HOST}

    def collect(self, completed: int = 0) -> bool:
        """Collect what is sharded on rank 0, and return True; False if ranks are lost or at different steps. All call this."""
        try:
            for part in self._sharded[:1]:
                part.check_step(completed)
            for part in self._sharded:
                part.collect()
        except WorldError:
            return False
        return True

    def forget(self) -> None:
        """Free what was collected."""
        for part in self._sharded:
            part.forget()

    def tell(self) -> dict[str, Any]:
        """Return what other ranks take over from this one."""
        told = {name: part.tell() if isinstance(part, ShardedState) else part.state_dict() for name, part in self.parts.items()}
        return copied(told, "cpu")

    def take_over(self, told: Mapping[str, Any]) -> None:
        """Take over the state that another rank told."""
        for name, part in self.parts.items():
            (part.take_over if isinstance(part, ShardedState) else part.load_state_dict)(told[name])

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

    def at(self, step: int) -> tuple[Rule, Masks | None]:
        """Return the rule and the masks of a step, counted from 1."""
        return self._rule.at(step), None if self.masks is None else self.masks.at(step)

    def put(self, released: Mapping[str, Tensor]) -> None:
        """Adapt rule, masks and momentum to a release, divided by the plan's divisor, and set the gradients of the parameters."""
        self._rule.adapt(released, self.divisor)
        if self.masks is not None:
            released = self.masks.apply(released)
        directions = dict(self.iterates.step(released, self._parameters))
        for name, each in directions.items():
            if each.is_sparse and not takes_sparse(self._optimizer, self._parameters[name]):
                directions[name] = each.to_dense()
        for name in directions.keys() - self._masters.names:
            self._parameters[name].grad = directions[name]
        self._masters.hold(directions)
        # Other members of the optimizer (frozen parameters) have no released gradient, so theirs is removed.
        for member in members(self._optimizer):
            if id(member) not in self._trained:
                member.grad = None

    def update(self) -> None:
        """Change the parameters by their gradients, and then scheduler and average."""
        with self._masters.in_place() if self._masters.names else contextlib.nullcontext():
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        if self._scheduler is not None:
            self._scheduler.step()
        if self._average is not None:
            self._average.update_parameters(self.model)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of what a host does not have, such as rule, masks and momentum as releases have changed them."""
        return {name: copied(part.state_dict()) for name, part in self._own.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, on the device of the parameters; all of it or, after an exception, nothing."""
        before = self.state_dict()
        try:
            for name, part in self._own.items():
                part.load_state_dict(copied(state[name], self.device))
        except BaseException:
            for name, part in self._own.items():
                part.load_state_dict(before[name])
            raise


def copied(state: dict[str, Any], device: torch.device | str | None = None) -> dict[str, Any]:
    """Return a state with copies of its tensors: steps change some in place."""
    return pytree.tree_map(lambda leaf: leaf.to(device, copy=True) if isinstance(leaf, Tensor) else leaf, state)  # type: ignore[no-any-return]
