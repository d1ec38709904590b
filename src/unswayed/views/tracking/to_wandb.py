"""Runs in Weights & Biases, in the project of WANDB_PROJECT or `unswayed`; WANDB_MODE=offline keeps them here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unswayed.errors import missing_extra

from .tracker import FlipPicture, Tracker


def open_wandb(name: str, run_id: str | None) -> Tracker:
    """A run named after the model; an earlier run is continued."""
    try:
        import wandb
    except ImportError:
        raise missing_extra("wandb", "wandb") from None
    return _Run(
        wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "unswayed",
            name=name,
            id=run_id,
            resume="allow" if run_id else None,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
    )


class _Run:
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
            values = [getattr(flip, name) for name in names]
            table.add_data(*(wandb.Image(one) if isinstance(one, np.ndarray) else one for one in values))
        self.run.log({"flips": table})

    def file(self, path: Path) -> None:
        import wandb

        artifact = wandb.Artifact(f"{path.stem}-{self.run_id}", type=path.stem)
        artifact.add_file(str(path))
        self.run.log_artifact(artifact)

    def close(self) -> None:
        self.run.finish()
