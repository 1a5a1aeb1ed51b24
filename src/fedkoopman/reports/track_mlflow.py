"""Scalars for MLflow: where MLFLOW_TRACKING_URI says, otherwise mlflow.db in this directory.

The experiment is the study's name, or MLFLOW_EXPERIMENT_NAME; each seed is a run, with the study's
values as parameters.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from fedkoopman.reports.tracking import Memory, Rows, flat

TOGETHER = 1000
"""Metrics in one request, at most; parameters: a tenth of that."""


class MLflow:
    """A run of one seed; after a resumption the service says which slots it has."""

    def __init__(self, directory: Path, seed: int, study: Mapping[str, Any]) -> None:
        self._client = MlflowClient()
        memory = Memory(directory / "mlflow.json", seed)
        self._run = str(memory.read().get("run", ""))
        if self._run and self._known():
            self._client.update_run(self._run, status="RUNNING")
            self.logged = self._last()
            return
        self.logged = 0
        name = str(study.get("name", "fedkoopman"))
        experiment = _experiment(self._client, os.environ.get("MLFLOW_EXPERIMENT_NAME") or name)
        made = self._client.create_run(experiment, run_name=f"{name}, seed {seed}"[:250])
        self._run = made.info.run_id
        memory.write(run=self._run)
        params = [Param(key, str(value)[:6000]) for key, value in flat(study).items()]
        for first in range(0, len(params), TOGETHER // 10):
            self._client.log_batch(self._run, params=params[first : first + TOGETHER // 10])

    def log(self, rows: Rows) -> None:
        now = int(time.time() * 1000)
        metrics: list[Metric] = []
        for slot, values in rows:
            if len(metrics) + len(values) > TOGETHER:  # a slot's metrics go together
                self._client.log_batch(self._run, metrics=metrics)
                metrics = []
            metrics += [Metric(name, value, now, slot) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)
        self.logged = rows[-1][0]

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _known(self) -> bool:
        try:
            return self._client.get_run(self._run).info.lifecycle_stage == "active"
        except MlflowException:
            return False

    def _last(self) -> int:
        metrics = self._client.get_run(self._run).data.metrics
        name = "seconds" if "seconds" in metrics else next(iter(metrics), "")
        history = self._client.get_metric_history(self._run, name) if name else []
        return max((metric.step for metric in history), default=0)


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


tracker = MLflow
