"""MLflow."""

from __future__ import annotations

__all__ = ["MLflow"]

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from privet.tracking.sink import Sink, check_installed


class MLflow(Sink):
    """Sends values to a run of an MLflow experiment. Each session of a resumed run is a run of its own there.

    Args:
        experiment: name of the experiment, which is made if it does not exist.
        name: name of the run; None lets MLflow choose.
        tracking_uri: address of the server or folder; None for `MLFLOW_TRACKING_URI`, or MLflow's default.
        settings: public settings, stored as parameters of the run.
        every: as for `Sink`.

    Raises:
        InvalidArgumentError: neither mlflow nor mlflow-skinny is installed.
    """

    def __init__(
        self,
        experiment: str = "privet",
        name: str | None = None,
        *,
        tracking_uri: str | None = None,
        settings: Mapping[str, Any] | None = None,
        every: int | None = None,
    ) -> None:
        super().__init__(every)
        check_installed("MLflow", "mlflow", "mlflow")
        self._experiment, self._name, self._uri = experiment, name, tracking_uri
        self._settings = dict(settings or {})

    @cached_property
    def _client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self._uri)

    @cached_property
    def _run(self) -> str:
        """The id of the run."""
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        run = str(self._client.create_run(experiment, run_name=self._name).info.run_id)
        for name, value in self._settings.items():
            self._client.log_param(run, name, value)
        return run

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._run, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def _close(self) -> None:
        if "_run" in self.__dict__:
            self._client.set_terminated(self._run)
