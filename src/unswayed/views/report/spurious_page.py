"""The gallery of what a model looks at outside the object: one row per cluster, with a field for its name."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from .figures_sensitivity import overlay, picture_sheet
from .markup import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unswayed.evaluation.spurious import Region


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
