"""The visitor's photograph as the subject of a search, a sweep or a fragility profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unswayed.edits import Edit
from unswayed.errors import UserError
from unswayed.evaluation.fragility import subject_of
from unswayed.evaluation.smallest import Subject
from unswayed.rendering.photograph import render_chain
from unswayed.scene import frame

from .photographs import Photograph
from .preview import framed, needs_network, request_of
from .studio import Studio


def subject(
    studio: Studio,
    photograph: Photograph,
    chain: tuple[Edit, ...] = (),
    *,
    seed: int = 0,
    steps: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> Subject:
    """Return the photograph as a subject.

    chain: the edits that stay switched on; steps: of diffusion, None for the paste preview; check: called before each
    picture and each pass of the network; what it raises ends the search.
    """
    if steps is None and any(map(needs_network, chain)):
        raise UserError("the background needs a network and cannot be pasted", allowed="a search with diffusion")
    scene, request = photograph.scene, request_of((), photograph, seed, steps)
    pasted = None if steps is not None else subject_of(request, scene)

    def make(edits: tuple[Edit, ...]) -> np.ndarray:
        check()
        if not edits:
            return framed(photograph)
        if pasted is not None:
            return pasted.make(edits)
        asked = replace(request, chain=edits)
        return studio.rendered(asked, lambda one: render_chain(asked, scene, one)[2].image, lambda *_: check())

    return Subject(make, frame(scene).pixel_rate)
