"""Runs in MLflow: the server of MLFLOW_TRACKING_URI, the experiment of MLFLOW_EXPERIMENT_NAME or `unswayed`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unswayed.errors import missing_extra

from .tracker import FlipPicture, Tracker

_AT_ONCE = 90  # parameters or metrics in one request; the server takes 100


def open_mlflow(name: str, run_id: str | None) -> Tracker:
    """A run named after the model; an earlier run is continued if the server still has it."""
    try:
        import mlflow
    except ImportError:
        raise missing_extra("mlflow", "mlflow") from None
    client = mlflow.MlflowClient()
    if run_id is not None:
        try:
            client.get_run(run_id)
            return _Run(client, run_id)
        except mlflow.exceptions.MlflowException:
            pass  # another server, or deleted there
    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "unswayed"
    found = client.get_experiment_by_name(experiment)
    place = client.create_experiment(experiment) if found is None else found.experiment_id
    return _Run(client, client.create_run(place, run_name=name).info.run_id)


class _Run:
    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.run_id = client, run_id

    def parameters(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        every = [Param(_key(key), value) for key, value in values.items()]
        for start in range(0, len(every), _AT_ONCE):
            self.client.log_batch(self.run_id, params=every[start : start + _AT_ONCE])

    def metrics(self, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        every = [Metric(name, value, now, 0) for name, value in values.items()]
        for start in range(0, len(every), _AT_ONCE):
            self.client.log_batch(self.run_id, metrics=every[start : start + _AT_ONCE])

    def flips(self, flips: Sequence[FlipPicture]) -> None:
        import mlflow

        columns: dict[str, list[Any]] = {}
        for flip in flips:
            for name, value in vars(flip).items():
                picture = name in ("original", "edited")
                shown = mlflow.Image(value) if picture and value is not None else value
                columns.setdefault(name, []).append(shown)
        self.client.log_table(self.run_id, columns, "flips.json")

    def file(self, path: Path) -> None:
        self.client.log_artifact(self.run_id, str(path))

    def close(self) -> None:
        self.client.set_terminated(self.run_id)


def _key(name: str) -> str:
    """A parameter's name with the characters that MLflow takes."""
    return "".join(one if one.isalnum() or one in "_-. :/" else "_" for one in name)
