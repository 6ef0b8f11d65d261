"""The table of operations that random programs are made of, and the kinds of tensors that they take and return.

An operation is a function of a module, which holds what the operation owns, and of tensors with the examples along their first
dimension. It is written for a batch, as a user would write it, but computes on every example by itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 7

# Kinds: floats of shape (B, d), (B, T, d) and (B, C, H, W); tokens below VOCABULARY (B, T); masks (B, T) with a True in every
# row; lengths (B,) from 1 to T.
VECTOR, SEQUENCE, IMAGE = "vector", "sequence", "image"
TOKENS, MASK, LENGTHS = "tokens", "mask", "lengths"
FLOATS = (VECTOR, SEQUENCE, IMAGE)
KINDS = (*FLOATS, TOKENS, MASK, LENGTHS)


@dataclass(frozen=True)
class Sizes:
    """The public sizes of a program: B examples, T positions, d features, images of C × H × W."""

    B: int
    T: int
    d: int
    C: int
    H: int
    W: int

    @property
    def heads(self) -> int:
        """Return how many heads an attention layer of this width has."""
        return 2 if self.d % 2 == 0 else 1


@dataclass(frozen=True)
class Operation:
    """One line of the table.

    Args:
        name: the name of its function.
        takes: kinds of its inputs.
        returns: kind of its result.
        function: (module, *inputs) → result.
        parts: name → maker of what the module owns: layers, parameters, tensors (buffers) and plain attributes.
        needs: which sizes it can be computed for.
        one_at_a_time: whether only its result for a batch of one is meant: the values of a batch decide a branch for all.
    """

    name: str
    takes: tuple[str, ...]
    returns: str
    function: Callable[..., Tensor]
    parts: Mapping[str, Callable[[Sizes], Any]]
    needs: Callable[[Sizes], bool]
    one_at_a_time: bool


OPERATIONS: dict[str, Operation] = {}


def operation(
    *takes: str,
    to: str,
    needs: Callable[[Sizes], bool] = lambda s: True,
    one_at_a_time: bool = False,
    **parts: Callable[[Sizes], Any],
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Enter a function into the table under its name; the arguments are those of `Operation`."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = function.__name__
        assert name not in OPERATIONS
        OPERATIONS[name] = Operation(name, takes, to, function, parts, needs, one_at_a_time)
        return function

    return register


def enter(name: str, function: Callable[..., Tensor], *takes: str, **options: Any) -> None:
    """Enter an expression into the table, as `operation` enters a function."""
    function.__name__ = name
    operation(*takes, **options)(function)


class Step(nn.Module):
    """An operation with what it owns."""

    def __init__(self, operation: Operation, sizes: Sizes) -> None:
        super().__init__()
        self.function = operation.function
        for name, make in operation.parts.items():
            value = make(sizes)
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


def values(*shape: str | int) -> Callable[[Sizes], nn.Parameter]:
    """Return the maker of a parameter; letters in its shape are sizes."""

    def make(sizes: Sizes) -> nn.Parameter:
        return nn.Parameter(0.5 * torch.randn([getattr(sizes, n) if isinstance(n, str) else n for n in shape]))

    return make


def square(sizes: Sizes) -> nn.Linear:
    """Return a linear layer from d to d features."""
    return nn.Linear(sizes.d, sizes.d)
