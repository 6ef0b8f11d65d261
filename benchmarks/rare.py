"""Tables with two classes, one of them often rare: made-up hospital stays, or a column of a given table made into a question.

    python -m benchmarks.rare FOLDER
    python -m benchmarks.rare FOLDER --table housing.csv --schema benchmarks/schemas/california.toml --at-least 500000

Each command writes NAME.csv and NAME.toml, for `benchmarks.defaults`.
"""

from __future__ import annotations

__all__ = ["main", "stays"]

import argparse
import csv
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from privet.tables import Boolean, Category, Classification, Number, Schema

STAYS = Schema(
    columns=(
        ("age", Number(18, 100)), ("days", Number(0, 60, scale="log")), ("pressure", Number(60, 240)), ("pulse", Number(30, 200)),
        ("creatinine", Number(0.2, 15, scale="log")), ("visits", Number(0, 12)), ("haemoglobin", Number(4, 20)),
        ("ward", Category(("general", "surgery", "cardiology", "oncology", "intensive"))),
        ("admission", Category(("planned", "emergency", "transfer"))), ("insurer", Category(("a", "b", "c", "d"))),
        ("smoker", Boolean()), ("private_room", Boolean()),
    ),
    target="died",
    task=Classification(("no", "yes")),
)  # fmt: skip


def stays(rows: int, seed: int = 0) -> list[list[str]]:
    """Return made-up hospital stays, with the names of their columns first; about 3 % end with a death.

    The log-odds are linear in numbers and categories. Logistic regression without privacy has an AUROC of about 0.84.
    """
    draw = np.random.default_rng(seed)
    age, pressure = draw.normal(62, 18, rows).clip(18, 100), draw.normal(128, 22, rows).clip(60, 240)
    pulse, haemoglobin = draw.normal(82, 16, rows).clip(30, 200), draw.normal(13, 2, rows).clip(4, 20)
    days, creatinine = draw.exponential(5, rows).clip(0, 60), draw.lognormal(0, 0.45, rows).clip(0.2, 15)
    visits, smoker = draw.poisson(1.2, rows).clip(0, 12), draw.random(rows) < 0.3
    ward = draw.choice(5, rows, p=(0.35, 0.25, 0.2, 0.12, 0.08))
    admission = draw.choice(3, rows, p=(0.5, 0.35, 0.15))
    odds = (
        -4.75
        + 0.055 * (age - 62) - 0.016 * (pressure - 128) + 0.024 * (pulse - 82) - 0.18 * (haemoglobin - 13)
        + 1.4 * np.log(creatinine) + 0.13 * visits + 0.3 * smoker
        + np.array((-0.3, 0, 0.1, 0.3, 1.5))[ward] + np.array((-0.5, 0.4, 0.3))[admission]
    )  # fmt: skip
    died = draw.random(rows) < 1 / (1 + np.exp(-odds))
    kinds = dict(STAYS.columns)
    names = [kinds[name].values for name in ("ward", "admission", "insurer")]  # type: ignore[attr-defined]
    numbers = zip(age, days, pressure, pulse, creatinine, visits, haemoglobin, strict=True)
    places = zip(ward, admission, draw.integers(0, 4, rows), strict=True)
    flags = np.array(["no", "yes"])[np.stack((smoker, draw.random(rows) < 0.5, died), axis=1).astype(int)]
    return [
        [*(name for name, _ in STAYS.columns), STAYS.target],
        *(
            [*(f"{number:.2f}" for number in some), *(known[at] for known, at in zip(names, where, strict=True)), *flag]
            for some, where, flag in zip(numbers, places, flags.tolist(), strict=True)
        ),
    ]


def ask(table: Sequence[Sequence[str]], schema: Schema, question: Callable[[str], bool]) -> tuple[list[list[str]], Schema]:
    """Return a table and its schema with the answers to a question about the target in its place."""
    at = list(table[0]).index(schema.target)
    rows = [[*row[:at], "yes" if question(row[at]) else "no", *row[at + 1 :]] for row in table[1:]]
    return [list(table[0]), *rows], replace(schema, task=Classification(("no", "yes")))


def main() -> None:
    """Write a table and its schema."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", type=Path, help="table to ask a question of; default: made-up hospital stays")
    parser.add_argument("--schema", type=Path)
    parser.add_argument("--value", help="is the target this value?")
    parser.add_argument("--at-least", type=float, help="is the target at least this number?")
    parser.add_argument("--rows", type=int, default=25_000, help="number of rows, drawn at random from larger tables")
    given = parser.parse_args()
    if given.table is None:
        name, rows, schema = "stays", stays(given.rows), STAYS
    else:
        with open(given.table, newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        rows = random.Random(0).sample(rows, min(given.rows, len(rows)))
        question = (lambda cell: cell == given.value) if given.at_least is None else (lambda cell: float(cell) >= given.at_least)
        rows, schema = ask([head, *rows], Schema.read(given.schema), question)
        name = f"{given.table.stem}-{given.value or format(given.at_least, 'g')}"
    with open(given.folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    (given.folder / f"{name}.toml").write_text(schema.to_toml(), encoding="utf-8")


if __name__ == "__main__":
    main()
