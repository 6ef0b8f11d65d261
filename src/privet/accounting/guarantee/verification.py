"""Verification by dp-accounting: its ε of the same releases, which ours must not fall below."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from privet.accounting import pld
from privet.accounting.events import Event, LaplaceEvent, Release, TruncatedPoissonEvent, check_query
from privet.accounting.pld.interop import INSTALL, is_dp_accounting_installed
from privet.accounting.queries import as_accounted, check_covered
from privet.accounting.rounding import format_up
from privet.errors import InvalidArgumentError

# How far our ε may lie below theirs, relatively: theirs is an upper bound too, and looser by up to this much for very many
# or very rare releases.
TOLERANCE = 0.02
# Below this δ, rounding makes theirs too small.
SOUND_FROM = 1e-8
_USUAL_WIDTH = 1e-4
# Its run time grows as its grid gets finer; with a grid this much coarser than ours it still agrees to one part in a thousand.
_COARSER = 4


def to_dp_event(event: Release) -> Any:
    """Convert an event to dp-accounting's, count included; it has none for some kinds, which are refused."""
    import dp_accounting

    if isinstance(event, Event) and event.projections is None:
        noise = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        once = noise if event.sampling_rate == 1.0 else dp_accounting.PoissonSampledDpEvent(event.sampling_rate, noise)
    elif isinstance(event, TruncatedPoissonEvent):
        once = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(
            event.examples, event.sampling_rate, event.largest_batch, event.noise_multiplier
        )
    elif isinstance(event, LaplaceEvent):
        laplace = dp_accounting.LaplaceDpEvent(event.noise_multiplier)
        once = laplace if event.sampling_rate == 1.0 else dp_accounting.PoissonSampledDpEvent(event.sampling_rate, laplace)
    else:
        kinds = "one of Event (exact norms), TruncatedPoissonEvent, LaplaceEvent, or an epoch without amplification"
        what = "norms estimated by projections" if isinstance(event, Event) else type(event).__name__
        raise InvalidArgumentError("events", event, kinds, f"dp-accounting has no privacy loss distribution for {what}.")
    return dp_accounting.SelfComposedDpEvent(once, event.count)


def dp_accounting_epsilon(
    events: Iterable[Release], *, delta: float, adjacency: str = "add-remove", width: float | None = None
) -> float:
    """Return ε at δ by dp-accounting's own composition: slower than ours, and too small below δ = 1e-8.

    `width` is that of its loss grid: by default 1e-4, or finer where ours is much finer.
    """
    if not is_dp_accounting_installed():
        raise InvalidArgumentError("accountant", "dp-accounting", "an installed package", INSTALL)
    import dp_accounting

    check_query(delta, adjacency)
    given = tuple(events)
    check_covered(given, adjacency, "pld")
    together = as_accounted(given, adjacency, "pld")
    asked = [to_dp_event(event) for event in together]
    if adjacency == "replace-one" and (numbers := [event for event in together if isinstance(event, LaplaceEvent)]):
        fix = "dp-accounting has no distribution for replacing under Laplace noise."
        raise InvalidArgumentError("events", numbers[0], "without Laplace noise for replace-one neighbours", fix)
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
    """Our ε and dp-accounting's."""

    epsilon: float
    theirs: float | None  # None if dp-accounting has no answer
    delta: float
    why_not: str = ""  # it has none, in a sentence

    @property
    def agrees(self) -> bool | None:
        """Whether ours is at least theirs, up to the tolerance; None if dp-accounting has no answer."""
        return None if self.theirs is None else self.epsilon >= self.theirs * (1 - TOLERANCE)

    def to_dict(self) -> dict[str, Any]:
        """Return the verification as plain JSON values; infinity becomes "inf"."""
        return {
            "dp_accounting_epsilon": "inf" if self.theirs == math.inf else self.theirs,
            "verified": self.agrees,
            "tolerance": TOLERANCE,
        }

    def __str__(self) -> str:
        if self.theirs is None:
            return f"dp-accounting has no answer. {self.why_not} Nothing was verified."
        version, ours = importlib.metadata.version("dp-accounting"), format_up(self.epsilon)
        verdict = {
            True: f"ours, {ours}, agrees (not more than {TOLERANCE:.0%} below)",
            False: f"ours, {ours}, is more than {TOLERANCE:.0%} below",
        }[bool(self.agrees)]
        caution = " (too small at this δ because of rounding)" if self.delta < SOUND_FROM else ""
        return f"dp-accounting {version} computes ε = {format_up(self.theirs)}{caution}; {verdict}."


def verify_epsilon(events: Iterable[Release], *, epsilon: float, delta: float, adjacency: str = "add-remove") -> Verification:
    """Verify an ε with dp-accounting's for the same releases; raises if it is not installed."""
    try:
        return Verification(epsilon, dp_accounting_epsilon(events, delta=delta, adjacency=adjacency), delta)
    except InvalidArgumentError as error:
        if error.name != "events":
            raise
        return Verification(epsilon, None, delta, error.fix)
