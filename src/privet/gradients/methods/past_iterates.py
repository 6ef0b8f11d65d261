"""Gradients of the same examples at several parameter sets, added before the norm is taken.

There is one pass per set. The gradients of one parameter from all passes are combined like those of several uses in one pass:
norm and weighted sum follow from the same formulas. No per-example gradient of an earlier step is stored.
"""

from __future__ import annotations

__all__ = ["Past", "check_past", "swap_parameters", "swap_values"]

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn

from privet.errors import InvalidArgumentError, real

# Pairs of a coefficient and the named parameters at which gradients are taken and multiplied by it.
Past = Sequence[tuple[float, Mapping[str, Tensor]]]


def check_past(past: Past, parameters: Mapping[str, Tensor]) -> None:
    """Refuse parameter sets that are not those of the model, and coefficients that are not finite."""
    expected = {name: parameter.shape for name, parameter in parameters.items()}
    for coefficient, values in past:
        real("past", coefficient, "Each set comes as (coefficient, {name: tensor}).")
        if {name: value.shape for name, value in values.items()} != expected:
            raise InvalidArgumentError("past", sorted(values), "values for exactly the trainable parameters, of their shapes")


@contextlib.contextmanager
def swap_values(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Return a context in which the parameters hold other values; do not differentiate its results outside it."""
    before = {name: parameter.data for name, parameter in parameters.items()}
    try:
        for name, parameter in parameters.items():
            parameter.data = values[name].detach()
        yield
    finally:
        for name, parameter in parameters.items():
            parameter.data = before[name]


@contextlib.contextmanager
def swap_parameters(model: nn.Module, parameters: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> Iterator[None]:
    """Return a context in which other parameters replace the model's, in all of its modules."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    places = [
        (module, own, parameter)
        for module in model.modules()
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) in names
    ]
    try:
        for module, own, parameter in places:
            module._parameters[own] = others[names[id(parameter)]]  # type: ignore[assignment]
        yield
    finally:
        for module, own, parameter in places:
            module._parameters[own] = parameter
