"""What the rules of layers report to while a model runs on one example, for all examples of a physical batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from privet.errors import PrivetError
from privet.gradients.core.batching import is_batched, on_physical_batch
from privet.gradients.core.derivation import Derivation, begin_graph, is_older, nodes_behind
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad
from privet.gradients.core.randomness import Draws, Sampler


class UntraceableError(PrivetError):
    """A parameter is used in a way that no rule follows on the physical batch; one example at a time is still right."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A parameter, or a tensor computed from parameters alone, with the gradients of its uses.

    Args:
        tensor: that the model uses.
        derivations: name of a parameter → how the tensor comes from it; empty for a parameter itself.
        name: of the parameter, for a parameter.
        gradients: of every use, with the number of rows that an example had in it.
    """

    tensor: Tensor
    derivations: Mapping[str, Derivation] = field(default_factory=dict)
    name: str = ""
    gradients: list[tuple[PerExampleGrad, int]] = field(default_factory=list)


class Recorder:
    """Collects the gradients of every use of the followed parameters in one pass.

    A batched tensor never asks for a gradient inside of vmap. So a tensor that does is a parameter, or made of parameters and
    constants: its own graph tells of which.

    Args:
        examples: B.
        parameters: name → trainable parameter to follow.
        draws: random numbers of the pass.

    Attributes:
        token: a batched tensor of the pass, once it has begun.
        low_precision: whether something was computed in less than float32.
        foreign: tensors that ask for a gradient and are no followed parameters.
    """

    def __init__(self, examples: int, parameters: Mapping[str, Tensor], draws: Draws) -> None:
        self.examples, self.parameters, self.draws = examples, parameters, draws
        self._began = begin_graph()
        self.token: Tensor | None = None
        self.foreign: list[Tensor] = []
        self.low_precision = False
        self._leaves = {id(parameter): Leaf(parameter, name=name) for name, parameter in parameters.items()}
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._unfollowed: dict[int, Tensor] = {}
        self._physical: Sequence[Tensor] = ()
        # An input that asks for a gradient keeps a layer in the graph when nothing before it does.
        self.anchor = torch.zeros((), device=next(iter(parameters.values())).device, requires_grad=True)

    @property
    def leaves(self) -> Iterable[Leaf]:
        """All that is followed."""
        return self._leaves.values()

    def follows(self, tensor: object) -> bool:
        """Return whether this very tensor is a followed parameter, or made of followed parameters alone."""
        return id(tensor) in self._leaves

    def follow(self, tensor: Tensor) -> bool:
        """Follow a tensor that asks for a gradient and is not batched; return whether a followed parameter is in it."""
        if id(tensor) in self._leaves:
            return True
        if id(tensor) in self._unfollowed:
            return False
        sources, others = self._sources(tensor)
        self.foreign += others
        if not sources:
            self._unfollowed[id(tensor)] = tensor
            return False
        if tensor.dtype in (torch.float32, torch.float64):
            self.derive(tensor, sources)
        elif _is_cast(tensor):
            # The gradients of a cast are the parameter's own, in at least float32: a sum in lower precision would be rounded.
            (name,) = sources
            own = self._leaves[id(self.parameters[name])]
            self._leaves[id(tensor)] = Leaf(tensor, name=name, gradients=own.gradients)
        else:
            raise UntraceableError("a tensor made of parameters in low precision would round the sum of its gradients")
        return True

    def has_used(self, tensor: Tensor) -> bool:
        """Return whether a followed tensor lies in the memory of this one: writing there would change how it was computed."""
        if not tensor.requires_grad:
            return False
        place = tensor.untyped_storage().data_ptr()
        return any(leaf.tensor.untyped_storage().data_ptr() == place for leaf in self._leaves.values())

    def derive(self, tensor: Tensor, sources: Sequence[str]) -> None:
        """Follow a tensor that was computed from the parameters of these names and from constants.

        The tensor is kept alive with its leaf, so that its identity is not taken by another.
        """
        derivations = {name: Derivation(tensor, self.parameters[name]) for name in sources}
        same = next((leaf for leaf in self._leaves.values() if _same_view(leaf, derivations)), None)
        self._leaves[id(tensor)] = (
            Leaf(tensor, derivations) if same is None else Leaf(tensor, same.derivations, gradients=same.gradients)
        )

    def view(self, parameter: Tensor, tensor: Tensor) -> Tensor:
        """Return a tensor that was just computed from one followed tensor, followed too if that one is."""
        if self.follows(parameter) and tensor is not parameter:
            self.follow(tensor)
        return tensor

    def add(self, leaf: Tensor | None, gradient: PerExampleGrad, rows: int = 1) -> None:
        """Record the gradients of one use of a followed tensor.

        Args:
            leaf: the tensor.
            gradient: of B·rows rows.
            rows: rows of an example in this use, side by side; their gradients add up before the example's norm is taken.
        """
        self._leaves[id(leaf)].gradients.append((gradient, rows))

    def shared(self, *tensors: Tensor | None) -> bool:
        """Return whether none of a rule's arguments belongs to examples: parameters, constants, and what is not given."""
        return not any(x is mine for x in tensors if x is not None for mine in self._physical)

    def call(self, rule: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Call a rule with the physical tensors in the place of batched ones, one level of lists and tuples deep.

        Returns:
            What it returns, as one example sees it; None if it does.
        """
        batched: list[Tensor] = []
        for argument in (*arguments, *options.values()):
            if isinstance(argument, list | tuple):
                batched += [item for item in argument if is_batched(item)]
            elif is_batched(argument):
                batched.append(argument)
        missing: list[bool] | None = None
        known = True

        def below(*physical: Tensor) -> Any:
            nonlocal known, missing
            own = {id(x): tensor for x, tensor in zip(batched, physical, strict=False)}  # the token alone, if none is batched

            self._physical = physical
            try:
                found = rule(
                    self, *(_lowered(x, own) for x in arguments), **{name: _lowered(x, own) for name, x in options.items()}
                )
            finally:
                self._physical = ()
            known = found is not None
            if isinstance(found, tuple) and any(part is None for part in found):
                missing = [part is None for part in found]
                found = tuple(part for part in found if part is not None)
            return found if known else physical[0]

        assert self.token is not None
        found = self.on_physical_batch(below, *(batched or [self.token]))
        if missing is not None:
            there = iter(found)
            return tuple(None if absent else next(there) for absent in missing)
        return found if known else None

    def forget(self) -> None:
        """Let go of everything: what the graph of a pass that failed still holds would hold it in turn."""
        self.token, self._physical, self.foreign = None, (), []
        self._leaves.clear()
        self._unfollowed.clear()

    def sample(self, sampler: Sampler, device: torch.device) -> Tensor:
        """Return random numbers of every example, (B, …), below vmap; as for `Draws.sample`."""
        return self.draws.sample(sampler, device)

    def precise(self, factor: Tensor, leaf: Tensor) -> Tensor:
        """Return a factor of the gradients of a leaf in the leaf's precision, and at least in float32."""
        precision = torch.promote_types(leaf.dtype, torch.float32)
        if factor.dtype != precision:
            self.low_precision = True
            factor = factor.to(precision)
        return factor

    def detach(self, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return tensors as a rule's autograd function takes them: those that are followed without their history."""
        return tuple(x.detach() if x is not None and self.follows(x) else x for x in tensors)

    def on_physical_batch(self, call: Callable[..., Any], *tensors: Tensor) -> Any:
        """Call a function with the physical tensors, examples first; return what it returns, as one example sees it."""
        assert self.token is not None
        return on_physical_batch(self.token, call, tensors)

    def physical_copy(self, leaf: Tensor) -> Tensor:
        """Return a followed tensor with a copy for each example, (B, *shape), below vmap; their gradients are recorded.

        The copies are views of one tensor; the gradients of all examples are stored.
        """

        def record(gradient: Tensor) -> None:
            self.add(leaf, DenseGrad(self.precise(gradient, leaf)))

        return _Copy.apply(self.anchor, leaf.detach(), self.examples, record)  # type: ignore[no-any-return,no-untyped-call]

    def per_example_copy(self, leaf: Tensor) -> Tensor:
        """Return a followed tensor as each example's own, inside of vmap: right for every function."""
        assert self.token is not None
        found: Tensor = self.on_physical_batch(lambda _: self.physical_copy(leaf), self.token)
        return found

    def own(self, x: Tensor) -> Tensor:
        """Return an argument of a rule with the examples first, (B, …): as it is, copied, or expanded if it is shared."""
        if not self.shared(x):
            return x
        return self.physical_copy(x) if self.follows(x) else x.expand(self.examples, *x.shape)

    def _sources(self, tensor: Tensor) -> tuple[list[str], list[Tensor]]:
        """Return the names of the parameters that a tensor was computed from, and other tensors that ask for a gradient."""
        if tensor.grad_fn is None:
            return [], [tensor]
        names: dict[str, None] = {}
        others: list[Tensor] = []
        for node in nodes_behind([tensor.grad_fn]):
            variable = getattr(node, "variable", None)
            if variable is None:
                self._check_node(node)
            elif id(variable) in self._names:
                names[self._names[id(variable)]] = None
            else:
                others.append(variable)
        return list(names), others

    def _check_node(self, node: Any) -> None:
        """Refuse what may hand a sum of gradients to user code, which need not be linear.

        What torch computes from parameters is linear on the way back, so that one product serves all examples.

        Raises:
            UntraceableError: a user's autograd function is on the way from the parameters, or what was made before the pass and
                may have hooks that nobody saw.
        """
        function = getattr(type(node), "_forward_cls", None)
        if function is not None and not function.__module__.startswith(("torch.", "privet.")):
            raise UntraceableError("a parameter goes through an autograd function of the user's")
        if is_older(node, self._began):
            raise UntraceableError("a tensor was made of parameters before the pass")


class _Copy(torch.autograd.Function):
    """A copy of a parameter for each example; the gradients of the copies are recorded."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, parameter: Tensor, examples: int, record: Any) -> Tensor:
        ctx.record = record
        # One example's copy would be the parameter's own memory, which nobody may write to.
        return parameter.expand(examples, *parameter.shape) if examples > 1 else parameter[None].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.record(gradient)
        return None, None, None, None


def _lowered(argument: Any, own: Mapping[int, Tensor]) -> Any:
    """Return an argument with physical tensors in the place of batched ones; a closure would keep them alive in a cycle."""
    if type(argument) in (list, tuple):
        return type(argument)(_lowered(item, own) for item in argument)
    return own.get(id(argument), argument) if isinstance(argument, Tensor) else argument


def _is_cast(tensor: Tensor) -> bool:
    """Return whether a tensor is a parameter in another precision."""
    node: Any = tensor.grad_fn
    return node.name() == "ToCopyBackward0" and hasattr(node.next_functions[0][0], "variable")


def _same_view(leaf: Leaf, derivations: Mapping[str, Derivation]) -> bool:
    """Return whether a leaf shows the same entries of the same parameter in the same order."""
    if leaf.derivations.keys() != derivations.keys() or len(derivations) != 1:
        return False
    one, other = (next(iter(each.values())) for each in (leaf.derivations, derivations))
    return (
        one.span is not None
        and one.span == other.span
        and (one.tensor.shape, one.tensor.stride()) == (other.tensor.shape, other.tensor.stride())
    )


__all__ = ["Leaf", "Recorder", "UntraceableError", "is_batched"]
