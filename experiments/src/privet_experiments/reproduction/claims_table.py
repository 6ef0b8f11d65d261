"""Tables of claims with their verdicts, and of published numbers and ours, in Markdown."""

from __future__ import annotations

__all__ = ["Rows", "claims_section", "findings", "ours", "published_section", "verdict_of"]

from collections import Counter
from collections.abc import Iterable, Sequence

from privet.report import numbers
from privet_experiments.claims import VERDICTS, Claim, Finding, judge, overall
from privet_experiments.recipe import Recipe
from privet_experiments.reproduction.table import line, spread
from privet_experiments.tasks.metrics import SHARES, format_metric
from privet_experiments.tasks.run_record import RunRecord

Rows = dict[str, tuple[Finding, ...]]


def findings(recipe: Recipe, records: Sequence[RunRecord]) -> Rows:
    """Return row of the index → findings on its claims, in the recipe's order; a single row "" if the recipe names none."""
    found: dict[str, list[Finding]] = {}
    for claim in recipe.claims:
        found.setdefault(claim.row, []).append(judge(claim, records))
    return {row: tuple(some) for row, some in found.items()}


def verdict_of(some: Sequence[Finding]) -> str:
    """Return the verdict on a row in bold, with the count of each verdict on its claims."""
    verdicts = [finding.verdict for finding in some]
    whole = overall(verdicts)
    if whole is None:
        return "no claims" if not verdicts else "runs are missing"
    count = Counter(verdicts)
    parts = ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS if count[verdict])
    return f"**{whole}** ({parts})" if len(verdicts) > 1 else f"**{whole}**"


def claims_section(recipe: Recipe, records: Sequence[RunRecord]) -> Iterable[str]:
    """Yield the lines of a recipe's claims, row by row of the index."""
    if not recipe.claims:
        return
    yield from ("", "## Claims", "", "Verdicts follow [the rule of the index](../README.md#verdicts).")
    for row, some in findings(recipe, records).items():
        yield from ("", f"### {row}" if row else "### All claims", "", f"Verdict: {verdict_of(some)}.", "")
        yield line(["claim", "stated size", "ours, with its 95 % interval", "verdict"])
        yield line(["---"] * 4)
        for finding in some:
            claim = finding.claim
            size = "—" if claim.size is None else _size(claim.metric, claim.size)
            yield line([f"{claim.statement} ({claim.metric.replace('_', ' ')})", size, _found(finding), finding.verdict or "—"])


def published_section(recipe: Recipe, records: Sequence[RunRecord]) -> Iterable[str]:
    """Yield the lines of the table of published numbers and ours."""
    if not recipe.published:
        return
    yield from ("", "## Published numbers", "")
    yield line(["published", "ε", "method", "source", "ours"])
    yield line(["---"] * 5)
    for number in recipe.published:
        epsilon = "∞" if number.epsilon is None else f"{number.epsilon:g}"
        yield line(
            [
                format_metric(number.metric, number.value),
                epsilon,
                number.method,
                number.source,
                ours(number.arm, number.metric, records),
            ]
        )


def ours(arm: str, metric: str, records: Sequence[RunRecord]) -> str:
    """Return an arm's mean with its standard deviation and ε."""
    found = [record for record in records if record.arm == arm]
    if not found:
        return "—"
    mean, deviation = spread([record.value(metric) for record in found])
    epsilon = max((record.epsilon for record in found if record.epsilon is not None), default=None)
    text = format_metric(metric, mean) + ("" if deviation is None else f" ± {format_metric(metric, deviation)}")
    return f"{text} ({arm}{'' if epsilon is None or 'ε =' in arm else f', ε = {numbers.format_epsilon(epsilon)}'})"


def _found(finding: Finding) -> str:
    if finding.verdict is None:
        return "—"
    claim = finding.claim
    if claim.of_a_property:
        return f"held in {finding.difference:.0f} of {finding.runs} runs"
    ends = f"[{_number(claim, finding.low)}, {_number(claim, finding.high)}]"
    return f"{_number(claim, finding.difference, sign='+')} {ends}{' points' if claim.metric in SHARES else ''}"


def _number(claim: Claim, value: float, sign: str = "") -> str:
    text = f"{100 * value:{sign}.2f}" if claim.metric in SHARES else f"{value:{sign}.3g}"
    return text.replace("-", "−")


def _size(metric: str, size: float) -> str:
    return f"{100 * size:.2f} points" if metric in SHARES else f"{size:.3g}"
