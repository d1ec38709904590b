"""The models that predictions name, before anything else of them is read: one that is a program is not opened."""

from __future__ import annotations

from pathlib import Path

from unswayed.errors import UserError
from unswayed.files.tables import Column, read_checked
from unswayed.files.whole import read_json
from unswayed.models.opening import runs_code


def refuse_programs(predictions: str | Path) -> None:
    """Raise UserError if a model of the predictions is a program, which heat maps would run.

    Neither polars nor torch is loaded, so the answer comes at once. Names that only need the network pass: a report
    leaves their heat maps out and says so.
    """
    folder = Path(predictions)
    for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder] if folder.is_file() else []:
        table = read_checked(path, {"model": Column("text", nulls=False)}, select=["model"], required=["model"])
        names = [str(name) for name in table.column("model").unique().to_pylist()]
        card = read_json(path.with_suffix(".json")) if path.with_suffix(".json").is_file() else {}
        names += [str(card.get(key, "")) for key in ("spec", "model")] if isinstance(card, dict) else []
        for name in names:
            if runs_code(name):
                raise UserError(
                    f"{path} names the model '{name[:200]}', which is a program: heat maps would run it",
                    allowed="--heat-maps 0 for a report without heat maps",
                    run="the same command with --trust, if you trust the predictions",
                )
