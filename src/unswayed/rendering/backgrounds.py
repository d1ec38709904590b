"""Background references resolved to pictures of the output size; each scene's object is removed only once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path

import cv2
import numpy as np

from unswayed.edits.composition import Composition, Original, PictureReference, Pool, Removed
from unswayed.edits.geometry import resized
from unswayed.edits.layers import drawn_picture
from unswayed.files.whole import write_bytes

from .removal import Removal


class Backgrounds:
    """Resolves references to (size, size, 3) uint8.

    pool: provides other scenes; remove: see rendering/removal; cache: a folder that keeps removals as PNG, so that
    the workers of one build share them; held: the number of pictures kept in memory.
    """

    def __init__(
        self, pool: Pool, remove: Removal, size: int = 256, cache: str | Path | None = None, held: int = 32
    ) -> None:
        self.pool, self.remove, self.size, self.held = pool, remove, size, held
        self.cache = Path(cache) if cache is not None else None
        self._pictures: OrderedDict[PictureReference, np.ndarray] = OrderedDict()

    def resolve(self, reference: PictureReference, composition: Composition) -> np.ndarray:
        """The picture that a reference of this composition means; callers must not write to it."""
        if isinstance(reference, Original):
            return resized(composition.image, self.size)
        if reference not in self._pictures:
            if isinstance(reference, Removed):
                self._pictures[reference] = self._removed(reference, composition)
            else:
                self._pictures[reference] = drawn_picture(reference, self.size)
            if len(self._pictures) > self.held:
                self._pictures.popitem(last=False)
        self._pictures.move_to_end(reference)
        return self._pictures[reference]

    def _removed(self, reference: Removed, composition: Composition) -> np.ndarray:
        own = reference.scene_id == composition.scene_id
        scene = composition if own else self.pool.load(reference.scene_id)
        image, mask = resized(scene.image, self.size), resized(scene.mask, self.size)
        # The scene's own seed, so that a removal does not depend on the edit or worker that requests it first.
        name = getattr(self.remove, "name", type(self.remove).__name__)
        drawn_by = f"{reference.scene_id}#{reference.fill}" if reference.fill else reference.scene_id
        return removed_object(image, mask, drawn_by, scene.label, self.remove, self.cache, str(name))


def removed_object(
    image: np.ndarray,
    mask: np.ndarray,
    drawn_by: str,
    label: int | None,
    remove: Removal,
    cache: Path | None,
    name: str = "",
) -> np.ndarray:
    """The image without its object; kept as PNG in the folder `cache`, if it is given.

    drawn_by: the scene, and which of its fills, from which the seed follows. name: of the removal method, so that
    several may share a cache.
    """
    of_fill = drawn_by.partition("#")[2].encode()
    content = hashlib.blake2b(image.tobytes() + mask.tobytes() + name.encode() + of_fill, digest_size=16).hexdigest()
    path = None if cache is None else cache / f"{content}.png"
    if path is not None and path.is_file():
        kept = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
        if kept is not None and kept.shape == image.shape:
            return kept
    seed = int.from_bytes(hashlib.blake2b(drawn_by.encode(), digest_size=8).digest(), "little") >> 1
    removed = remove(image, mask, seed, label)
    if path is not None:
        write_bytes(path, cv2.imencode(".png", removed[..., ::-1])[1].tobytes())
    return removed
