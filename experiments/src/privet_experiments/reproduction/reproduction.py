"""Reproduce a recipe: make the missing runs, and write pages and figures from all runs."""

from __future__ import annotations

__all__ = ["TUNING_SEED", "Extent", "Reproduction", "highest", "reproduce"]

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from privet.errors import InvalidArgumentError, choice, count, positive
from privet_experiments.features import AS_THEY_ARE, check, extracted
from privet_experiments.recipe import Arm, Recipe
from privet_experiments.reproduction.pages import write
from privet_experiments.reproduction.run_progress import track_runs
from privet_experiments.reproduction.selection import job_of
from privet_experiments.reproduction.table import Row
from privet_experiments.reproduction.workers import performing
from privet_experiments.tasks.job import Job, TaskExamples, read
from privet_experiments.tasks.kinds import TASKS
from privet_experiments.tasks.run_record import Records, RunRecord

# Seed of the learning-rate search, which no reported run uses.
TUNING_SEED = 100


@dataclass(frozen=True)
class Extent:
    """The part of a recipe to run.

    Args:
        seeds: number of runs per arm; None for the recipe's number.
        arms: names of the arms; empty for all.
        examples: number of training examples; None for the recipe's number. Larger batches shrink to it.
        epochs: length of every run; None for each arm's own.
    """

    seeds: int | None = None
    arms: tuple[str, ...] = ()
    examples: int | None = None
    epochs: float | None = None

    def __post_init__(self) -> None:
        if self.seeds is not None:
            count("seeds", self.seeds)
        if self.examples is not None:
            count("examples", self.examples, minimum=2)
        if self.epochs is not None:
            positive("epochs", self.epochs)

    @property
    def reduced(self) -> bool:
        """Whether runs are shorter or smaller than the recipe's."""
        return self.examples is not None or self.epochs is not None


@dataclass(frozen=True)
class Reproduction:
    """The folder with runs.jsonl, table.md, table.csv and figures/, and a row for each arm with runs."""

    directory: Path
    rows: tuple[Row, ...]


def reproduce(
    recipe: Recipe,
    directory: str | Path,
    extent: Extent = Extent(),
    *,
    folder: str | Path | None = None,
    jobs: int = 1,
    progress: bool = False,
) -> Reproduction:
    """Make the missing runs of a recipe, and write table and figures from all its runs.

    Finished runs are kept; an interrupted run starts again.

    Args:
        recipe: the recipe.
        directory: folder for runs.jsonl, table.md, table.csv and figures/; may contain finished runs, also of other extents.
        extent: part of the recipe to run.
        folder: folder with the data set; None fetches it.
        jobs: number of parallel runs, each in its own process; 1 uses this process.
        progress: whether to show a progress bar on standard error.

    Raises:
        InvalidArgumentError: the recipe has no such arm, or an argument is out of range.
        DataUnavailableError: no source provides the data.
        PrivetError: an arm needs features from a package that is not installed.
    """
    count("jobs", jobs)
    for name in extent.arms:
        choice("arm", name, [arm.name for arm in recipe.arms])
    arms = [arm for arm in recipe.arms if not extent.arms or arm.name in extent.arms]
    if recipe.data is None and (extent.examples is not None or folder is not None):
        raise InvalidArgumentError("examples and folder", (extent.examples, folder), "left out: there is no data set")
    number = recipe.examples if extent.examples is None else extent.examples
    examples = TaskExamples(recipe.data, None if folder is None else str(folder), number, recipe.classes)
    size = 0 if recipe.data is None else TASKS[recipe.task].size(examples)
    for features in {recipe.settings(arm).features for arm in arms} - {AS_THEY_ARE}:
        check(read(examples), features)
    directory = Path(directory)
    records, prepared, lock, preparing = Records(directory / "runs.jsonl"), set[str](), Lock(), Lock()

    def job(arm: Arm, rate: float | None, seed: int, part: float = 1.0) -> Job:
        settings = recipe.settings(arm).lasting(extent.epochs).shortened(part)
        return job_of(recipe, arm, settings, examples, size, rate, seed)

    with track_runs(progress) as shown, performing(jobs) as (run, each):

        def there(wanted: Job) -> RunRecord | None:
            found = records.get(wanted.key)
            return found if found is not None and wanted.answered_by(found) else None

        def expect(jobs: Sequence[Job]) -> None:
            with lock:
                shown.expect(sum(job.steps for job in jobs if there(job) is None))

        def prepare(features: str) -> None:
            # Once, before the first run that needs them: runs in other processes then read them from the disk.
            with preparing:
                if features not in {AS_THEY_ARE, *prepared}:
                    prepared.add(features)
                    with shown.preparation(f"features: {features}", read(examples).examples) as advance:
                        extracted(read(examples), features, advance)

        def record(wanted: Job) -> RunRecord:
            found = there(wanted)
            if found is None:
                prepare(wanted.settings.features)
                found = run(wanted, shown.advance)
                with lock:
                    records.add(found)
            return found

        def tried(arm: Arm, rate: float) -> float:
            # A shorter run with a higher rate accumulates the same noise: η²T is the same.
            trial = job(arm, rate / math.sqrt(recipe.trial), TUNING_SEED, recipe.trial)
            expect([trial])
            return record(trial).metrics[recipe.metrics[0]]

        def rate(arm: Arm) -> float | None:
            start = recipe.settings(arm).learning_rate
            return highest(lambda rate: tried(arm, rate), start) if recipe.tuned and start is not None else start

        rates = dict(zip((arm.name for arm in arms), each(rate, arms), strict=True))
        runs = {arm.name: extent.seeds or recipe.runs_of(arm) for arm in arms}
        # All arms with one seed before the next seed, so that the arms are comparable after an early stop.
        each_seed = itertools.product(range(1, max(runs.values()) + 1), arms)
        wanted = [job(arm, rates[arm.name], seed) for seed, arm in each_seed if seed <= runs[arm.name]]
        expect(wanted)
        done = list(each(record, wanted))
    return Reproduction(directory, write(recipe, arms, done, directory, reduced=extent.reduced))


def highest(score: Callable[[float], float], start: float) -> float:
    """Return the rate at which doubling, or else halving, no longer raises the score.

    >>> highest(lambda rate: -abs(rate - 0.3), start=1.0)
    0.25
    """
    for factor in (2.0, 0.5):
        best = start
        while score(best * factor) > score(best):
            best *= factor
        if best != start:
            return best
    return start
