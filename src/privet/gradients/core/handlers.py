"""The table of rules: which torch function is computed on the physical batch, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

# (recorder, *arguments of the function) → its result; None if this call is not one that the rule knows.
Rule = Callable[..., Any]


@dataclass(frozen=True)
class Handler:
    """A rule of a torch function.

    Args:
        rule: called below vmap with physical tensors: of those that belong to examples, the first dimension is B; parameters and
            what examples share come as they are. Its result has examples first.
        always: whether it computes every call in which an example's tensor takes part, not only those with a parameter.
        direct: whether it is called inside of vmap, with tensors as one example sees them.
    """

    rule: Rule
    always: bool = False
    direct: bool = False


HANDLERS: dict[Any, Handler] = {}


def register_handler(*functions: Any, always: bool = False, direct: bool = False) -> Callable[[Rule], Rule]:
    """Return a decorator that makes a rule known as the way to compute some torch functions.

    Args:
        functions: such as `torch.inner`, `torch.nn.functional.linear` or `torch.Tensor.matmul`.
        always, direct: as for `Handler`.

    The rule is called as (recorder, *arguments of the function), with physical tensors: (B, …) where an example sees (…). For a
    parameter that it follows (`recorder.follows`), it computes with the detached parameter and, in the backward pass, hands the
    factors of the per-example gradients to `recorder.add`. It returns None for calls that it does not know: each example then
    gets a copy of the parameter.

    Guarantee:
        A rule is part of what is trusted: its output for an example, and the gradients that it records for it, must depend on
        that example's row alone.
        Compare it with `method="loop"`.
    """

    def register(rule: Rule) -> Rule:
        for function in functions:
            HANDLERS[function] = Handler(rule, always, direct)
        return rule

    return register


def registered(rules: Iterable[Rule]) -> dict[Any, Handler]:
    """Return the entries of the table that some rules have."""
    wanted = set(rules)
    return {function: handler for function, handler in HANDLERS.items() if handler.rule in wanted}
