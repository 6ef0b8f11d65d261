"""Registry of rules that compute torch functions on the physical batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# (recorder, *arguments of the function) → its result; None if the rule does not support this call.
Rule = Callable[..., Any]


@dataclass(frozen=True)
class Handler:
    """A rule of a torch function."""

    rule: Rule
    always: bool = False  # whether it computes every call with a per-example tensor, also without a parameter
    direct: bool = False  # whether it is called inside vmap, as one example sees it, or below, with physical tensors


HANDLERS: dict[Any, Handler] = {}
# By name, such as "bitsandbytes::gemm_4bit": an operator exists only once its package is imported.
OPERATORS: dict[str, Handler] = {}


def register_handler(*functions: Any, always: bool = False, direct: bool = False) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a rule for torch functions.

    Args:
        functions: such as `torch.inner`, `torch.nn.functional.linear` or `torch.Tensor.matmul`; or the name of an operator of
            another package, such as "bitsandbytes::gemm_4bit", whose own batching rule is not used.
        always: whether the rule computes every call with a per-example tensor, not only those that also take a parameter.
        direct: whether it is called inside vmap, with tensors as one example sees them.

    The rule is called as (recorder, *arguments of the function), with physical tensors: (B, …) where an example sees (…). For a
    followed parameter (`recorder.follows`), it computes with the detached parameter and, in the backward pass, passes the
    factors of the per-example gradients to `recorder.add`. It returns None for calls that it does not support: each example then
    gets a copy of the parameter.

    Guarantee:
        Rules are trusted code: the output for an example, and the gradients recorded for it, must depend on that example's row
        alone. Test a rule against `method="loop"`.
    """

    def register(rule: Rule) -> Rule:
        for function in functions:
            registry: dict[Any, Handler] = OPERATORS if isinstance(function, str) else HANDLERS
            registry[function] = Handler(rule, always, direct)
        return rule

    return register


def has_operators(module: str) -> bool:
    """Return whether the package of a Python module has operators with rules here."""
    package = module.partition(".")[0]
    return any(name.startswith(f"{package}::") for name in OPERATORS)
