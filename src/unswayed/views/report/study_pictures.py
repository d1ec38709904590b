"""The pictures of a sensitivity study: galleries of what models look at outside the object, and sheets of channels."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from unswayed.files.whole import read_json, write_bytes

from .figures import figure_bytes
from .pictures import outlined, overlay, picture_sheet
from .section import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unswayed.evaluation.spurious import Region
    from unswayed.evaluation.study import Channels, Study


def write_study_pictures(study: Study) -> list[str]:
    """Write FOLDER/spurious/<model>/gallery.html and .png, FOLDER/channels/<model>.png; return a line per gallery.

    Names of clusters are read from names.json next to the gallery.
    """
    lines = []
    for slug, regions in study.regions.items():
        folder = study.folder / "spurious" / slug
        names = read_json(folder / "names.json") if (folder / "names.json").is_file() else {}
        page = spurious_page(regions.found, regions.model, regions.classes, names)
        sheet = spurious_sheet(regions.found, regions.classes, names)
        write_bytes(folder / "gallery.html", page.encode())
        write_bytes(folder / "gallery.png", figure_bytes(sheet, "png"))
        clusters = len({one.cluster for one in regions.found})
        lines.append(f"{folder / 'gallery.html'}: {len(regions.found)} pictures in {clusters} rows")
    for slug, channels in study.channels.items():
        write_bytes(study.folder / "channels" / f"{slug}.png", figure_bytes(channel_sheet(channels), "png"))
    return lines


def channel_sheet(channels: Channels) -> Figure:
    """Draw one row per attribute: its best channel's activation on the pictures where it is most active."""
    rows, names = [], []
    for row, examples in zip(channels.best.iter_rows(named=True), channels.examples, strict=True):
        pictures = [outlined(overlay(one.image, one.heat), one.mask) for one in examples]
        rows.append((pictures, [one.source_id for one in examples]))
        score = "" if row["auroc"] is None else f"\nAUROC {row['auroc']:.2f}"
        names.append(f"{row['attribute']}\nchannel {row['channel']}\nAP {row['average_precision']:.2f}{score}")
    return picture_sheet(rows, names)


def spurious_page(
    regions: Sequence[Region], model: str, classes: Sequence[str], names: Mapping[str, str] | None = None
) -> str:
    """Return one self-contained HTML page: one section per cluster with its pictures and a field for its name.

    names: cluster number -> name, as the page's own button saves them (names.json).
    """
    clusters = [
        (number, [(_caption(one, classes), _address(one)) for one in group])
        for number, group in groupby(regions, key=lambda one: one.cluster)
    ]
    return render("spurious.html", model=model, clusters=clusters, names=names or {})


def spurious_sheet(
    regions: Sequence[Region], classes: Sequence[str], names: Mapping[str, str] | None = None, most: int = 6
) -> Figure:
    """Draw the gallery: one row per cluster with its first `most` regions and its name at the left."""
    rows, titles = [], []
    for number, group in groupby(regions, key=lambda one: one.cluster):
        members = list(group)[:most]
        rows.append(([_shown(one) for one in members], [_caption(one, classes) for one in members]))
        plain = f"cluster {number}" if number >= 0 else "no cluster"
        titles.append((names or {}).get(str(number)) or plain)
    return picture_sheet(rows, titles)


def _address(region: Region) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(_shown(region)).save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _shown(region: Region) -> np.ndarray:
    import cv2

    top, left, bottom, right = region.box
    picture = overlay(region.image, region.heat)
    return cv2.rectangle(picture, (left, top), (right - 1, bottom - 1), (255, 255, 255), max(1, len(picture) // 110))


def _caption(region: Region, classes: Sequence[str]) -> str:
    right = "" if region.predicted == region.label else f", seen as {classes[region.predicted]}"
    return f"{region.source_id}{right}: {region.share:.0%} of the heat outside the object"
