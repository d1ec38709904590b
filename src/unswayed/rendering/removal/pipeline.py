"""Object removal by a pipeline of diffusers: in-painting draws the hole, an instruction asks for it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from unswayed.errors import BadPicture
from unswayed.files.whole import canonical

from ..editors.folders import IN_PAINTING
from ..editors.pipelines import Asked, call_of, open_pipeline, parse
from ..layers import Refused
from . import hole_of

PROMPTS = {True: "the background alone, an empty place", False: "Remove the object. Keep the background as it is."}


class PipelineRemoval:
    """A callable (image (S, S, 3) uint8, mask (S, S), seed, label) -> (S, S, 3) uint8, changed only in the hole."""

    def __init__(self, detail: str = "", device: str | None = None) -> None:
        """detail: `NAME_OR_FOLDER?option=value`; `prompt=` is what is asked for in place of the object."""
        spec = parse(detail, "prompt")
        self.pipeline = open_pipeline(spec, device, None)
        self.call = call_of(self.pipeline, spec, None)
        self.prompt = spec.options.get("prompt", PROMPTS[self.pipeline.kind == IN_PAINTING])
        facts = self.pipeline.facts
        decisive = hashlib.sha256(canonical([facts, vars(self.call), self.prompt]).encode()).hexdigest()
        self.name = f"diffusers-{facts['class']}-{decisive[:12]}"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        return self.remove([image], [mask], [seed])[0]

    def remove(
        self, images: Sequence[np.ndarray], masks: Sequence[np.ndarray], seeds: Sequence[int]
    ) -> list[np.ndarray]:
        """Several pictures of one size; one that is given more than once is made once."""
        made: dict[tuple[int, int], np.ndarray] = {}
        for image, mask, seed in zip(images, masks, seeds, strict=True):
            if (id(image), seed) not in made:
                hole = hole_of(mask)
                [drawn] = self.pipeline.draw([Asked(image, hole, self.prompt, None, seed)], self.call)
                if isinstance(drawn, Refused):
                    raise BadPicture(drawn.reason)
                made[id(image), seed] = np.where(hole[..., None], drawn, image)
        return [made[id(image), seed] for image, seed in zip(images, seeds, strict=True)]
