"""A second opinion: dp-accounting's ε of the same releases, which ours must not be below."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from privet.accounting import pld
from privet.accounting.coverage import as_accounted, check_covered
from privet.accounting.events import Event, Release, TruncatedPoisson, check_query
from privet.accounting.pld.interop import INSTALL, dp_accounting_is_there
from privet.accounting.rounding import legible
from privet.errors import InvalidArgumentError

# How far ours may lie below theirs, relatively, before something is wrong: theirs is an upper bound too, and by up to so much
# the looser one where releases are very many or very rare.
TOLERANCE = 0.02
# Below this δ, rounding makes theirs too small.
SOUND_FROM = 1e-8
_USUAL_WIDTH = 1e-4
# Its time is in proportion to how fine its grid is, and so much coarser than ours it still agrees to a thousandth.
_COARSER = 4


def dp_event(event: Release) -> Any:
    """Return dp-accounting's event for one of ours, count included.

    Raises:
        InvalidArgumentError: it has none.
    """
    import dp_accounting

    noise = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    if isinstance(event, Event) and event.projections is None:
        once = noise if event.sampling_rate == 1.0 else dp_accounting.PoissonSampledDpEvent(event.sampling_rate, noise)
    elif isinstance(event, TruncatedPoisson):
        once = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(
            event.examples, event.sampling_rate, event.largest_batch, event.noise_multiplier
        )
    else:
        kinds = "one of Event (exact norms), TruncatedPoisson, or an epoch without amplification"
        what = "norms estimated by projections" if isinstance(event, Event) else type(event).__name__
        raise InvalidArgumentError("events", event, kinds, f"It has no privacy loss distribution for {what}.")
    return dp_accounting.SelfComposedDpEvent(once, event.count)


def second_opinion(
    events: Iterable[Release], *, delta: float, adjacency: str = "add-remove", width: float | None = None
) -> float:
    """Return ε at δ by dp-accounting's own composition; slower, and too small below δ = 1e-8.

    Args:
        events: what was released.
        delta: δ in (0, 1).
        adjacency: "add-remove", "replace-one" or "zero-out".
        width: width of its grid of losses; by default 1e-4, or finer where ours is by far.

    Returns:
        ε ≥ 0; infinity if anything was released without noise.

    Raises:
        InvalidArgumentError: it has no answer for such events, or is not installed.
    """
    if not dp_accounting_is_there():
        raise InvalidArgumentError("accountant", "dp-accounting", "installed to be asked", INSTALL)
    import dp_accounting

    check_query(delta, adjacency)
    given = tuple(events)
    check_covered(given, adjacency, "pld", delta)
    together = as_accounted(given, adjacency, "pld")
    asked = [dp_event(event) for event in together]
    if any(event.noise_multiplier == 0 for event in together):
        return math.inf
    relation = {
        "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
        "zero-out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    }[adjacency]
    if width is None:
        width = min(_USUAL_WIDTH, _COARSER * pld.grid_width(together, delta, adjacency) or _USUAL_WIDTH)
    accountant = dp_accounting.pld.PLDAccountant(relation, value_discretization_interval=width)
    for event in asked:
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


@dataclass(frozen=True)
class Verification:
    """An ε of ours beside dp-accounting's.

    Args:
        epsilon: ours.
        theirs: dp-accounting's, or None where it has no answer.
        delta: δ.
        why_not: why it has none, in a sentence.
    """

    epsilon: float
    theirs: float | None
    delta: float
    why_not: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether ours is at least theirs, up to the tolerance; None where they have no answer."""
        return None if self.theirs is None else self.epsilon >= self.theirs * (1 - TOLERANCE)

    def to_dict(self) -> dict[str, Any]:
        """Return the second opinion as plain JSON values; infinity is the word "inf"."""
        return {
            "dp_accounting_epsilon": "inf" if self.theirs == math.inf else self.theirs,
            "verified": self.agrees,
            "tolerance": TOLERANCE,
        }

    def __str__(self) -> str:
        if self.theirs is None:
            return f"dp-accounting has no answer. {self.why_not} Nothing was verified."
        version, ours = importlib.metadata.version("dp-accounting"), legible(self.epsilon)
        verdict = {
            True: f"ours, {ours}, is not below it by more than {TOLERANCE:.0%}",
            False: f"ours, {ours}, is below it by more than {TOLERANCE:.0%}",
        }[bool(self.agrees)]
        caution = "; at so small a δ its own number is too small" if self.delta < SOUND_FROM else ""
        return f"dp-accounting {version} says ε = {legible(self.theirs)}{caution}; {verdict}."


def verified(events: Iterable[Release], *, epsilon: float, delta: float, adjacency: str = "add-remove") -> Verification:
    """Ask dp-accounting for the ε of the same releases.

    Args:
        events: what was released.
        epsilon: the ε that is to be verified.
        delta: δ in (0, 1).
        adjacency: how neighbouring data sets differ.

    Raises:
        InvalidArgumentError: dp-accounting is not installed.

    >>> verified([Event(1.0, 2.0)], epsilon=0.9, delta=1e-5).agrees
    False
    """
    try:
        return Verification(epsilon, second_opinion(events, delta=delta, adjacency=adjacency), delta)
    except InvalidArgumentError as error:
        if error.name != "events":
            raise
        return Verification(epsilon, None, delta, error.fix)
