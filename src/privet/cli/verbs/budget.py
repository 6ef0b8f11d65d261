"""`privet budget`: what several runs on one data set may spend together."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from privet.accounting.rounding import format_up
from privet.budget import Account, Budget
from privet.cli.output import Json, answer
from privet.cli.settings import Adjacency, Delta

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="What several runs on one data set may spend together.",
    no_args_is_help=True,
)
File = Annotated[Path, typer.Argument(help="The budget's file.")]


@app.command("create")
def create(
    file: File,
    epsilon: Annotated[float, typer.Option(help="ε of all runs together, never exceeded.")],
    delta: Delta,
    examples: Annotated[int | None, typer.Option(help="Public number of examples, which every run must have.")] = None,
    data: Annotated[str | None, typer.Option(help="Public name of the data set, as in train --data.")] = None,
    adjacency: Adjacency = "add-remove",
    unit: Annotated[str, typer.Option(help="Whose privacy it is, as in a plan.")] = "one example",
    part: Annotated[
        list[str] | None, typer.Option(help="Name of a part of the data that shares nobody with the others; for each of them.")
    ] = None,
    plans: Annotated[
        str, typer.Option(help="adaptive: plans may depend on earlier results; fixed: they do not, which you promise.")
    ] = "adaptive",
    json: Json = False,
) -> None:
    """Create a budget for all runs on one data set; each draws its whole plan from it before it begins.

    Example: privet budget create mnist.budget --data mnist --epsilon 3 --delta 1e-5
    """
    budget = Budget.create(
        file, epsilon=epsilon, delta=delta, adjacency=adjacency, unit=unit, examples=examples, data=data,
        parts=tuple(part or ()), plans=plans,
    )  # fmt: skip
    account = budget.account()
    answer(json, {"budget": str(file), **asdict(account.terms)}, f"{file}: {_allowance(account)}")


@app.command("show")
def show(file: File, json: Json = False) -> None:
    """Show what has been drawn from a budget, by which runs.

    Example: privet budget show mnist.budget
    """
    account = Budget(file).account()
    drawn, shares = account.total(), account.shares.values()
    told = "".join(
        f"\n  {share.run[:8]}  {share.steps:,} steps{'' if share.settled else ' (drawn, not closed)'}"
        f"{'' if share.part is None else f' on {share.part}'}  {share.directory or 'in memory'}"
        for share in shares
    )
    names = ("run", "part", "steps", "settled", "directory")
    runs = [{name: getattr(share, name) for name in names} for share in shares]
    prose = f"{file}: {_allowance(account)}; drawn by {len(runs)} runs: ε ≤ {format_up(drawn)}{told}"
    answer(json, {**asdict(account.terms), "drawn": drawn, "runs": runs}, prose)


def _allowance(account: Account) -> str:
    terms = account.terms
    whose = terms.data or f"{terms.examples:,} examples"
    return f"ε = {terms.epsilon:g} at δ = {terms.delta:g} for {terms.unit} of {whose} ({terms.adjacency}, {terms.plans} plans)"
