"""Compositions of releases that are written in a file: TOML or JSON.

A file looks like this:

    delta = 1e-5
    adjacency = "add-remove"

    [[releases]]
    mechanism = "gaussian"
    noise_multiplier = 1.1
    sampling_rate = 0.01
    count = 1000

    [[releases]]
    mechanism = "laplace"
    noise_multiplier = 20
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from privet._utils.documents import DocumentError, from_json, from_toml, read_text
from privet.accounting.events import (
    BallsInBinsEvent,
    EpsilonDeltaEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    Release,
    ShuffledEvent,
    TruncatedPoissonEvent,
    check_query,
)
from privet.accounting.queries import check_covered, composed_delta, composed_epsilon
from privet.errors import InvalidArgumentError, choice

# Word in a file → kind of release. Keys of its table are the fields of the kind; rates and counts are 1 by default.
MECHANISMS: dict[str, Callable[..., Release]] = {
    "gaussian": Event,
    "gaussian-fixed-size": FixedSizeEvent,
    "gaussian-truncated-poisson": TruncatedPoissonEvent,
    "gaussian-shuffled": ShuffledEvent,
    "gaussian-balls-in-bins": BallsInBinsEvent,
    "laplace": LaplaceEvent,
    "randomized-response": RandomizedResponseEvent,
    "epsilon-delta": EpsilonDeltaEvent,
}
_DEFAULTS = {"sampling_rate": 1.0}
_KEYS = ("adjacency", "delta", "releases")
_NUMBERS = ("sampling_rate", "noise_multiplier", "epsilon", "delta", "truthful")


@dataclass(frozen=True)
class Composition:
    """Releases that depend on the same data, in any order.

    Args:
        releases: at least one.
        adjacency: how neighbouring data sets differ; one that all releases support.
        delta: δ in (0, 1) of its guarantee, or None.

    >>> together = Composition((Event(0.01, 1.1, 1000), LaplaceEvent(1.0, 20.0)), delta=1e-5)
    >>> 1.5 < together.epsilon() < 1.6
    True
    """

    releases: tuple[Release, ...]
    adjacency: str = "add-remove"
    delta: float | None = None

    def __post_init__(self) -> None:
        check_query(0.5 if self.delta is None else self.delta, self.adjacency)
        if not self.releases:
            raise InvalidArgumentError("releases", [], "at least one release")
        check_covered(self.releases, self.adjacency, "pld")

    @property
    def number(self) -> int:
        """Number of releases."""
        return sum(release.count for release in self.releases)

    def epsilon(self, accountant: str = "pld", *, delta: float | None = None) -> float:
        """Return ε at δ, by default at the composition's own δ; arguments and errors as for `composed_epsilon`."""
        asked = self.delta if delta is None else delta
        if asked is None:
            raise InvalidArgumentError("delta", None, "a number between 0 and 1", "Give it here or in the composition.")
        return composed_epsilon(self.releases, delta=asked, adjacency=self.adjacency, accountant=accountant)

    def delta_at(self, epsilon: float) -> float:
        """Return δ at ε ≥ 0, by the accountant "pld"."""
        return composed_delta(self.releases, epsilon=epsilon, adjacency=self.adjacency)


def read_composition(path: str | Path) -> Composition:
    """Read a composition from a file in TOML (named .toml) or JSON.

    Raises:
        InvalidArgumentError: the file is unreadable, or as for `parse_composition`.
    """
    where = Path(path)
    try:
        content = (from_toml if where.suffix == ".toml" else from_json)(read_text(where))
    except DocumentError as error:
        raise InvalidArgumentError("composition", str(path), "readable TOML (named .toml) or JSON", cause=f"{error}") from None
    return parse_composition(content)


def parse_composition(content: object) -> Composition:
    """Return the composition that a parsed file declares; errors name the release."""
    table = _table("composition", content, _KEYS)
    given = table.get("releases")
    if not isinstance(given, list):
        raise InvalidArgumentError("releases", given, "a list of tables, one for each kind of release")
    releases = tuple(_release(number, each) for number, each in enumerate(given, start=1))
    return Composition(releases, table.get("adjacency", "add-remove"), table.get("delta"))


def _release(number: int, given: object) -> Release:
    where = f"releases[{number}]"
    table = dict(_table(where, given, None))
    kind = MECHANISMS[choice(f"{where}.mechanism", table.pop("mechanism", None), MECHANISMS)]
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    _table(where, table, known)
    values = {name: value for name, value in _DEFAULTS.items() if name in known} | table
    try:
        # A file says 20 where a number such as 20.0 is meant.
        return kind(
            **{name: float(value) if name in _NUMBERS and type(value) is int else value for name, value in values.items()}
        )
    except TypeError:
        missing = ", ".join(name for name in known if name not in values and name != "count")
        raise InvalidArgumentError(where, given, f"a table with {missing}") from None
    except InvalidArgumentError as error:
        raise error.under(f"{where}.{error.name}") from None


def _table(name: str, given: object, known: tuple[str, ...] | list[str] | None) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise InvalidArgumentError(name, given, "a table")
    if known is not None and (unknown := sorted(given.keys() - set(known))):
        raise InvalidArgumentError(name, ", ".join(unknown), f"a table with the keys {', '.join(known)} only")
    return given
