"""`BuildSettings` and `ImportSettings`: everything about a benchmark besides where it comes from and its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unswayed.choices import Quality, option
from unswayed.jobs import EngineSettings
from unswayed.rendering.settings import RenderSettings

if TYPE_CHECKING:
    from unswayed.edits.recipes import Recipe


@dataclass(frozen=True, kw_only=True)
class BuildSettings(EngineSettings, RenderSettings):
    """What is built and how, in addition to `RenderSettings` and `EngineSettings`.

    recipe: also an opened `Recipe`. sample, per_class: drawn by the seed. batch_size and workers do not change the
    pictures, nor do the engine's settings. quality: `strict` makes an invalid picture again with another seed, up to
    `tries` times, and then leaves it out; `off` measures nothing.
    """

    recipe: str | Recipe = option(
        "imagenet-e", "A name, edits (`original,size-0.05`), a sweep (`size=0.02:0.5:12`) or a TOML file."
    )
    runs: int = option(1, "How many times each edit with a random choice is repeated.", least=1, most=1000)
    fills: int = option(
        1,
        "How many different fills of the object's old place the edits that move or resize it are made over.",
        least=1,
        most=100,
    )
    whole_objects: bool = option(False, "Leave out scenes whose object is cut off by the photograph's border.")
    limit: int | None = option(None, "Only the first N scenes.")
    sample: int | None = option(None, "N random scenes, evenly over the classes.", metavar="N")
    per_class: int | None = option(None, "N random scenes of each class.", metavar="N")
    classes: str | Sequence[int | str] | None = option(
        None, "Only these classes: `imagenet-e`, or names, WNIDs or indices separated by commas."
    )
    batch_size: int | None = option(None, "Pictures rendered at once; no effect on them.", least=1)
    workers: int | None = option(None, "Worker processes; no effect on the pictures.", least=1)
    quality: Quality = option(
        "report", "`report` measures every picture's validity, `strict` also makes invalid ones again."
    )
    agreement: str | None = option(
        None,
        "A CLIP-like model, such as `open_clip:ViT-B-32/openai`, that measures whether pictures show the words "
        "that they were drawn from [default: not measured].",
        metavar="MODEL",
    )
    tries: int = option(
        3, "With `--quality strict`: how many new seeds to try before leaving a picture out.", least=0, most=100
    )

    def __post_init__(self) -> None:
        RenderSettings.__post_init__(self)
        EngineSettings.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class ImportSettings:
    """How a published dataset becomes a benchmark.

    labels: the labels file; classes: a text file with one class name per line, if they are not ImageNet's; original:
    the folder of unedited pictures. copy: pictures are copied instead of linked.
    """

    labels: Path | str | None = option(
        None, "Lines of `name<TAB>class` [default: labels.txt in the dataset, or its shards]."
    )
    classes: Path | str | None = option(
        None, "A text file with one class name per line, if the classes are not ImageNet's."
    )
    original: str | None = option(None, "The folder of unedited pictures [default: `ori` or `original`].")
    copy: bool = option(False, "Copy the pictures instead of linking to them.", flags=("--copy",))
    workers: int = option(4, "Number of threads that read and hash files.")


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What a FiftyOne dataset shows besides the pictures: predictions, with the flips as a saved view."""

    predictions: Path | str | None = option(
        None, "Also show these predictions (`fiftyone` only).", flags=("-p", "--predictions")
    )
    overwrite: bool = option(False, "Replace a FiftyOne dataset of the same name.", flags=("--overwrite",))
