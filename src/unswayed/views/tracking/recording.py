"""`record`: the results of a folder of predictions in every chosen tracker, one run per model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.analyses.flips import find_flips
from unswayed.errors import reason_of
from unswayed.evaluation.facts import Facts, read_facts
from unswayed.files.whole import read_json, write_json
from unswayed.views.report.pictures import Album

from .tracker import FlipPicture, Open, Tracker

RUNS = ".tracking.json"  # in the folder of predictions: tracker -> model -> its run and its predictions
FLIPS = 24  # per model
_LEFT_OUT = ("members", "classes")


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
    folder = Path(predictions)
    try:
        facts = read_facts(folder)
        table = dropped_accuracy(folder, models=models, facts=facts)
        names = list(dict.fromkeys(table["model"]))
        pictures = _flips(folder, facts, names)
        kept = _known_runs(folder)
    except Exception as error:
        say(f"nothing was recorded: {error}")
        return {}
    done = {}
    for name, open_run in trackers.items():
        runs = kept.setdefault(name, {})
        done[name] = 0
        for model in names:
            try:
                card = facts.cards.get(model, {})
                before = runs.get(model, {})
                known = before.get("run") if before.get("predictions") == _fingerprint(card) else None
                tracker = open_run(model, known)
                results = None if tracker.run_id == known else (card, table.filter(model=model), pictures[model])
                _record_model(tracker, results, report)
                runs[model] = {"run": tracker.run_id, "predictions": _fingerprint(card)}
                done[name] += 1
            except Exception as error:
                reason = reason_of(error)
                say(f"{name}: {model} was not recorded: {reason}")
    write_json(folder / RUNS, kept)
    return done


def metrics_of(table: pl.DataFrame) -> dict[str, float]:
    """One model's rows of the table of drops as metrics: accuracies in percent, drops in points, with intervals."""
    found: dict[str, float] = {}
    for row in table.iter_rows(named=True):
        edit = re.sub(r"[^\w.:/ -]", "_", row["edit"])
        values = {"n": row["n"], "drop": row["drop"], "drop_low": row["low"], "drop_high": row["high"]}
        values |= {"net_drop": row["net_drop"], "net_drop_low": row["net_low"], "net_drop_high": row["net_high"]}
        for name in ("accuracy", "accuracy_low", "accuracy_high"):
            values[name] = None if row[name] is None else 100 * row[name]
        found |= {f"{name}/{edit}": float(value) for name, value in values.items() if value is not None}
    return found


def parameters_of(card: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A card as flat parameters (`versions.torch`), without lists of classes.

    >>> parameters_of({"model": "lite:0", "versions": {"torch": "2.9"}, "labels": {"classes": ["a", "b"]}})
    {'model': 'lite:0', 'versions.torch': '2.9'}
    """
    found: dict[str, str] = {}
    for name, value in card.items():
        if isinstance(value, Mapping):
            found |= parameters_of(value, f"{prefix}{name}.")
        elif value is not None and not (name in _LEFT_OUT and isinstance(value, list)):
            found[prefix + name] = str(value)[:500]
    return found


def _record_model(
    tracker: Tracker,
    results: tuple[Mapping[str, Any], pl.DataFrame, list[FlipPicture]] | None,
    report: str | Path | None,
) -> None:
    """Record the card, the drops and the flips of a new run, and the report of any."""
    try:
        if results is not None:
            card, table, flips = results
            tracker.parameters(parameters_of(card))
            tracker.metrics(metrics_of(table))
            if flips:
                tracker.flips(flips)
        if report is not None:
            tracker.file(Path(report))
    finally:
        tracker.close()


def _flips(folder: Path, facts: Facts, names: Sequence[str]) -> dict[str, list[FlipPicture]]:
    """A sample of each model's flips, with their pictures where the benchmark is available."""
    album = Album(facts.root, facts.manifest)
    found: dict[str, list[FlipPicture]] = {name: [] for name in names}
    for flip in find_flips(folder, limit=FLIPS * len(names)).shown:
        if flip.model not in found or len(found[flip.model]) == FLIPS:
            continue
        found[flip.model].append(
            FlipPicture(
                flip.sample_id,
                flip.edit,
                _class(facts, flip.label),
                _class(facts, flip.after),
                flip.before_probability,
                flip.after_probability,
                album.picture(f"{flip.source_id}/original/0"),
                album.picture(flip.sample_id),
            )
        )
    return found


def _fingerprint(card: Mapping[str, Any]) -> str | None:
    """What decides the predictions: another one means another run."""
    return card.get("fingerprint")


def _class(facts: Facts, index: int) -> str:
    return facts.classes[index] if 0 <= index < len(facts.classes) else str(index)


def _known_runs(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    return dict(read_json(folder / RUNS)) if (folder / RUNS).is_file() else {}
