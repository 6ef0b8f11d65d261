"""TensorBoard: values in event files, without a service."""

from __future__ import annotations

__all__ = ["TensorBoard"]

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from privet.tracking.sink import Sink, check_installed


class TensorBoard(Sink):
    """Writes event files for `tensorboard --logdir DIRECTORY`.

    Args:
        directory: folder of the event files, such as "runs/mnist/tensorboard".
        settings: public settings to show beside the values.
        every: as for `Sink`.

    Raises:
        InvalidArgumentError: the package tensorboard is not installed.
    """

    def __init__(self, directory: str | Path, *, settings: Mapping[str, Any] | None = None, every: int | None = None) -> None:
        super().__init__(every)
        check_installed("TensorBoard", "tensorboard", "tensorboard")
        self._directory, self._settings = Path(directory).absolute(), dict(settings or {})

    @cached_property
    def _writer(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(self._directory))
        if self._settings:
            writer.add_text("settings", f"```\n{json.dumps(self._settings, indent=2)}\n```")
        return writer

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def _flush(self) -> None:
        if "_writer" in self.__dict__:
            self._writer.flush()

    def _close(self) -> None:
        if "_writer" in self.__dict__:
            self._writer.close()
