"""Selection of runs: the runs of a recipe, and the finished ones among them."""

from __future__ import annotations

__all__ = ["finished_runs", "job_of"]

from privet.data import catalogue
from privet_experiments.recipe import Arm, Recipe
from privet_experiments.tasks.arm_config import TaskConfig
from privet_experiments.tasks.federated.files import FILES
from privet_experiments.tasks.job import Job, TaskExamples
from privet_experiments.tasks.run_record import Records, RunRecord

# The seed whose gradients are studied, if a recipe has studies: they take time, and one run per arm is an illustration.
_STUDIED_SEED = 1


def job_of(
    recipe: Recipe, arm: Arm, settings: TaskConfig, examples: TaskExamples, size: int, rate: float | None, seed: int
) -> Job:  # fmt: skip
    """Return the run of an arm with this seed; the settings may have another length than the arm's."""
    studies, new_studies = (recipe.studies, recipe.new_studies) if seed == _STUDIED_SEED else ((), ())
    return Job(
        recipe.name, recipe.task, recipe.metrics, recipe.evaluations, examples, size, arm.name, settings, rate, seed, studies,
        recipe.study_epochs, new_studies,
    )  # fmt: skip


def finished_runs(recipe: Recipe, records: Records) -> tuple[RunRecord, ...]:
    """Return the finished runs of a recipe, by seed, without those of the search and without reduced runs.

    A run of a tuned recipe counts with any learning rate; the search is not repeated.
    """
    sizes = {entry.name: entry.train for entry in catalogue()} | {name: file.clients for name, file in FILES.items()}
    size = recipe.examples or sizes.get(recipe.data or "", 0)
    examples = TaskExamples(recipe.data, None, recipe.examples, recipe.classes)
    arms = {arm.name: (arm, recipe.settings(arm)) for arm in recipe.arms}

    def counts(record: RunRecord) -> bool:
        if record.arm not in arms:
            return False
        arm, settings = arms[record.arm]
        rate = record.rate if recipe.tuned else settings.learning_rate
        job = job_of(recipe, arm, settings, examples, size, rate, record.seed)
        return record.seed <= recipe.runs_of(arm) and record.key == job.key and job.answered_by(record)

    found = {(record.seed, record.arm): record for record in records if counts(record)}
    return tuple(found[one] for one in sorted(found))
