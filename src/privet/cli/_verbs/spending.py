"""`privet budget` and `privet ledger`: a budget that runs on the same data share, and what a run has spent."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from privet.accounting.events import ADJACENCIES
from privet.accounting.rounding import format_up
from privet.budget import Account, Budget
from privet.cli.output import Json, answer, group
from privet.ledger import read
from privet.ledger.history import WHAT
from privet.runs.verification import verify as verify_run
from privet.training.directory import LEDGER

budget_app = group(help="Share one privacy budget among several runs on the same data set.", no_args_is_help=True)
ledger_app = group(help="Show what a run has spent, and verify its files.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(metavar="FILE", help="The budget file.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of the run.")]


@budget_app.command("create")
def create(
    file: File,
    epsilon: Annotated[float, typer.Option(help="Total ε of all runs; never exceeded.")],
    delta: Annotated[float, typer.Option(help="Target δ; below 1 / examples.")],
    examples: Annotated[int | None, typer.Option(help="Public number of examples; each run must have as many.")] = None,
    data: Annotated[str | None, typer.Option(help="Public name of the data set, as in privet train --data.")] = None,
    adjacency: Annotated[
        str, typer.Option(help=f"Relation between neighbouring data sets: {', '.join(ADJACENCIES)}.")
    ] = "add-remove",
    unit: Annotated[str, typer.Option(help="Unit of privacy, as in a plan.")] = "one example",
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Name of a disjoint part of the data, which shares no unit with other parts; repeatable."
        ),
    ] = None,
    plans: Annotated[
        str, typer.Option(help="adaptive: plans may depend on earlier results; fixed: you assert that they do not.")
    ] = "adaptive",
    json: Json = False,
) -> None:
    """Create a budget for all runs on one data set.

    Each run draws the cost of its whole plan before its first step.

    Example: privet budget create mnist.budget --data mnist --epsilon 3 --delta 1e-5
    """
    budget = Budget.create(
        file,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        unit=unit,
        examples=examples,
        data=data,
        parts=tuple(part or ()),
        plans=plans,
    )
    account = budget.account()
    answer(json, {"budget": str(file), **asdict(account.terms)}, f"{file}: {_format_terms(account)}")


@budget_app.command("show")
def show_budget(file: File, json: Json = False) -> None:
    """Show what each run has drawn from a budget.

    Example: privet budget show mnist.budget
    """
    account = Budget(file).account()
    drawn, shares = account.total(), account.shares.values()
    lines = "".join(
        f"\n  {share.run[:8]}  {share.steps:,} steps{'' if share.settled else ' (drawn, not closed)'}"
        f"{'' if share.part is None else f' on {share.part}'}  {share.directory or 'in memory'}"
        for share in shares
    )
    names = ("run", "part", "steps", "settled", "directory")
    runs = [{name: getattr(share, name) for name in names} for share in shares]
    prose = f"{file}: {_format_terms(account)}; drawn by {len(runs)} runs: ε ≤ {format_up(drawn)}{lines}"
    answer(json, {**asdict(account.terms), "drawn": drawn, "runs": runs}, prose)


def _format_terms(account: Account) -> str:
    terms = account.terms
    whose = terms.data or f"{terms.examples:,} examples"
    return f"ε = {terms.epsilon:g} at δ = {terms.delta:g} for {terms.unit} of {whose} ({terms.adjacency}, {terms.plans} plans)"


@ledger_app.command("verify")
def verify(run: Run, json: Json = False) -> None:
    """Verify a run's ledger and the files that refer to it.

    Checks every line of the ledger, and the plan, checkpoint, anchor and budget against it; exit status 2 on damage. Keep the
    printed tip in another place: a directory alone cannot show that it is a copy or was rolled back.

    Example: privet ledger verify runs/mnist
    """
    found = verify_run(run)
    answer(json, asdict(found), str(found))


@ledger_app.command("show")
def show_ledger(run: Run, json: Json = False) -> None:
    """List the records of a run's ledger.

    Example: privet ledger show runs/mnist
    """
    records = read(run / LEDGER, WHAT).records
    lines = (f"{number:>5}  {_format_record(record)}" for number, record in enumerate(records, start=1))
    answer(json, {"records": records}, "\n".join(lines))


def _format_record(record: dict[str, object]) -> str:
    shown = ("first", "count", "query", "run", "at", "machine", "process", "adopted", "versions")
    return f"{record.get('record')!s:<8}" + "  ".join(f"{name} {record[name]}" for name in shown if name in record)
