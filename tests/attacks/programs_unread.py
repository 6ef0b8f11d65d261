"""Attacks by examples that cannot be read or joined, and by errors that reveal how many were drawn."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import torch
from harness import Task, Verdict, attack, bounded, training_of
from materials import CLASSES, WIDTH, Body, Listed, classify, listed, model_of, perceptron, points
from overhearing import SECRET, passes_over, told
from torch import nn
from torch.utils.data import default_collate

import privet
from privet.errors import PrivetError


@attack("exceptions")
def structure_of_one_example_is_another():
    """One item is a dict, the others are pairs."""
    items = listed(points()).items
    items[7] = {"x": items[7][0], "name": SECRET}
    return passes_over(Task(perceptron, classify), Listed(items), 7)


@attack("exceptions", fast=True)
def key_error_in_collate():
    """One item lacks a key, and collate's KeyError names it."""

    def collate(items):
        return default_collate([(item["x"], {"known": 1, "other": 2}[item["kind"]]) for item in items])

    items = [{"x": x, "kind": "known" if k % 3 else "other"} for k, (x, _) in enumerate(points())]
    items[7]["kind"] = SECRET
    return passes_over(Task(perceptron, classify, collate=collate), Listed(items), 7)


@attack("exceptions")
def collate_drops_what_is_damaged():
    """Collate drops damaged items: for one alone nothing remains, and an empty list cannot be collated."""
    items = listed(points()).items
    items[7] = (items[7][0], -1)
    collate = lambda few: default_collate([item for item in few if item[1] >= 0])
    return passes_over(Task(perceptron, classify, collate=collate), Listed(items), 7)


class Failing(Listed):
    """A list that raises items that are exceptions."""

    def __getitem__(self, index):
        if isinstance(self.items[index], BaseException):
            raise self.items[index]
        return self.items[index]


@attack("exceptions")
def file_that_cannot_be_read():
    """`__getitem__` raises for one item, with its path."""
    items = listed(points()).items
    items[7] = FileNotFoundError(2, "No such file", f"/home/{SECRET}")
    return passes_over(Task(perceptron, classify), Failing(items), 7)


def poisson(task: Task, data, *, batch_size: int = 20) -> Verdict:
    """Return the verdict on eight steps of Poisson sampling: no exception, or one without the number drawn.

    The number drawn is the number of items collated since the last step, one at a time or together.
    """
    drawn, collate = Counter(), task.collate or default_collate

    def counting(items):
        drawn["items"] += len(items)
        return collate(items)

    plan = {"sampling": privet.sampling.Poisson(batch_size), "noise": privet.noise.Gaussian(1.0)}
    task = replace(task, collate=counting, steps=8, plan=plan)
    try:
        training = training_of(task, data)
    except PrivetError as error:
        return Verdict(len(str(error)) >= 30, f"refused: {told(error)[:150]}")
    try:
        drawn.clear()
        for _ in training:
            drawn.clear()
    except Exception as error:
        hidden = str(drawn["items"]) not in re.findall(r"\d+", told(error))
        return Verdict(isinstance(error, PrivetError) and hidden, f"{drawn['items']} drawn: {told(error)[:150]}")
    return Verdict(True, "ran to the end")


@attack("exceptions", fast=True)
def number_drawn_by_a_collate_that_drops():
    """Collate drops damaged items, and the resulting error reveals how many were drawn."""
    items = [(x, -1 if 8 < k < 14 else int(y)) for k, (x, y) in enumerate(points(40))]
    collate = lambda few: default_collate([item for item in few if item[1] >= 0])
    return poisson(Task(perceptron, classify, collate=collate), Listed(items))


@attack("exceptions")
def number_drawn_by_a_batch_of_one_size():
    """The model works only for batches smaller than 19, and its error names the size."""

    class Small(Body):
        def forward(self, x):
            assert len(x) < 19, f"{len(x)} examples are too many"
            return super().forward(x)

    return poisson(Task(Small, classify), listed(points(40)))


@attack("exceptions")
def shared_table_of_as_many_rows():
    """A public table that collate adds has as many rows as examples are drawn from one of two neighbours only."""
    table = torch.randn(WIDTH, WIDTH)
    collate = lambda few: (torch.stack([x for x, _ in few]), table, torch.tensor([y for _, y in few]))

    def forward(self, x, table):
        return self.out((x @ table).tanh())

    make = lambda: model_of(forward, out=nn.Linear(WIDTH, CLASSES))
    data = listed(points(WIDTH + 1, outlier=20.0))
    tasks = [Task(make, classify, collate=collate, options={"method": method}) for method in ("auto", "loop")]
    return min((bounded(task, data, remove=(0, 3)) for task in tasks), key=lambda verdict: verdict.passed)
