"""Sources of scenes: `open_source("sample")`, `open_source("folder:PATH")`, …, from the table `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from unswayed.errors import UserError
from unswayed.registry import Part, Registry
from unswayed.specs import Spec

from .source import Entry, Source

__all__ = ["SOURCES", "Entry", "Source", "Spec", "list_sources", "open_source"]

SOURCES: Registry[Callable[[Spec], Source]] = Registry(
    "source",
    {
        "sample": Part(f"{__name__}.sample:open_sample", "the 20 photographs of animals that come with the package"),
        "folder": Part(
            f"{__name__}.folder:open_folder", "photographs with masks, in class folders or a table", "folder:PATH"
        ),
        "images": Part(
            f"{__name__}.folder:open_images",
            "labeled pictures without masks, to be classified and not edited",
            "images:PATH",
            facts={"has_masks": False},
        ),
        "imagenet-s": Part(
            f"{__name__}.imagenet_s:open_imagenet_s", "ImageNet-S with 50, 300 or 919 classes", "imagenet-s:PATH"
        ),
        "cutouts": Part(
            f"{__name__}.cutouts:open_cutouts", "objects with an alpha channel over a background", "cutouts:PATH"
        ),
        "coco": Part(f"{__name__}.coco:open_coco", "the objects of a COCO annotation file", "coco:ANNOTATIONS"),
        "rival10": Part(
            f"{__name__}.rival10:open_rival10", "RIVAL10, with the masks of its attributes", "rival10:PATH"
        ),
        "oxford-pet": Part(
            f"{__name__}.torchvision_sets:open_oxford_pet",
            "Oxford-IIIT Pet, 37 breeds of cats and dogs",
            "oxford-pet:PATH",
            uses_network=True,
        ),
        "voc": Part(
            f"{__name__}.torchvision_sets:open_voc",
            "the segmented objects of PASCAL VOC",
            "voc:PATH",
            uses_network=True,
        ),
    },
)


def open_source(spec: str, limit: int | None = None, classes: str | Sequence[int | str] | None = None) -> Source:
    """The scenes that `spec` names, listed but not decoded.

    >>> open_source("sample", limit=2).ids
    ('bison', 'cat')
    """
    parsed = Spec.parse(spec)
    if parsed.kind not in SOURCES and Path(parsed.text).expanduser().exists():
        raise UserError(
            f"'{parsed.text}' is a path, not a source", allowed=f"folder:{parsed.text}, images:{parsed.text}, …"
        )
    source = SOURCES.load(parsed.kind)(parsed)
    if not len(source):
        raise UserError(f"'{spec}' holds no pictures")
    return source.select(limit, classes)


def list_sources() -> list[str]:
    """How every source of scenes is written, those of other installed packages included.

    >>> list_sources()[:2]
    ['sample', 'folder:PATH']
    """
    return SOURCES.usages()
