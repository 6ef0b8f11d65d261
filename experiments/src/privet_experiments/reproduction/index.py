"""The index of results: a row for each recipe with its setting, its verdicts, and the strongest published numbers."""

from __future__ import annotations

__all__ = ["index", "write_index"]

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from privet._utils.files import write_text
from privet.data import catalogue
from privet.report import numbers
from privet_experiments.claims import RULE, PublishedNumber
from privet_experiments.papers.sources import SOURCES
from privet_experiments.recipe import Recipe
from privet_experiments.reproduction.claims_table import findings, ours, verdict_of
from privet_experiments.reproduction.selection import finished_runs
from privet_experiments.reproduction.table import line, wrap
from privet_experiments.tasks.arm_config import ArmConfig
from privet_experiments.tasks.federated.files import FILES
from privet_experiments.tasks.federated.user_config import UserConfig
from privet_experiments.tasks.metrics import format_metric
from privet_experiments.tasks.run_record import Records, RunRecord

_COLUMNS = (
    "experiment", "runs", "setting", "model", "features", "examples", "optimizer and momentum", "learning rate", "verdict",
    "ours against the strongest published numbers",
)  # fmt: skip
_BREAK = "<br>"
_OPTIMIZERS = {
    "sgd": "SGD", "nesterov": "Nesterov", "adam": "Adam", "adam-bc": "Adam with the noise's variance subtracted",
}  # fmt: skip
# Largest number of values that a cell lists; for more it shows their range.
_FEW = 3
_BEFORE = (
    "Experiments of papers, repeated with Privet. Each row is a recipe (`privet reproduce NAME`, see "
    "[recipes](../recipes.md)). Its folder holds `runs.jsonl`, and a page and figures made from it: every arm, every claim "
    "with its verdict, and the caveats. `make results` writes all pages and figures, including this page, from the runs "
    "alone. All runs: torch 2.13 (CPU), two cores of a shared x86 server. ε is by PLD for Poisson sampling.",
    "[A separate page](not-attempted.md) lists the papers' experiments that this project has not attempted. Two experiments "
    "have pages of their own: [linear models on scattering coefficients](better.md) and [all algorithms in one "
    "setting](algorithms.md).",
)
_CAUTION = (
    "Intervals are not corrected for the number of claims: if no claim were true, about one in twenty would still be called "
    "reproduced or contradicted. Standard errors cover initial parameters, noise and sampling of three to thirty runs. They "
    "do not cover the choice of learning rates, or settings that a paper does not state. *Not* means that our runs do not "
    "resolve a difference."
)
_COMPARED = (
    "Our numbers are the mean ± standard deviation of the named arm. The published numbers are the strongest that we know of "
    "at the same or a smaller ε, up to rounding, whether ours is higher or lower. A dash means that the paper shows curves "
    "only."
)
_AFTER = (
    "These pages are measurements and not reproductions: [the cost of a private step](gradients.md), [of momentum before the "
    "weight](momentum.md), [of random masks](sparsification.md), [of sparse updates of embedding tables](embeddings.md), [of "
    "accounting](accounting.md), [what a predicted signal is worth](feasibility.md), [what the defaults reach](defaults.md), "
    "[convex models in one release](convex.md), and [optimizers under noise](optimizers.md). [The page for a GPU](device.md) "
    "has a command and no figures yet."
)


def write_index(recipes: Iterable[Recipe], root: Path) -> None:
    """Write README.md of a folder that has a subfolder with runs.jsonl for each recipe.

    A recipe without claims, such as an ablation, has no row.
    """
    write_text(root / "README.md", index(recipes, root))


def index(recipes: Iterable[Recipe], root: Path) -> str:
    """Return the page of the index; see `write_index`."""
    shown_recipes = [recipe for recipe in recipes if recipe.claims]
    runs = {recipe.name: finished_runs(recipe, Records(root / recipe.name / "runs.jsonl")) for recipe in shown_recipes}
    lines = ["# Results"]
    for paragraph in _BEFORE:
        lines += ["", *wrap(paragraph)]
    lines += ["", line(_COLUMNS), line(["---"] * len(_COLUMNS))]
    lines += [line(_cells(recipe, runs[recipe.name])) for recipe in shown_recipes]
    lines += ["", *wrap(_COMPARED)]
    lines += ["", "## Verdicts", "", *wrap("A verdict is computed from the runs, by one rule:")]
    for paragraph in RULE:
        lines += ["", *wrap(paragraph, "- ")]
    lines += ["", *wrap(_CAUTION), "", "## Remarks"]
    for recipe in shown_recipes:
        lines += ["", f"### {recipe.title}", "", *wrap(f"{recipe.remark.strip()} [All numbers]({recipe.name}/table.md).")]
    lines += ["", "## Sources", "", *(cited for title in SOURCES.values() for cited in wrap(title, "- "))]
    return "\n".join((*lines, "", *wrap(_AFTER))) + "\n"


def _cells(recipe: Recipe, records: Sequence[RunRecord]) -> Iterable[str]:
    settings = [recipe.settings(arm) for arm in recipe.arms]
    yield f"[{recipe.title}]({recipe.name}/table.md) (`{recipe.name}`)"
    yield f"{len(records)} of {recipe.runs}"
    trained = [one for one in settings if isinstance(one, ArmConfig)]
    if trained:
        yield _setting(recipe, trained, records)
        yield _listed(one.model for one in trained)
        yield _listed(one.features.replace("as they are", "raw inputs") for one in trained)
        yield _examples(recipe)
        yield _optimizers(trained)
    elif recipe.data is not None:
        yield from _of_users(recipe, [one for one in settings if isinstance(one, UserConfig)], records)
    else:
        yield from ("gradient flow without noise", "small networks", "synthetic inputs", "—", "gradient flow")
    yield _rates(recipe)
    yield _BREAK.join(
        f"{row}: {verdict_of(some)}" if row else verdict_of(some) for row, some in findings(recipe, records).items()
    )
    yield _BREAK.join(_compared(one, records) for one in recipe.published) or "—"


def _of_users(recipe: Recipe, settings: Sequence[UserConfig], records: Sequence[RunRecord]) -> Iterable[str]:
    """Yield setting, model, features, examples and optimizer of a recipe on many users' data."""
    private = sorted({one.epsilon for one in settings if one.epsilon is not None})
    deltas = sorted({float(one.plan["delta"]) for one in records if one.plan is not None})
    steps = sorted({one.plan["steps"] for one in settings if one.method != "constant"})
    shares = sorted({one.share for one in settings})
    yield "; ".join(
        (
            str(recipe.data),
            f"ε = {_range([f'{epsilon:g}' for epsilon in private])}",
            f"δ = {', '.join(numbers.format_power_of_ten(float(f'{delta:.3g}')) for delta in deltas)}",
            f"batches of {_range([numbers.format_percent(share) for share in shares])} of the units",
            f"{_range(steps)} steps",
        )
    )
    clients = FILES[recipe.data or ""].clients
    yield from (
        "linear",
        "raw inputs",
        f"those of {clients:,} users",
        f"SGD, momentum {_listed(f'{one.momentum:g}' for one in settings)}",
    )


def _compared(number: PublishedNumber, records: Sequence[RunRecord]) -> str:
    epsilon = "" if number.epsilon is None else f"ε = {number.epsilon:g}, "
    there = f"{format_metric(number.metric, number.value)} ({epsilon}{number.method}; {number.source})"
    return f"{ours(number.arm, number.metric, records)} against {there}"


def _setting(recipe: Recipe, settings: Sequence[ArmConfig], records: Sequence[RunRecord]) -> str:
    private = sorted({round(one.epsilon, 3) for one in records if one.epsilon is not None and one.epsilon != float("inf")})
    deltas = sorted({float(one.plan["delta"]) for one in settings})
    batches = {one.plan["sampling"].get("batch_size") for one in settings} - {None}
    parts = [
        str(recipe.data),
        f"ε = {_range([f'{epsilon:g}' for epsilon in private])}",
        f"δ = {', '.join(numbers.format_power_of_ten(float(f'{delta:.3g}')) for delta in deltas)}",
        f"batches of {_range(sorted(batches))}" if batches else "full batches",
        _range(sorted({_length(one) for one in settings})),
    ]
    return "; ".join(parts)


def _length(settings: ArmConfig) -> str:
    steps = settings.plan["steps"]
    return f"{steps['epochs']:g} epochs" if isinstance(steps, dict) else f"{steps} steps"


def _optimizers(settings: Sequence[ArmConfig]) -> str:
    found: dict[str, list[str]] = {}
    for one in settings:
        momenta = found.setdefault(_OPTIMIZERS.get(one.optimizer, one.optimizer), [])
        if one.optimizer in ("sgd", "nesterov"):
            momenta.append(f"{one.momentum:g}")
    return "; ".join(f"{name}, momentum {_listed(momenta)}" if momenta else name for name, momenta in found.items())


def _examples(recipe: Recipe) -> str:
    (entry,) = (entry for entry in catalogue() if entry.name == recipe.data)
    return f"{recipe.examples:,} of {entry.train:,}" if recipe.examples else f"all {entry.train:,}"


def _rates(recipe: Recipe) -> str:
    if not recipe.tuned:
        return recipe.rates or "—"
    # A shorter run accumulates as much noise at a higher rate, so the rate found is scaled down by the root.
    shorter = f", in runs of {recipe.trial:g} of the length; full runs use {math.sqrt(recipe.trial):g} times the rate found"
    searched = "searched for each arm: doubled or halved while the test accuracy of one further seed rose"
    return searched + ("" if recipe.trial == 1 else shorter)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _range(values: Sequence[object]) -> str:
    if len(values) <= _FEW:
        return ", ".join(f"{value:,}" if isinstance(value, int) else f"{value}" for value in values)
    return f"{values[0]} to {values[-1]}"
