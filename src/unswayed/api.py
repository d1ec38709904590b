"""Functions of `import unswayed` that combine several rooms: `edit` and `remove_object`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from unswayed.choices import Frame, GuidanceName, SamplerName
from unswayed.edits.composition import Impossible
from unswayed.edits.geometry import resized
from unswayed.errors import UnswayedWarning, UserError
from unswayed.labels import imagenet
from unswayed.masks.checks import WARNING
from unswayed.masks.segment import Box
from unswayed.rendering.photograph import EditedPhotograph, EditValue, Request, chain_of, edit_photograph, read_scene
from unswayed.rendering.removal import open_removal
from unswayed.scene import Scene
from unswayed.scene import frame as framed
from unswayed.sources.pictures import PictureLike


def edit(
    image: PictureLike | Scene,
    mask: PictureLike | Box | None = None,
    *,
    seed: int = 0,
    renderer: str = "diffusion",
    pixels: int = 256,
    pool: str = Request.pool,
    frame: Frame = "object",
    removal: str = Request.removal,
    label: int | str | None = None,
    network: str | None = None,
    steps: int | None = None,
    sampler: SamplerName | None = None,
    guidance: GuidanceName | None = None,
    guide: str | None = None,
    device: str | None = None,
    feather: float | None = None,
    edits: Mapping[str, EditValue] | None = None,
    **more: EditValue,
) -> EditedPhotograph:
    """Edit one photograph with the edits given by name; the result has an `image`, a `mask` and a record for replay.

    image: a file, a Pillow image, an array (H, W, 3) uint8, or a scene of a source, which has its mask. mask: a file,
    image or array of the same size, white is the object; or a box (x, y, width, height) in the picture around the
    object, from which a mask is made; None assumes that the object is in the middle. A mask that looks wrong, such as
    an inverted one, raises an `UnswayedWarning`, which also stands in the result's `notes`.
    more: any edit of `unswayed edits` or of an installed package: `size=0.05`, `background="random"`, a picture file or
    words (`"a beach at sunset"`, with a renderer `diffusers:NAME_OR_FOLDER`), `position=(0, 1)`,
    `lighting={"stops": -2, "where": "both"}`. They are applied in the edits' own order. An
    edit whose name is also that of a keyword is given in `edits={"frame": 3}`.

    seed: the random seed. renderer: `paste` needs no network. pixels: width and height of the result.
    pool: the source that random backgrounds and occluders come from. frame, removal, network, steps, sampler,
    guidance, guide, device and feather are those of `unswayed edit`; label: the true class, for an adversarial
    background.

    >>> from unswayed.sources import open_source
    >>> small = edit(open_source("sample")["dog"], size=0.05, background="random", seed=3, renderer="paste")
    >>> small.image.size, small.parameters["size"]["rate"]
    ((256, 256), 0.05)
    """
    request = Request(
        chain_of({**more, **(edits or {})}), renderer=renderer, network=network, steps=steps, sampler=sampler,
        guidance=guidance, guide=guide, device=device, feather=feather, removal=removal, frame=frame, size=pixels,
        seed=seed, pool=pool, label=imagenet().index(label) if isinstance(label, str) else label,
    )  # fmt: skip
    scene = _told(read_scene(image, mask))
    return edit_photograph(request, scene, Path(image) if isinstance(image, str | Path) else None)


def remove_object(
    image: PictureLike | Scene,
    mask: PictureLike | Box | None = None,
    *,
    method: str = "diffusion",
    seed: int = 0,
    pixels: int = 256,
    frame: Frame = "object",
    device: str | None = None,
) -> Image.Image:
    """Return the photograph without its object, framed to a square of `pixels` by `pixels`, RGB.

    image, mask, frame and pixels: as for `edit`. method: as `--removal` of `unswayed build`. device: for the methods
    that run a network.
    """
    scene = framed(_told(read_scene(image, mask)), frame)
    try:
        picture, hole = resized(scene.image, pixels), resized(scene.mask, pixels)
        return Image.fromarray(open_removal(method, device)(picture, hole, seed, scene.label))
    except Impossible as impossible:
        raise UserError(f"the object cannot be removed from {scene.id}: {impossible}") from None


def _told(scene: Scene) -> Scene:
    """Return the scene after a Python warning for each thing that looks wrong about its mask."""
    for note in scene.notes:
        if note.startswith(WARNING):
            warnings.warn(f"{scene.id}: {note.removeprefix(WARNING)}", UnswayedWarning, stacklevel=3)
    return scene
