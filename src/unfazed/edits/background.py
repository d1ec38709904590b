"""Background: what lies behind the object, regenerated, simplified, complicated, attacked or replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from unfazed.errors import UserError

from .composition import Composition, Guidance, Impossible, Picture, Pool, Removed, Texture
from .parameters import Choice, Range, Text, check, parameter
from .textures import TEXTURES

GENERATED = ("inversion", "simple", "complex", "adversarial")
KINDS = (*GENERATED, "random", "picture", *TEXTURES)
STRENGTHS = {"simple": -20.0, "complex": 20.0, "adversarial": 20.0}


@dataclass(frozen=True)
class Background:
    """The object as it is, before another background.

    inversion regenerates the photograph's own background (the control); simple and complex push it to a smoother or
    busier one; adversarial pushes it against a classifier; random borrows another scene's, picture a file's; the
    other kinds are patterns drawn by code.
    """

    name: ClassVar[str] = "background"
    axis: ClassVar[str] = "strength"

    kind: str = parameter("random", Choice(KINDS), "which background")
    strength: float | None = parameter(
        None, Range(-200.0, 200.0), "λ of the guidance: below 0 simple (-20), above 0 complex (20) or adversarial (20)"
    )
    picture: str | None = parameter(None, Text("the path of a picture file"), "the file of kind picture")
    band: str = parameter("all", Choice(("all", "high")), "frequencies that simple and complex act on")
    start: float | None = parameter(
        None,
        Range(0.0, 1.0),
        "share of the noise schedule at which blending starts (0.5; 0.25 for pictures and patterns)",
    )

    def __post_init__(self) -> None:
        if self.kind == "inversion" and self.strength:
            # A bare number is a strength: its sign says which kind is meant.
            object.__setattr__(self, "kind", "simple" if float(self.strength) < 0 else "complex")
        if self.strength is None and self.kind in STRENGTHS:
            object.__setattr__(self, "strength", STRENGTHS[self.kind])
        if self.start is None:
            object.__setattr__(self, "start", 0.5 if self.kind in (*GENERATED, "random") else 0.25)
        check(self)
        if self.kind not in STRENGTHS and self.strength:
            raise UserError(
                f"background {self.kind} has no strength, {self.strength:g} was given", allowed=", ".join(STRENGTHS)
            )
        if self.kind in STRENGTHS and (self.strength or 0) * STRENGTHS[self.kind] <= 0:
            sign = "below" if STRENGTHS[self.kind] < 0 else "above"
            raise UserError(
                f"background {self.kind} has the strength {self.strength:g}", allowed=f"a strength {sign} 0"
            )
        if (self.kind == "picture") != (self.picture is not None):
            raise UserError(
                f"background {self.kind} with the picture {self.picture}", allowed="kind picture and a file"
            )

    @classmethod
    def parse(cls, text: str, **others: object) -> Background:
        """A kind, a strength (its sign says simple or complex, 0 is inversion), or a picture file."""
        if text in KINDS:
            return cls(kind=text, **others)  # type: ignore[arg-type]
        try:
            strength = float(text)
        except ValueError:
            pass
        else:
            return cls(**{"kind": "inversion", "strength": strength, **others})  # type: ignore[arg-type]
        if not Path(text).is_file():
            allowed = f"{', '.join(KINDS)}, a strength, or a picture file that is there"
            raise UserError(f"there is no background '{text}'", allowed=allowed, run="unfazed edits")
        return cls(kind="picture", picture=text, **others)  # type: ignore[arg-type]

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        changed = replace(
            composition,
            start=max(composition.start, self.start or 0.0),
            requested={**composition.requested, "background": self.kind},
        )
        if self.kind in GENERATED:
            if self.kind == "adversarial" and composition.label is None:
                raise Impossible("background adversarial needs the true label, this scene has none")
            return replace(changed, guidance=self._guidance(), needs_network=_REASONS[self.kind])
        if self.kind == "random":
            other = pool.other(composition.scene_id, rng)
            if other is None:
                raise Impossible("background random needs another scene in the source, there is none")
            return replace(changed, background=Removed(other), requested={**changed.requested, "from": other})
        if self.kind == "picture":
            return replace(changed, background=Picture(str(self.picture)))
        return replace(changed, background=Texture(self.kind, int(rng.integers(2**31))))

    def _guidance(self) -> Guidance | None:
        if self.kind == "inversion":
            return None
        kind = "adversarial" if self.kind == "adversarial" else "complexity"
        return Guidance(kind, float(self.strength or 0.0), self.band)


_REASONS = {
    "inversion": "background inversion regenerates the background with a diffusion network",
    "simple": "background simple guides a diffusion network",
    "complex": "background complex guides a diffusion network",
    "adversarial": "background adversarial guides a diffusion network against a classifier",
}
