"""Weights & Biases."""

from __future__ import annotations

__all__ = ["WandB"]

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from privet.tracking.sink import Sink, check_installed


class WandB(Sink):
    """Sends values to a run of Weights & Biases. Each session of a resumed run is a run of its own there.

    Args:
        project: name of the project.
        name: name of the run; None lets the service choose.
        settings: public settings to show beside the values.
        every: as for `Sink`.
        options: further arguments of `wandb.init`, such as mode="offline" or id="…".

    Raises:
        InvalidArgumentError: the package wandb is not installed.
    """

    def __init__(
        self,
        project: str = "privet",
        name: str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        every: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(every)
        check_installed("WandB", "wandb", "wandb")
        self._options = {"project": project, "name": name, "config": dict(settings or {}), **options}

    @cached_property
    def _run(self) -> Any:
        import wandb

        return wandb.init(**self._options)

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def _close(self) -> None:
        if "_run" in self.__dict__:
            self._run.finish()
