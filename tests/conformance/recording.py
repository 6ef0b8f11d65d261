"""Access to engine internals for tests: a single pass, and the passes over a batch."""

import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import oracle
import torch
from torch import Tensor

from privet._utils.randomness import preserve_generators
from privet._utils.tensors import gradient_dtype
from privet.gradients import clipped_sum, per_example_gradients
from privet.gradients.core import norms, per_example
from privet.gradients.core.examples import split_batch
from privet.gradients.core.randomness import Draws, draw_torch_seed
from privet.gradients.layers import linear
from privet.gradients.layers.convolution import gradient as convolution
from privet.gradients.masking import dispatch as masking
from privet.gradients.methods import ghost
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.passes import Passes
from privet.gradients.methods.tape import clip
from privet.gradients.parameters import trainable
from rounding import assert_equal_up_to_rounding


def record(model, loss_fn, batch, parameters=None, *, batched_from_the_start=False):
    """Return the tape of a single pass over all examples, or raise what prevents one."""
    program, examples = Program(model, loss_fn, parameters or trainable(model)), split_batch(batch)
    with preserve_generators():
        draws = Draws(examples.count, draw_torch_seed)
        return ghost.record(program, examples, draws, batched_from_the_start=batched_from_the_start)


@dataclass(frozen=True)
class Covered:
    """The passes over a batch, and their results in the order of the batch."""

    gradients: dict[str, Tensor]
    produced: dict[str, Tensor]  # of the last pass
    norms: Tensor
    looped: int
    groups: int
    sums: dict[str, Tensor]  # clipped by the rule, if one is given


def cover(model, loss_fn, batch, method="auto", skip_errors=False, past=(), seeds=draw_torch_seed, rule=None) -> Covered:
    """Run the passes over a batch as the engine does."""
    examples, parameters = split_batch(batch), trainable(model)
    passes = Passes(Program(model, loss_fn, parameters), seeds, method, past, skip_errors)
    found = {name: torch.full((examples.count, *p.shape), torch.nan, dtype=gradient_dtype(p)) for name, p in parameters.items()}
    lengths = torch.full((examples.count,), torch.nan, dtype=torch.float64)
    produced: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    with preserve_generators():
        for index, tape in passes.tapes(examples):
            lengths[index] = tape.group_norms((tuple(parameters),))[0]
            produced = tape.gradients()
            for name, value in produced.items():
                found[name][index] = value.detach()
            for name, value in clip(tape, rule, (tuple(parameters),))[0].items() if rule else ():
                sums[name] = sums[name] + value if name in sums else value
    return Covered(found, produced, lengths, passes.looped, passes.groups, sums)


def make_scarce(monkeypatch):
    """Limit memory, so that nothing is stored and all work is done in blocks of one or two examples."""
    for module in (per_example, linear, convolution, masking):
        monkeypatch.setattr(module, "KEEP", 0)
    monkeypatch.setattr(norms, "CACHE", 300)


def assert_agrees(model, loss_fn, batch, tolerance=1e-5, looped=0):
    """Assert that gradients and norms are those of plain autograd, and how many examples the loop computed; None for any."""
    covered, expected = cover(model, loss_fn, batch), oracle.plain_gradients(model, loss_fn, batch)
    assert covered.looped == looped or looped is None
    assert oracle.relative_error_per_example(covered.gradients, expected) <= tolerance
    assert torch.allclose(covered.norms, oracle.norms_of(expected), rtol=1e-4)


def assert_same_as_the_loop(model, loss_fn, batch):
    """Assert that a pass, or whatever a program needs instead, gives the gradients of the loop."""
    found, expected = (per_example_gradients(model, loss_fn, batch, method=method) for method in ("auto", "loop"))
    assert_equal_up_to_rounding(found, expected)


def shift(model, loss_fn, batch, rule, position=0, **options):
    """Return by how much the clipped sum moves when the example at a position leaves."""
    whole, rest = (clipped_sum(model, loss_fn, part, rule, **options) for part in (batch, oracle.without(batch, position)))
    return oracle.moved(whole, rest)


_VALUES = weakref.WeakKeyDictionary()


class Hidden:
    """Holds a value where the guard does not look: under a name that no code contains."""

    __slots__ = ("__weakref__",)

    @property
    def value(self):
        return globals()["_VALUES"].setdefault(self, [])

    @value.setter
    def value(self, value):
        globals()["_VALUES"][self] = value


class Seen(Hidden):
    """Records what a loss function saw, in spite of the guard."""

    __slots__ = ()

    @property
    def items(self):
        return self.value

    def __call__(self, item):
        self.items.append(item)


def underlying(x):
    """Return the tensor of all examples behind one example's, which autograd tracks."""
    return torch._C._functorch.get_unwrapped(x) if torch._C._functorch.is_batchedtensor(x) else x


def physical(x):
    """Return the values of all examples, (B·n, …) for an example's (n, …)."""
    functorch = torch._C._functorch
    return underlying(x).movedim(functorch.maybe_get_bdim(x), 0).flatten(0, 1) if functorch.is_batchedtensor(x) else x


def stack_depth():
    """Return how many calls this one is nested in."""
    return sum(1 for _ in traceback.walk_stack(None))


def identity_with_backward(backward: Callable[[Tensor], Tensor]) -> type[torch.autograd.Function]:
    """Return an autograd function that copies its input; its gradient is `backward` of the output's gradient."""

    class Identity(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return backward(grad)

    return Identity
