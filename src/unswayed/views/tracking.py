"""Recording results where runs are tracked: MLflow, Weights & Biases, or the tracker of another package.

A tracker is a function `open(name, run_id)` that returns a `Tracker`. A package offers its own through the entry-point
group `unswayed.trackers`; `declare(facts={"variable": NAME})` names the environment variable that switches it on.

MLflow: the server of MLFLOW_TRACKING_URI, the experiment of MLFLOW_EXPERIMENT_NAME or `unswayed`. Weights & Biases: the
project of WANDB_PROJECT or `unswayed`; WANDB_MODE=offline keeps its files on this computer.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from unswayed.errors import UserError, reason_of, unknown
from unswayed.registry import Part, Registry

if TYPE_CHECKING:
    import polars as pl

    from unswayed.evaluation.facts import Facts

RUNS = ".tracking.json"  # in the folder of predictions: tracker -> model -> its run and its predictions
FLIPS = 24  # per model
NONE = "none"
_LEFT_OUT = ("members", "classes")


@dataclass(frozen=True, eq=False)
class FlipPicture:
    """One flip: class names, probabilities, and the pictures (H, W, 3) uint8, None where they are not available."""

    sample_id: str
    edit: str
    label: str
    predicted: str
    before_probability: float
    after_probability: float
    original: np.ndarray | None
    edited: np.ndarray | None


class Tracker(Protocol):
    """One run of a tracking tool, about one model.

    A tracker is opened with `open(name, run_id)`: the name of the run, and the `run_id` of an earlier run to be
    continued, or None.
    """

    run_id: str

    def parameters(self, values: Mapping[str, str]) -> None:
        """Record settings, hashes and versions."""

    def metrics(self, values: Mapping[str, float]) -> None:
        """Record accuracies in percent and drops in points, with the ends of their intervals."""

    def flips(self, flips: Sequence[FlipPicture]) -> None:
        """Record a table of flips with their pictures."""

    def file(self, path: Path) -> None:
        """Record a file, such as the report."""

    def close(self) -> None:
        """End the run."""


Open = Callable[[str, str | None], Tracker]
TRACKERS: Registry[Open] = Registry(
    "tracker",
    {
        "mlflow": Part(
            f"{__name__}:open_mlflow",
            "an MLflow server",
            needs=("mlflow",),
            extra="mlflow",
            uses_network=True,
            facts={"variable": "MLFLOW_TRACKING_URI"},
        ),
        "wandb": Part(
            f"{__name__}:open_wandb",
            "Weights & Biases",
            needs=("wandb",),
            extra="wandb",
            uses_network=True,
            facts={"variable": "WANDB_PROJECT"},
        ),
    },
    check=lambda name, thing: None if callable(thing) else "a function that opens a run",
)


def variables() -> dict[str, str]:
    """Return the environment variable that switches each tracker on; one that cannot be loaded has none."""
    switches = {}
    for name in TRACKERS:
        try:
            variable = TRACKERS.part(name).facts.get("variable")
        except UserError:  # it is refused with its reason where it is asked for
            continue
        if variable:
            switches[name] = str(variable)
    return switches


def chosen_trackers(names: Sequence[str], say: Callable[[str], None]) -> dict[str, Open]:
    """Return the trackers by name: those of `names`, or without any those that environment variables switch on.

    say: receives one line for each tracker that a variable switches on, or that is not installed. With `none` among the
    names there is no tracker.
    """
    if NONE in names:
        return {}
    for name in names:
        if name not in TRACKERS:
            raise unknown(TRACKERS.kind, name, [*TRACKERS, NONE])
    if names:
        return {name: TRACKERS.load(name) for name in dict.fromkeys(names)}
    switched_on = {}
    for name, variable in variables().items():
        if not os.environ.get(variable):
            continue
        part = TRACKERS.part(name)
        if part.missing():
            say(f"{variable} is set, but {name} is not installed: pip install 'unswayed[{part.extra or name}]'")
            continue
        say(f"recording in {name}, because {variable} is set; --track none turns it off")
        switched_on[name] = TRACKERS.load(name)
    return switched_on


def record(
    predictions: str | Path,
    trackers: Mapping[str, Open],
    *,
    models: Sequence[str] | None = None,
    report: str | Path | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, int]:
    """Record every model's settings, drops, flips and the report; return the number of runs by tracker.

    trackers: as `chosen_trackers` returns them. models: only these. A later call for the same folder continues the
    same runs with the report, unless the predictions have changed. A tracker that fails is reported through `say` and
    ends nothing.
    """
    if not trackers:
        return {}
    from unswayed.analyses.drops.drop import dropped_accuracy
    from unswayed.evaluation.facts import read_facts
    from unswayed.files.whole import read_json, write_json

    folder = Path(predictions)
    try:
        facts = read_facts(folder)
        table = dropped_accuracy(folder, models=models, facts=facts)
        names = list(dict.fromkeys(table["model"]))
        pictures = _flips(folder, facts, names)
        kept = dict(read_json(folder / RUNS)) if (folder / RUNS).is_file() else {}
    except Exception as error:
        say(f"nothing was recorded: {error}")
        return {}
    recorded = {}
    for name, open_run in trackers.items():
        runs = kept.setdefault(name, {})
        recorded[name] = 0
        for model in names:
            try:
                card, before = facts.cards.get(model, {}), runs.get(model, {})
                fingerprint = card.get("fingerprint")  # of what decides the predictions: another one means another run
                known = before.get("run") if before.get("predictions") == fingerprint else None
                with closing(open_run(model, known)) as tracker:
                    if tracker.run_id != known:
                        tracker.parameters(parameters_of(card))
                        tracker.metrics(metrics_of(table.filter(model=model)))
                        if pictures[model]:
                            tracker.flips(pictures[model])
                    if report is not None:
                        tracker.file(Path(report))
                runs[model] = {"run": tracker.run_id, "predictions": fingerprint}
                recorded[name] += 1
            except Exception as error:
                say(f"{name}: {model} was not recorded: {reason_of(error)}")
    write_json(folder / RUNS, kept)
    return recorded


def metrics_of(table: pl.DataFrame) -> dict[str, float]:
    """Return one model's rows of the table of drops as metrics: accuracies in percent, drops in points."""
    metrics: dict[str, float] = {}
    for row in table.iter_rows(named=True):
        edit = _key(row["edit"])
        values = {"n": row["n"], "drop": row["drop"], "drop_low": row["low"], "drop_high": row["high"]}
        values |= {"net_drop": row["net_drop"], "net_drop_low": row["net_low"], "net_drop_high": row["net_high"]}
        for name in ("accuracy", "accuracy_low", "accuracy_high"):
            values[name] = None if row[name] is None else 100 * row[name]
        metrics |= {f"{name}/{edit}": float(value) for name, value in values.items() if value is not None}
    return metrics


def _key(name: str) -> str:
    """Return a name with the characters that MLflow takes for parameters and metrics."""
    return re.sub(r"[^\w.:/ -]", "_", name)


def parameters_of(card: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return a card as flat parameters (`versions.torch`), without lists of classes.

    >>> parameters_of({"model": "lite:0", "versions": {"torch": "2.9"}, "labels": {"classes": ["a", "b"]}})
    {'model': 'lite:0', 'versions.torch': '2.9'}
    """
    flat: dict[str, str] = {}
    for name, value in card.items():
        if isinstance(value, Mapping):
            flat |= parameters_of(value, f"{prefix}{name}.")
        elif value is not None and not (name in _LEFT_OUT and isinstance(value, list)):
            flat[prefix + name] = str(value)[:500]
    return flat


def _flips(folder: Path, facts: Facts, models: Sequence[str]) -> dict[str, list[FlipPicture]]:
    """Return a sample of each model's flips, with their pictures where the benchmark is available."""
    from unswayed.analyses.flips import find_flips
    from unswayed.views.report.pictures import Album

    album = Album(facts.root, facts.manifest)
    flips: dict[str, list[FlipPicture]] = {model: [] for model in models}
    for flip in find_flips(folder, limit=FLIPS * len(models)).shown:
        if flip.model not in flips or len(flips[flip.model]) == FLIPS:
            continue
        label, predicted = facts.class_name(flip.label), facts.class_name(flip.after)
        shares = flip.before_probability, flip.after_probability
        pictures = album.picture(f"{flip.source_id}/original/0"), album.picture(flip.sample_id)
        flips[flip.model].append(FlipPicture(flip.sample_id, flip.edit, label, predicted, *shares, *pictures))
    return flips


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

        self._log("params", [Param(_key(key), value) for key, value in values.items()])

    def metrics(self, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._log("metrics", [Metric(name, value, now, 0) for name, value in values.items()])

    def _log(self, kind: str, entries: Sequence[object]) -> None:
        for start in range(0, len(entries), _AT_ONCE):
            self.client.log_batch(self.run_id, **{kind: entries[start : start + _AT_ONCE]})

    def flips(self, flips: Sequence[FlipPicture]) -> None:
        import mlflow

        columns: dict[str, list[object]] = {}
        for flip in flips:
            for name, value in vars(flip).items():
                shown = mlflow.Image(value) if isinstance(value, np.ndarray) else value
                columns.setdefault(name, []).append(shown)
        self.client.log_table(self.run_id, columns, "flips.json")

    def file(self, path: Path) -> None:
        self.client.log_artifact(self.run_id, str(path))

    def close(self) -> None:
        self.client.set_terminated(self.run_id)


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

        table = wandb.Table(columns=list(vars(flips[0])))
        for flip in flips:
            values = vars(flip).values()
            table.add_data(*(wandb.Image(value) if isinstance(value, np.ndarray) else value for value in values))
        self.run.log({"flips": table})

    def file(self, path: Path) -> None:
        import wandb

        artifact = wandb.Artifact(f"{path.stem}-{self.run_id}", type=path.stem)
        artifact.add_file(str(path))
        self.run.log_artifact(artifact)

    def close(self) -> None:
        self.run.finish()
