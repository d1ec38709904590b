"""Pictures for people: read from a benchmark, embedded as data, overlaid with heat maps, and on a contact sheet."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from unswayed.errors import BadPicture
from unswayed.evaluation.facts import Facts
from unswayed.files.whole import sha256
from unswayed.sources.pictures import read_mask, read_picture
from unswayed.views.text import plural

from .section import drawing, figure_bytes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from unswayed.benchmark import Benchmark


CHANGED, CHANGED_WORDS = "changed", "changed since the evaluation"
SIDE = 256
THUMBNAIL = 104


@dataclass(eq=False)
class Album:
    """The pictures of a benchmark by sample id; root None: there are none.

    gone: which of the pictures that were asked for are `missing` or unreadable, or `changed`: their SHA-256 is not that
    of the manifest, so they are not the pictures that were evaluated.
    """

    root: Path | None
    manifest: pl.DataFrame | None
    gone: dict[str, str] = field(default_factory=dict)

    def pictures(self, sample_ids: Iterable[str]) -> dict[str, np.ndarray]:
        """Return (H, W, 3) uint8 by sample id, without those that are missing, unreadable, changed or outside the
        benchmark's folder."""
        files = {sample_id: file for sample_id in sample_ids if (file := self._file(self.paths, sample_id))}
        pictures, hashes = {}, self.hashes
        for sample_id, file in files.items():
            try:
                pictures[sample_id] = read_picture(file)
            except (BadPicture, OSError):
                self.gone[sample_id] = "missing"
        for sample_id in [*pictures]:
            if sample_id in hashes and hashes[sample_id] != sha256(files[sample_id]):
                del pictures[sample_id]
                self.gone[sample_id] = CHANGED
        return pictures

    def _file(self, paths: Mapping[str, str], sample_id: str) -> Path | None:
        """Return the file of one of these paths; None if there is none, or it is outside the benchmark's folder."""
        path = PurePosixPath(paths.get(sample_id, ".."))
        return None if self.root is None or path.is_absolute() or ".." in path.parts else self.root / path

    def picture(self, sample_id: str) -> np.ndarray | None:
        return self.pictures([sample_id]).get(sample_id)

    def mask(self, sample_id: str) -> np.ndarray | None:
        """Return the object's mask in a picture, (H, W) float; None if there is none."""
        file = self._file(self.masks, sample_id)
        with contextlib.suppress(BadPicture, OSError):
            return None if file is None else read_mask(file)
        return None

    def _column(self, name: str) -> Mapping[str, str]:
        """Return a column of the manifest by sample id, without its nulls; empty if there is no such column."""
        if self.manifest is None or not {"sample_id", name} <= set(self.manifest.columns):
            return {}
        return dict(self.manifest.select("sample_id", name).drop_nulls().iter_rows())

    @cached_property
    def masks(self) -> Mapping[str, str]:
        return self._column("mask_path")

    def remarks(self) -> list[str]:
        """Return a line about the pictures asked for that have changed, and one about those that cannot be read."""
        lines = []
        for reason, words in ((CHANGED, CHANGED_WORDS), ("missing", "could not be read")):
            paths = [self.paths[sample_id] for sample_id, why in self.gone.items() if why == reason]
            if paths:
                shown = "is not shown" if len(paths) == 1 else "are not shown"
                lines.append(f"{plural(len(paths), 'picture')} of {self.root} {words} and {shown}, first {paths[0]}")
        return lines

    @cached_property
    def paths(self) -> Mapping[str, str]:
        made = {sample_id for sample_id, status in self._column("status").items() if status == "ok"}
        return {sample_id: path for sample_id, path in self._column("path").items() if sample_id in made}

    @cached_property
    def hashes(self) -> Mapping[str, str]:
        return self._column("sha256")

    def scenes(self, count: int) -> list[str]:
        """Return scenes that have an original, sampled evenly over the benchmark's order."""
        scenes = [sample_id.rsplit("/", 2)[0] for sample_id in self.paths if sample_id.endswith("/original/0")]
        scenes = list(dict.fromkeys(scenes))
        return [scenes[at * len(scenes) // count] for at in range(count)] if len(scenes) > count else scenes


WIDEST = 2200


def contact_sheet(benchmark: Benchmark, scenes: int = 10) -> bytes:
    """Return a PNG with one row per scene and one column per edit; white if an edit was not possible for a scene."""
    from PIL import Image

    manifest = pl.DataFrame(benchmark.manifest)
    album = Album(benchmark.root, manifest)
    names = [edit for edit in manifest["edit"].unique(maintain_order=True).to_list() if edit != "source"]
    words, rows = Facts(manifest=manifest).words(names), []
    for scene in album.scenes(scenes):
        pictures = [album.picture(f"{scene}/{edit}/0") for edit in names]
        blank = np.full_like(next(picture for picture in pictures if picture is not None), 255)
        made = [(blank if picture is None else picture) for picture in pictures]
        texts = [words[edit] + ": –" * (picture is None) for edit, picture in zip(names, pictures, strict=True)]
        rows.append((made, texts))
    with drawing("sheet"):
        sheet = figure_bytes(picture_sheet(rows, album.scenes(scenes)), "png")
    picture = Image.open(io.BytesIO(sheet)).convert("RGB")
    picture.thumbnail((WIDEST, 4 * WIDEST), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def overlay(image: np.ndarray, heat: np.ndarray, strength: float = 0.6) -> np.ndarray:
    """Return the photograph (H, W, 3) uint8 overlaid with its heat map (H, W) in [0, 1].

    Where the map is 0 the photograph is unchanged; higher values are more strongly colored (dark red to yellow).
    """
    from matplotlib import colormaps

    colors = colormaps["inferno"](0.15 + 0.85 * np.clip(heat, 0, 1))[..., :3] * 255
    share = (strength * np.sqrt(np.clip(heat, 0, 1)))[..., None]
    return (image * (1 - share) + colors * share).round().astype(np.uint8)


def outlined(image: np.ndarray, mask: np.ndarray, color: tuple[int, int, int] = (255, 255, 255)) -> np.ndarray:
    """Return the picture with the mask's outline drawn on it."""
    import cv2

    contours, _ = cv2.findContours((mask > 0.5).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return cv2.drawContours(image.copy(), contours, -1, color, max(1, len(image) // 110))


RIGHT, WRONG = (40, 200, 90), (240, 60, 50)


def marked(
    image: np.ndarray, truth: np.ndarray | None, box: Sequence[float] | None, region: np.ndarray | None, right: bool
) -> np.ndarray:
    """Return the picture with the object's outline in white, and what a model found in green or, if wrong, in red."""
    import cv2

    color, line = RIGHT if right else WRONG, max(2, len(image) // 90)
    picture = image.copy()
    if region is not None:
        picture[region] = (0.55 * picture[region] + 0.45 * np.array(color)).astype(np.uint8)
        picture = outlined(picture, region, color)
    elif box is not None:
        left, top, far, bottom = (int(round(value)) for value in box)
        picture = cv2.rectangle(picture, (left, top), (far - 1, bottom - 1), color, line)
    return picture if truth is None else outlined(picture, truth)


def picture_sheet(rows: Sequence[tuple[Sequence[np.ndarray], Sequence[str]]], names: Sequence[str] = ()) -> Figure:
    """Draw rows of pictures, each with a line of text above it; `names` are written at the left of the rows."""
    wide = max(len(pictures) for pictures, _ in rows)
    figure = new_figure(1.75 * wide + (0.9 if names else 0), 1.95 * len(rows))
    panels = figure.subplots(len(rows), wide, squeeze=False)
    for row, (pictures, texts) in enumerate(rows):
        for column in range(wide):
            axes: Axes = panels[row][column]
            axes.set_axis_off()
            if column < len(pictures):
                axes.imshow(pictures[column])
                axes.set_title(texts[column], fontsize=7.5, pad=3)
        if names:
            panels[row][0].text(
                -0.08, 0.5, names[row], transform=panels[row][0].transAxes, ha="right", va="center", fontsize=8
            )
    return figure
