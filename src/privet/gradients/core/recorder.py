"""The recorder, to which the rules of layers report per-example gradients during a pass over a physical batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from privet._utils.tensors import gradient_dtype
from privet.errors import PrivetError
from privet.gradients.core.batching import SEQUENCES, batch_dimension, get_unwrapped, is_batched, run_on_physical_batch
from privet.gradients.core.derivation import Derivation
from privet.gradients.core.handlers import Handler
from privet.gradients.core.losses import backpropagate, begin_graph, is_older, iter_nodes
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad
from privet.gradients.core.randomness import Draws


class UntraceableError(PrivetError):
    """A parameter is used in a way that no rule supports on the physical batch; the loop still handles it."""

    call = ""  # name of the function of torch that was called


class TakesGradientsError(UntraceableError):
    """The program takes gradients itself, which a pass follows if each example has copies of the parameters."""


@dataclass(eq=False, slots=True)
class Leaf:
    """A parameter, or a tensor computed from parameters alone, with its recorded per-example gradients."""

    tensor: Tensor
    derivations: Mapping[str, Derivation] = field(default_factory=dict)  # of the tensor, by parameter; empty for a parameter
    name: str = ""  # of the parameter; empty for a derived tensor
    gradients: list[tuple[PerExampleGrad, int]] = field(default_factory=list)  # of each use, and its rows per example


_EXACT = {torch.float32, torch.float64}
_CPU_ANCHOR = torch.zeros((), device="cpu", requires_grad=True)


def _anchor(device: torch.device) -> Tensor:
    """Return an input that requires a gradient, which keeps a layer in the graph when none of its other inputs does."""
    return _CPU_ANCHOR if device.type == "cpu" else torch.zeros((), device=device, requires_grad=True)


class Recorder:
    """Collects the per-example gradients of all followed parameters in one pass.

    Inside vmap a batched tensor never requires a gradient. So a tensor that does is a parameter, or computed from parameters and
    constants; its graph shows which.
    Attributes:
        leaves: followed tensors, by id.
        token: a batched tensor of the pass, once it has begun.
        low_precision: whether anything was computed in less than float32.
        foreign: tensors that require a gradient and are not followed parameters.
        twice: whether the program takes gradients itself, so that what it computes is differentiated twice. Parameters are then
            copied for each example, and torch's own functions compute with them.
        frees_parameters: whether parameters have values only while their module runs.
        reread: names of parameters whose values the sum needs, because tensors derived from them are differentiated then.
    """

    def __init__(
        self, examples: int, parameters: Mapping[str, Tensor], draws: Draws, *, twice: bool = False,
        frees_parameters: bool = False,
    ) -> None:  # fmt: skip
        self.examples, self.parameters, self.draws = examples, parameters, draws
        self.twice, self.frees_parameters = twice, frees_parameters
        self.reread: set[str] = set()
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}
        self._began = begin_graph()
        self.token: Any = None
        self.foreign: list[Tensor] = []
        self.low_precision = False
        self.leaves = {id(parameter): Leaf(parameter, name=name) for name, parameter in parameters.items()}
        self._names = dict(zip(map(id, parameters.values()), parameters, strict=True))
        self._unfollowed: dict[int, tuple[Tensor, int]] = {}
        self._physical: frozenset[int] = frozenset()  # ids of the physical tensors that a rule was given, while it runs
        self._observed: list[_Observed] = []
        self.anchor = _anchor(next(iter(parameters.values())).device)

    def follows(self, tensor: object) -> bool:
        """Return whether this tensor object is a followed parameter, or computed from followed parameters alone."""
        return id(tensor) in self.leaves

    def follow(self, tensor: Tensor) -> bool:
        """Follow an unbatched tensor that requires a gradient; return whether it depends on a followed parameter."""
        if id(tensor) in self.leaves:
            return True
        if id(tensor) in self._unfollowed and self._unfollowed[id(tensor)][1] == tensor._version:  # else, it was written to
            return False
        sources, others = self._sources(tensor)
        self.foreign += others
        if not sources:
            self._unfollowed[id(tensor)] = tensor, tensor._version
            return False
        if all(gradient_dtype(x) == x.dtype for x in (tensor, *(self.parameters[name] for name in sources))):
            self.derive(tensor, sources)
        elif _is_cast(tensor):
            # A cast shares the parameter's gradients, in at least float32: a sum in lower precision would be rounded.
            (name,) = sources
            own = self.leaves[id(self.parameters[name])]
            self.leaves[id(tensor)] = Leaf(tensor, name=name, gradients=own.gradients)
        elif len(sources) == 1 and Derivation(tensor, self.parameters[sources[0]]).is_exact:
            self.derive(tensor, sources)
        else:
            raise UntraceableError("a tensor computed from parameters in low precision would round the sum of its gradients")
        return True

    def has_used(self, tensor: Tensor) -> bool:
        """Return whether a followed tensor shares memory with this one, so that a write would invalidate its graph."""
        if not tensor.requires_grad:
            return False
        place = tensor.untyped_storage().data_ptr()
        return any(leaf.tensor.untyped_storage().data_ptr() == place for leaf in self.leaves.values())

    def derive(self, tensor: Tensor, sources: Sequence[str]) -> None:
        """Follow a tensor computed from the named parameters; its leaf keeps it alive, so that its id is not reused."""
        derivations = {name: Derivation(tensor, self.parameters[name]) for name in sources}
        self.reread.update(name for name, each in derivations.items() if each.span is None)
        same = next((leaf for leaf in self.leaves.values() if _is_same_view(leaf, derivations)), None)
        self.leaves[id(tensor)] = (
            Leaf(tensor, derivations) if same is None else Leaf(tensor, same.derivations, gradients=same.gradients)
        )

    def view(self, parameter: Tensor, tensor: Tensor) -> Tensor:
        """Return a tensor just computed from another, followed if the other is."""
        if self.follows(parameter) and tensor is not parameter:
            self.follow(tensor)
        return tensor

    def add(self, leaf: Tensor | None, gradient: PerExampleGrad, rows: int = 1) -> None:
        """Record per-example gradients of a followed tensor, for B·rows rows: those of consecutive rows add up before the norm.

        Raises:
            UntraceableError: they are in less than float32, so their sum would be rounded after clipping, or of another shape.
        """
        if gradient.dtype not in _EXACT and torch.finfo(gradient.dtype).bits < 32:
            raise UntraceableError("a rule records gradients in low precision, whose sum would be rounded; use recorder.promote")
        own = self.leaves[id(leaf)]
        if isinstance(gradient, DenseGrad) and gradient.gradients.shape[1:] != own.tensor.shape:
            raise UntraceableError("a rule records gradients of another shape than that of the parameter")
        own.gradients.append((gradient, rows))

    def is_shared(self, *tensors: Tensor | None) -> bool:
        """Return whether all of a rule's arguments are shared by the examples: parameters, constants, or None."""
        return self._physical.isdisjoint(map(id, tensors))

    def call(self, handler: Handler, arguments: Sequence[Any], options: Mapping[str, Any], batched: Sequence[Tensor]) -> Any:
        """Call a rule, unless it is direct with physical tensors in place of batched ones; return what one example sees."""
        if handler.direct:
            return handler.rule(self, *arguments, **options)
        missing: list[bool] | None = None
        known = True

        def below(*physical: Tensor) -> Any:
            nonlocal known, missing
            own = dict(zip(map(id, batched), physical, strict=False))  # the token alone, if none is batched
            self._physical = frozenset(map(id, physical))
            try:
                named = dict(zip(options, _to_physical(options.values(), own), strict=True)) if options else {}
                found = handler.rule(self, *_to_physical(arguments, own), **named)
            finally:
                self._physical = frozenset()
            known = found is not None
            if isinstance(found, tuple) and any(part is None for part in found):
                missing = [part is None for part in found]
                found = tuple(part for part in found if part is not None)
            return found if known else physical[0]

        found = run_on_physical_batch(self.token, below, batched or [self.token])
        if missing is not None:
            there = iter(found)
            return tuple(None if absent else next(there) for absent in missing)
        return found if known else None

    def forget(self) -> None:
        """Release everything: the graph of a failed pass may keep this recorder alive."""
        self.token, self.foreign = None, []
        self.leaves.clear()
        self._unfollowed.clear()
        self._observed.clear()
        self._copies.clear()

    def apply(self, function: type[torch.autograd.Function], *arguments: Any) -> Any:
        """Apply an autograd function of a rule, below vmap, to the anchor and to these arguments.

        Without what `Function.apply` prepares for transformations of `torch.func`, a third of its time, where none is active.
        """
        if self.twice and function is not _Copy:
            raise UntraceableError("the gradient of a gradient of this function is not followed")
        base: Any = function if _is_transformed() else super(torch.autograd.Function, function)
        return base.apply(self.anchor, *arguments)

    def map(
        self,
        x: Tensor,
        parameters: Sequence[Tensor | None],
        compute: Callable[..., Tensor],
        pull_back: Callable[..., Tensor],
        record: Callable[[Tensor, Tensor], None],
    ) -> Tensor:
        """Apply a function of x and parameters whose gradients are recorded, below vmap.

        Args:
            compute: (x, *parameters) → the output, best a matrix: a view that a custom function creates must not be written to.
            pull_back: (gradient of the output, x, *parameters) → gradient of x.
            record: (x, gradient of the output) → None; records the gradients of the parameters.
        """
        plain = [p.detach() if id(p) in self.leaves else p for p in parameters]  # type: ignore[union-attr]
        base: Any = _Map if _is_transformed() else super(torch.autograd.Function, _Map)  # as in `apply`
        return base.apply(self.anchor, x, compute, pull_back, record, *plain)  # type: ignore[no-any-return]

    def observe(
        self, x: Tensor, parameters: Sequence[Tensor | None], compute: Callable[..., Tensor], record: Callable[..., None]
    ) -> Tensor:
        """Apply a function as `map` does, with torch's own backward pass, which is faster; record after it.

        For a `record` that keeps x and the gradient of the output anyway: until then, both stay in memory. The output must not
        be a view: if the user's code writes to a view, its node leaves the graph.
        """
        y = compute(x if x.requires_grad else x.detach().requires_grad_(), *self.detach(*parameters))
        assert not y._is_view()
        node: Any = y.grad_fn
        self._observed.append(_Observed(GradientEdge(node, y.output_nr), x.detach(), x._version, record))
        return y

    def backpropagate(self, losses: Tensor) -> None:
        """Compute the gradients of the sum of the losses, and record them.

        Raises:
            UntraceableError: autograd itself finds a gradient for a parameter, so some use of it was missed; or an input of an
                observed function was written to.
        """
        names, edges = list(self.parameters), [each.edge for each in self._observed]
        _, *found = backpropagate(losses, [self.anchor, *self.parameters.values(), *edges])
        if missed := [name for name, one in zip(names, found, strict=False) if one is not None]:
            raise UntraceableError(f"no rule supports every use of {', '.join(missed)}")
        for use, gradient in zip(self._observed, found[len(names) :], strict=True):
            if gradient is not None:
                if use.x._version != use.version:
                    raise UntraceableError("a tensor is written to after it was an input of a layer")
                use.record(use.x, gradient)
        self._observed.clear()

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Apply dropout to rows (B·n, …), with independent draws for each example, below vmap."""
        rows = len(x) // max(1, self.examples)

        def sample(examples: int, generator: torch.Generator) -> Tensor:
            mask = x.new_empty(examples, rows, *x.shape[1:])
            return mask.bernoulli_(1 - p, generator=generator).div_(1 - p) if p < 1 else mask.zero_()

        return x * self.draws.sample(sample, x.device).flatten(0, 1)

    def promote(self, factor: Tensor, leaf: Tensor) -> Tensor:
        """Return a factor of a leaf's gradients in the precision of the leaf, and at least float32."""
        if factor.dtype == leaf.dtype and leaf.dtype in _EXACT:
            return factor
        precision = gradient_dtype(leaf)
        if factor.dtype != precision:
            self.low_precision = True
        return factor.to(precision)

    def detach(self, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return tensors with followed ones detached, as arguments of a rule's autograd function."""
        return tuple([x.detach() if id(x) in self.leaves else x for x in tensors])  # type: ignore[union-attr]

    def run_on_physical_batch(self, call: Callable[..., Any], *tensors: Tensor) -> Any:
        """Call a function with the physical tensors, examples first; return its result as one example sees it."""
        return run_on_physical_batch(self.token, call, tensors)

    def physical_copy(self, leaf: Tensor) -> Tensor:
        """Return one copy of a followed tensor per example, (B, *shape), below vmap; their gradients are recorded."""

        def record(gradient: Tensor) -> None:
            self.add(leaf, DenseGrad(self.promote(gradient, leaf)))

        copies: Tensor = self.apply(_Copy, leaf.detach(), self.examples, record)
        return copies

    def per_example_copy(self, leaf: Tensor) -> Tensor:
        """Return a copy of a followed tensor for each example, inside vmap: correct for every function."""
        token, found = self._copies.get(id(leaf), (None, None))
        if found is None or token is not self.token:
            found = self.run_on_physical_batch(lambda _: self.physical_copy(leaf), self.token)
            if self.twice:  # the parts of a gradient meet in one copy
                self._copies[id(leaf)] = self.token, found
        return found

    def ask_gradient(self, x: Tensor) -> None:
        """Let a batched tensor require a gradient, below vmap."""

        def below(token: Tensor) -> Tensor:
            get_unwrapped(x).requires_grad_()
            return token

        self.run_on_physical_batch(below, self.token)

    def differentiate(self, outputs: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any], **options: Any) -> Any:
        """Return what `torch.autograd.grad` returns to one example: inside vmap, no output depends on another's input."""
        if not self.twice:
            raise TakesGradientsError("the program takes gradients itself")
        pairs, given = list(zip(outputs, weights, strict=True)), [each for each in weights if each is not None]
        if not all(map(is_batched, (*outputs, *inputs))) or any(w is None and x.numel() > 1 for x, w in pairs):
            raise UntraceableError("gradients are taken of tensors that examples share, or of no scalar")

        def below(*physical: Tensor) -> tuple[Tensor, ...]:
            ends, rest = physical[: len(outputs)], iter(physical[len(outputs) :])
            own = [
                torch.ones_like(end) if w is None else next(rest).expand_as(end) for end, (_, w) in zip(ends, pairs, strict=True)
            ]
            found = torch.autograd.grad(ends, list(map(get_unwrapped, inputs)), own, retain_graph=True, **options)
            if any(one is None for one in found):
                raise UntraceableError("a gradient is taken by a tensor that is not used")
            return tuple(one.movedim(batch_dimension(x), 0) for one, x in zip(found, inputs, strict=True))

        return self.run_on_physical_batch(below, *outputs, *given)

    def to_batched(self, x: Tensor) -> Tensor:
        """Return an argument of a rule with the examples first, (B, …): unchanged, copied, or expanded if it is shared."""
        if not self.is_shared(x):
            return x
        return self.physical_copy(x) if self.follows(x) else x.expand(self.examples, *x.shape)

    def _sources(self, tensor: Tensor) -> tuple[list[str], list[Tensor]]:
        if tensor.grad_fn is None:
            return [], [tensor]
        names: dict[str, None] = {}
        others: list[Tensor] = []
        for node in iter_nodes([tensor.grad_fn]):
            variable = getattr(node, "variable", None)
            if variable is None:
                self._check_node(node)
            elif id(variable) in self._names:
                names[self._names[id(variable)]] = None
            else:
                others.append(variable)
        return list(names), others

    def _check_node(self, node: Any) -> None:
        """Refuse a node that may pass a sum of gradients to user code: an autograd function, or a hook from before the pass.

        The backward passes of torch's own functions are linear, so one vector-Jacobian product serves all examples.
        """
        function = getattr(type(node), "_forward_cls", None)
        if function is not None and not function.__module__.startswith(("torch.", "privet.")):
            raise UntraceableError(f"a parameter goes through the autograd function {function.__name__}")
        if is_older(node, self._began):
            raise UntraceableError("a tensor was computed from parameters before the pass")


class _Observed(NamedTuple):
    edge: GradientEdge  # of the output
    x: Tensor
    version: int  # of x
    record: Callable[..., None]


class _Map(torch.autograd.Function):
    """A function of x and of detached parameters; the backward pass returns the gradient of x only, and records the factors."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x: Tensor, compute: Any, pull_back: Any, record: Any, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(x, *parameters)
        ctx.pull_back, ctx.record = pull_back, record
        found: Tensor = compute(x, *parameters)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, *parameters = ctx.saved_tensors
        ctx.record(x.detach(), grad)
        into = ctx.pull_back(grad, x, *parameters).to(x.dtype) if ctx.needs_input_grad[1] else None
        return None, into, None, None, None, *[None] * len(parameters)


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, parameter: Tensor, examples: int, record: Any) -> Tensor:
        ctx.record = record
        # For one example, expand would return the parameter's own memory, which must not be written to.
        return parameter.expand(examples, *parameter.shape) if examples > 1 else parameter[None].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.record(gradient)
        return None, None, None, None


_PLAIN = {int, float, bool, str, type(None)}
_is_transformed: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def _to_physical(arguments: Iterable[Any], own: Mapping[int, Tensor]) -> list[Any]:
    """Replace batched tensors in arguments by physical ones (not a closure: that would keep them alive in a cycle)."""
    found: list[Any] = list(map(own.get, map(id, arguments), arguments))
    for place, x in enumerate(arguments):
        if type(x) in SEQUENCES and not _PLAIN.issuperset(map(type, x)):
            found[place] = type(x)(_to_physical(x, own))
    return found


def _is_cast(tensor: Tensor) -> bool:
    node: Any = tensor.grad_fn
    return node.name() == "ToCopyBackward0" and hasattr(node.next_functions[0][0], "variable")


def _is_same_view(leaf: Leaf, derivations: Mapping[str, Derivation]) -> bool:
    if leaf.derivations.keys() != derivations.keys() or len(derivations) != 1:
        return False
    one, other = (next(iter(each.values())) for each in (leaf.derivations, derivations))
    return (
        one.span is not None
        and one.span == other.span
        and (one.tensor.shape, one.tensor.stride()) == (other.tensor.shape, other.tensor.stride())
    )
