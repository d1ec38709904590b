"""The gallery of what a model looks at beside the object: a row of regions a cluster, and a slot for its name."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from .figures_sensitivity import overlay, picture_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unfazed.probes.spurious import Region

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222; }
section { border-top: 1px solid #ccc; padding: .8rem 0; }
.row { display: flex; gap: .6rem; flex-wrap: wrap; }
figure { margin: 0; width: 10.5rem; } figure img { width: 100%; display: block; border-radius: 4px; }
figcaption { font-size: .8rem; color: #555; }
input { font: inherit; padding: .2rem .5rem; width: 22rem; max-width: 100%; }
"""
_SCRIPT = """
document.getElementById("save").addEventListener("click", () => {
  const names = {};
  for (const slot of document.querySelectorAll("input[data-cluster]")) names[slot.dataset.cluster] = slot.value;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(names, null, 1)], { type: "application/json" }));
  link.download = "names.json";
  link.click();
});
"""


def spurious_page(
    regions: Sequence[Region], model: str, classes: Sequence[str], names: Mapping[str, str] | None = None
) -> str:
    """One self-contained HTML page: a section a cluster with its pictures and a field for the name a person gives it.

    names: cluster number -> name, as the page's own button saves them (names.json).
    """
    sections = []
    for number, group in groupby(regions, key=lambda one: one.cluster):
        members = list(group)
        title = f"Cluster {number}" if number >= 0 else "Like no other"
        name = html.escape((names or {}).get(str(number), ""), quote=True)
        label = f"Name of cluster {number}"
        slot = f'<p><label>What is it? <input data-cluster="{number}" aria-label="{label}" value="{name}"></label></p>'
        pictures = "".join(_figure(one, classes) for one in members)
        sections.append(
            f"<section><h2>{title} · {len(members)} pictures</h2>{slot if number >= 0 else ''}"
            f'<div class="row">{pictures}</div></section>'
        )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Beside the object: {html.escape(model)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style><h1>What {html.escape(model)} looks at beside the object</h1>"
        "<p>The light shows where the heat map lies off the object; pictures in one cluster have like features there. "
        "Give a cluster a name, save the names beside this page, and the next run shows them.</p>"
        f'<p><button id="save">Save names.json</button></p>{"".join(sections)}<script>{_SCRIPT}</script></html>\n'
    )


def spurious_sheet(
    regions: Sequence[Region], classes: Sequence[str], names: Mapping[str, str] | None = None, most: int = 6
) -> Figure:
    """The same as a picture: a row a cluster, its first `most` regions, the name at the left."""
    rows, titles = [], []
    for number, group in groupby(regions, key=lambda one: one.cluster):
        members = list(group)[:most]
        rows.append(([_shown(one) for one in members], [_caption(one, classes) for one in members]))
        plain = f"cluster {number}" if number >= 0 else "no cluster"
        titles.append((names or {}).get(str(number)) or plain)
    return picture_sheet(rows, titles)


def _figure(region: Region, classes: Sequence[str]) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(_shown(region)).save(buffer, "JPEG", quality=82)
    data = base64.b64encode(buffer.getvalue()).decode()
    text = html.escape(_caption(region, classes), quote=True)
    return f'<figure><img alt="{text}" src="data:image/jpeg;base64,{data}"><figcaption>{text}</figcaption></figure>'


def _shown(region: Region) -> np.ndarray:
    import cv2

    top, left, bottom, right = region.box
    picture = overlay(region.image, region.heat)
    return cv2.rectangle(picture, (left, top), (right - 1, bottom - 1), (255, 255, 255), max(1, len(picture) // 110))


def _caption(region: Region, classes: Sequence[str]) -> str:
    right = "" if region.predicted == region.label else f", seen as {classes[region.predicted]}"
    return f"{region.source_id}{right}: {region.share:.0%} off it"
