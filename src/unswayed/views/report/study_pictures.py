"""The pictures of a sensitivity study: galleries of what models look at outside the object, and sheets of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unswayed.files.whole import read_json, write_bytes

from .figures_factors import figure_bytes
from .figures_sensitivity import outlined, overlay, picture_sheet
from .spurious_page import spurious_page, spurious_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
