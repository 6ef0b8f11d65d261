"""The answer of `privet epsilon --composition`: ε, the trade-off curve and ρ of releases that are written in a file."""

from __future__ import annotations

__all__ = ["answer_composition"]

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privet.accounting import Composition, edgeworth, read_composition, tradeoff, zcdp
from privet.accounting.coverage import accountants_of, as_accounted
from privet.accounting.events import Event
from privet.accounting.guarantee.verification import verify_epsilon
from privet.accounting.queries import ACCOUNTANTS, DIRECTIONS
from privet.accounting.rounding import format_up
from privet.cli.output import answer
from privet.errors import InvalidArgumentError, PrivetError, choice

# False positive rates at which the curve is reported.
_RATES = np.concatenate([[0.0], np.geomspace(1e-4, 0.1, 31), np.linspace(0.11, 1.0, 90)])


def answer_composition(
    path: Path,
    *,
    delta: float | None,
    adjacency: str | None,
    accountant: str,
    comparison: bool,
    figure: Path | None,
    verify: bool,
    json: bool,
) -> None:
    """Print ε of the composition in a file, with its trade-off curve; arguments as for `privet epsilon`.

    Raises:
        InvalidArgumentError: the file, δ or the accountant is not allowed.
        PrivetError: dp-accounting's ε is above ours.
    """
    given = read_composition(path)
    choice("--accountant", accountant, ACCOUNTANTS)
    asked = replace(given, delta=given.delta if delta is None else delta, adjacency=adjacency or given.adjacency)
    if asked.delta is None:
        raise InvalidArgumentError("--delta", None, "given, here or in the file", "It is usually well below 1 / examples.")
    spent = asked.epsilon(accountant)
    privacy = tradeoff.profile(asked.releases, adjacency=asked.adjacency, delta=asked.delta)
    values: dict[str, Any] = {
        "epsilon": spent, "delta": asked.delta, "accountant": accountant, "direction": DIRECTIONS[accountant],
        "adjacency": asked.adjacency, "releases": asked.number, "rho": _rho(asked),
    }  # fmt: skip
    known = f"({asked.adjacency}; {accountant}: {DIRECTIONS[accountant]})"
    said = [f"ε = {format_up(spent, 6)} at δ = {asked.delta:g} for {asked.number:,} releases {known}"]
    if accountant == "edgeworth":
        low, high = edgeworth.interval(_as_events(asked), asked.delta, asked.adjacency)
        values["interval"] = [low, "inf" if high == np.inf else high]
        said.append(f"The true ε lies between {low:.4g} and {format_up(high)} (finite-sample bounds of the expansion)")
    if values["rho"] is not None:
        said.append(f"ρ = {format_up(values['rho'])} (zero-concentrated, without amplification)")
    values |= tradeoff.interpret(privacy).to_dict()
    missed = tradeoff.false_negative_rate(privacy, _RATES)
    values["trade_off"] = {"false_positive_rate": _RATES.tolist(), "false_negative_rate": missed.tolist()}
    shown = ", ".join(f"{rate:g}: {tradeoff.false_negative_rate(privacy, rate):.4f}" for rate in (0.001, 0.01, 0.1, 0.5))
    said.append(f"Lowest false negative rate of any attack, by false positive rate: {shown}")
    if comparison:
        values["comparison"] = _compare(asked)
        said += [
            f"{row['accountant']:<10} {format_up(float(row['epsilon']))}  {row['direction']}" for row in values["comparison"]
        ]
    if figure is not None:
        from privet.report import draw_trade_off

        values["figure"] = str(draw_trade_off(privacy, figure))
        said.append(f"Figure: {figure.resolve().as_uri()}")
    opinion = None
    if verify:
        opinion = verify_epsilon(asked.releases, epsilon=spent, delta=asked.delta, adjacency=asked.adjacency)
        values |= opinion.to_dict()
        said.append(str(opinion))
    answer(json, values, "\n".join(said))
    if opinion is not None and opinion.agrees is False:
        raise PrivetError(f"verification failed: {opinion}")


def _rho(asked: Composition) -> float | None:
    """Return ρ, or None if it is infinite or not known for a release."""
    try:
        found = zcdp.rho(asked.releases, asked.adjacency)
    except InvalidArgumentError:
        return None
    return found if np.isfinite(found) else None


def _as_events(asked: Composition) -> list[Event]:
    return [event for event in as_accounted(asked.releases, asked.adjacency, "edgeworth") if isinstance(event, Event)]


def _compare(asked: Composition) -> list[dict[str, Any]]:
    """Return ε by every accountant that covers all releases."""
    covering = [name for name in ACCOUNTANTS if all(name in accountants_of(release) for release in asked.releases)]
    found = {name: asked.epsilon(name) for name in covering}
    return [
        {"accountant": name, "epsilon": "inf" if np.isinf(value) else value, "direction": DIRECTIONS[name]}
        for name, value in found.items()
    ]
