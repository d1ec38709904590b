"""Sources of scenes: `open_source("sample")`, `open_source("folder:PATH")`, …, from the table `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from unswayed.errors import UserError
from unswayed.registry import Part, Registry
from unswayed.specs import Spec

from .source import Entry, Source

__all__ = ["SOURCES", "Entry", "Source", "Spec", "is_combined", "list_sources", "open_source"]


def _part(
    opener: str,
    summary: str,
    usage: str = "",
    uses_network: bool = False,
    needs: tuple[str, ...] = (),
    **facts: bool | str,
) -> Part:
    return Part(f"{__name__}.{opener}", summary, usage, needs, uses_network=uses_network, facts=facts)


# Facts: `has_masks`: whether its pictures can be edited; `combined`: no single file shows a scene; `license`: of all of
# its photographs, as their publisher states it.
_TERMS = "ImageNet's terms: research only, not passed on"
_CUTOUTS = "objects with an alpha channel over a background"
_COCO = "the objects of a COCO annotation file"
_IMAGENET_S = "ImageNet-S with 50, 300 or 919 classes"
_IMAGES = "labeled pictures without masks, to be classified and not edited"
_PETS, _VOC = "Oxford-IIIT Pet, 37 breeds of cats and dogs", "the segmented objects of PASCAL VOC"
SOURCES: Registry[Callable[[Spec], Source]] = Registry(
    "source",
    {
        "sample": _part("sample:open_sample", "the 20 photographs of animals that come with the package"),
        "folder": _part("folder:open_folder", "photographs with masks, in class folders or a table", "folder:PATH"),
        "images": _part("folder:open_images", _IMAGES, "images:PATH", has_masks=False),
        "imagenet-s": _part("imagenet_s:open_imagenet_s", _IMAGENET_S, "imagenet-s:PATH", license=_TERMS),
        "cutouts": _part("cutouts:open_cutouts", _CUTOUTS, "cutouts:PATH", combined=True),
        "coco": _part("coco:open_coco", _COCO, "coco:ANNOTATIONS", needs=("pycocotools",)),
        "rival10": _part(
            "rival10:open_rival10", "RIVAL10, with the masks of its attributes", "rival10:PATH", license=_TERMS
        ),
        "oxford-pet": _part(
            "torchvision_sets:open_oxford_pet", _PETS, "oxford-pet:PATH", uses_network=True, license="CC-BY-SA-4.0"
        ),
        "voc": _part("torchvision_sets:open_voc", _VOC, "voc:PATH", uses_network=True),
    },
)


def open_source(spec: str, limit: int | None = None, classes: str | Sequence[int | str] | None = None) -> Source:
    """The scenes that `spec` names, listed but not decoded.

    >>> open_source("sample", limit=2).ids
    ('bison', 'cat')
    """
    parsed = Spec.parse(spec)
    if parsed.kind not in SOURCES and Path(parsed.text).expanduser().exists():
        kinds = ["coco"] if parsed.text.endswith(".json") else ["folder", "images"]
        listed = ", ".join(f"{kind}:{parsed.text}" for kind in kinds)
        raise UserError(f"'{parsed.text}' is a path, not a source", allowed=f"{listed}, …")
    source = SOURCES.load(parsed.kind)(parsed)
    if not len(source):
        raise UserError(f"'{spec}' holds no pictures")
    return source.select(limit, classes)


def is_combined(source: Source) -> bool:
    """Whether the scenes are combined from several files, so that no single file shows one."""
    kind = Spec.parse(source.spec).kind
    return kind in SOURCES and bool(SOURCES.part(kind).facts.get("combined"))


def list_sources() -> list[str]:
    """How every source of scenes is written, those of other installed packages included.

    >>> list_sources()[:2]
    ['sample', 'folder:PATH']
    """
    return SOURCES.usages()
