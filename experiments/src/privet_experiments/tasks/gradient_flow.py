"""Gradient flow on synthetic problems, to study the effect of clipping on its tangent kernel; no data, noise or privacy."""

from __future__ import annotations

__all__ = ["FlowConfig", "flow"]

from dataclasses import dataclass
from typing import Any

from privet.errors import InvalidArgumentError, choice
from privet_experiments import tangent_kernel
from privet_experiments.tasks.job import Advance, Job, TaskResult


@dataclass(frozen=True)
class FlowConfig:
    """Clipping of an arm.

    Args:
        clipping: one of `privet_experiments.tangent_kernel.KINDS`; with an optimizer, one of its `CLIPPINGS`.
        optimizer: one of `privet_experiments.tangent_kernel.DYNAMICS`; None for gradient descent with the kernels on its way.
    """

    clipping: str
    optimizer: str | None = None

    def __post_init__(self) -> None:
        choice("clipping", self.clipping, tangent_kernel.KINDS if self.optimizer is None else tangent_kernel.CLIPPINGS)
        if self.optimizer is not None:
            choice("optimizer", self.optimizer, tangent_kernel.DYNAMICS)

    @property
    def features(self) -> str:
        """None: problems define their inputs."""
        return "as they are"

    @property
    def learning_rate(self) -> None:
        """None: problems define their step size."""
        return

    @property
    def adaptive(self) -> bool:
        """False."""
        return False

    def steps(self, examples: int) -> int:
        """Return 1: problems are short and have different lengths."""
        return 1

    def described(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {"clipping": self.clipping, **({} if self.optimizer is None else {"optimizer": self.optimizer})}

    def lasting(self, epochs: float | None) -> FlowConfig:
        """Return the settings; refuse another length, because problems define theirs."""
        if epochs is not None:
            raise InvalidArgumentError("epochs", epochs, "left out for gradient flow", "Every problem has its own length.")
        return self

    def shortened(self, part: float) -> FlowConfig:
        """Return the settings: there is no search."""
        return self


def flow(job: Job, advance: Advance) -> TaskResult:
    """Follow the flow of the problem whose number is the job's seed, and return the properties that held."""
    problems = tangent_kernel.problems()
    if job.seed > len(problems):
        raise InvalidArgumentError("seeds", job.seed, f"at most {len(problems)}", "Here a seed is the number of a problem.")
    settings, problem = job.settings, problems[job.seed - 1]
    if settings.optimizer is None:
        found = tangent_kernel.flow_of(settings.clipping, problem)
    else:
        found = tangent_kernel.optimizer_flow(settings.optimizer, settings.clipping, problem)
    advance(1)
    # Kernels are those of gradient descent; the other properties are of the path.
    seen = {
        name: holds for name, holds in tangent_kernel.PROPERTIES.items() if found.kernels or name in tangent_kernel.OF_THE_PATH
    }
    verdicts = {name.replace(" ", "_"): float(holds(found)) for name, holds in seen.items()}
    numbers = {"final_loss": found.losses[-1] / found.losses[0]}
    if found.kernels:
        numbers["smallest_quadratic"] = min(kernel.smallest_quadratic for kernel in found.kernels)
        numbers["smallest_real_part"] = min(kernel.smallest_real for kernel in found.kernels)
    metrics = {name: (verdicts | numbers)[name] for name in job.metrics}
    return TaskResult(metrics=metrics, curve=[{"step": len(found.losses) - 1, **metrics}])
