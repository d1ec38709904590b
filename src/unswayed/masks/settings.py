"""`MaskSettings`: how masks are made."""

from __future__ import annotations

from dataclasses import dataclass

from unswayed.choices import Option, option
from unswayed.errors import UserError
from unswayed.jobs import EngineSettings

from . import SEGMENTERS, Box


def parse_box(text: str) -> Box:
    """A box from `X,Y,W,H`.

    >>> parse_box("10,20,100,80")
    (10, 20, 100, 80)
    """
    try:
        x, y, wide, high = (int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"the box is '{text}'", allowed="X,Y,W,H in integer pixels, such as 10,20,100,80") from None
    if wide < 1 or high < 1:
        raise UserError(f"the box '{text}' has no area", allowed="X,Y,W,H with W and H of at least 1")
    return x, y, wide, high


BOX = Option("A box around the object, from which a mask is made.", metavar="X,Y,W,H", read=parse_box)


@dataclass(frozen=True, kw_only=True)
class MaskSettings(EngineSettings):
    """How the masks of a folder of photographs are made. box: (x, y, width, height) of the object in pixels, for every
    photograph. model: chooses between candidate masks, as the classifier of the class `label`."""

    segmenter: str = option("auto", "The method: {values}.", values=SEGMENTERS.usages)
    box: tuple[int, int, int, int] | None = option(
        None, "A box around the object, in pixels, for every photograph.", metavar="X,Y,W,H", read=parse_box
    )
    model: str | None = option(
        None, "Choose between candidate masks by this classifier (see --label).", flags=("-m", "--model")
    )
    label: str | None = option(None, "The object's class [default: the name of the photograph's folder].")
    workers: int | None = option(
        None, "Worker processes [default: one per core, but not more than one for 16 photographs].", least=1
    )
    sheet: bool = option(True, "Write a contact sheet of the least trusted masks.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model is None and self.label is not None:
            raise UserError("--label needs a classifier", allowed="-m MODEL --label CLASS")
        if self.model is None and self.device is not None:
            raise UserError(f"--device {self.device} needs a classifier: masks are made on CPUs", allowed="-m MODEL")
