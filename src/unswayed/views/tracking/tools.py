"""Runs in MLflow and in Weights & Biases.

MLflow: the server of MLFLOW_TRACKING_URI, the experiment of MLFLOW_EXPERIMENT_NAME or `unswayed`. Weights & Biases: the
project of WANDB_PROJECT or `unswayed`; WANDB_MODE=offline keeps its files on this computer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import FlipPicture, Tracker

_AT_ONCE = 90  # parameters or metrics in one request; the server of MLflow takes 100


def open_mlflow(name: str, run_id: str | None) -> Tracker:
    """Return a run named after the model; an earlier run is continued if the server still has it."""
    import mlflow

    client = mlflow.MlflowClient()
    if run_id is not None:
        try:
            client.get_run(run_id)
            return _MlflowRun(client, run_id)
        except mlflow.exceptions.MlflowException:
            pass  # another server, or deleted there
    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "unswayed"
    known = client.get_experiment_by_name(experiment)
    experiment_id = client.create_experiment(experiment) if known is None else known.experiment_id
    return _MlflowRun(client, client.create_run(experiment_id, run_name=name).info.run_id)


class _MlflowRun:
    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.run_id = client, run_id

    def parameters(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        self._log("params", [Param(_mlflow_key(key), value) for key, value in values.items()])

    def metrics(self, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._log("metrics", [Metric(name, value, now, 0) for name, value in values.items()])

    def _log(self, kind: str, entries: list[Any]) -> None:
        for start in range(0, len(entries), _AT_ONCE):
            self.client.log_batch(self.run_id, **{kind: entries[start : start + _AT_ONCE]})

    def flips(self, flips: Sequence[FlipPicture]) -> None:
        import mlflow

        columns: dict[str, list[Any]] = {}
        for flip in flips:
            for name, value in vars(flip).items():
                shown = mlflow.Image(value) if isinstance(value, np.ndarray) else value
                columns.setdefault(name, []).append(shown)
        self.client.log_table(self.run_id, columns, "flips.json")

    def file(self, path: Path) -> None:
        self.client.log_artifact(self.run_id, str(path))

    def close(self) -> None:
        self.client.set_terminated(self.run_id)


def _mlflow_key(name: str) -> str:
    """Return a parameter's name with the characters that MLflow takes."""
    return "".join(character if character.isalnum() or character in "_-. :/" else "_" for character in name)


def open_wandb(name: str, run_id: str | None) -> Tracker:
    """Return a run named after the model; an earlier run is continued."""
    import wandb

    return _WandbRun(
        wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "unswayed",
            name=name,
            id=run_id,
            resume="allow" if run_id else None,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
    )


class _WandbRun:
    def __init__(self, run: Any) -> None:
        self.run, self.run_id = run, run.id

    def parameters(self, values: Mapping[str, str]) -> None:
        self.run.config.update(dict(values), allow_val_change=True)

    def metrics(self, values: Mapping[str, float]) -> None:
        self.run.log(dict(values))

    def flips(self, flips: Sequence[FlipPicture]) -> None:
        import wandb

        names = list(vars(flips[0]))
        table = wandb.Table(columns=[*names])
        for flip in flips:
            values = (getattr(flip, name) for name in names)
            table.add_data(*(wandb.Image(value) if isinstance(value, np.ndarray) else value for value in values))
        self.run.log({"flips": table})

    def file(self, path: Path) -> None:
        import wandb

        artifact = wandb.Artifact(f"{path.stem}-{self.run_id}", type=path.stem)
        artifact.add_file(str(path))
        self.run.log_artifact(artifact)

    def close(self) -> None:
        self.run.finish()
