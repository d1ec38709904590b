"""`BuildSettings` and `ImportSettings`: everything about a benchmark besides where it comes from and its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from unswayed.choices import Option, Quality, check_choice
from unswayed.errors import UserError
from unswayed.jobs import EngineSettings
from unswayed.rendering.settings import RenderSettings, check_range

if TYPE_CHECKING:
    from unswayed.edits.recipes import Recipe


@dataclass(frozen=True, kw_only=True)
class BuildSettings(EngineSettings, RenderSettings):
    """What is built and how, in addition to `RenderSettings` and `EngineSettings`.

    recipe: also an opened `Recipe`. sample, per_class: drawn by the seed. batch_size and workers do not change the
    pictures, nor do the engine's settings. quality: `strict` makes an invalid picture again with another seed, up to
    `tries` times, and then leaves it out; `off` measures nothing.
    """

    recipe: Annotated[
        str | Recipe, Option("A name, edits (`original,size-0.05`), a sweep (`size=0.02:0.5:12`) or a TOML file.")
    ] = "imagenet-e"
    runs: Annotated[int, Option("How many times each edit with a random choice is repeated.")] = 1
    fills: Annotated[
        int,
        Option("How many different fills of the object's old place the edits that move or resize it are made over."),
    ] = 1
    whole_objects: Annotated[bool, Option("Leave out scenes whose object is cut off by the photograph's border.")] = (
        False
    )
    limit: Annotated[int | None, Option("Only the first N scenes.")] = None
    sample: Annotated[int | None, Option("N random scenes, evenly over the classes.", metavar="N")] = None
    per_class: Annotated[int | None, Option("N random scenes of each class.", metavar="N")] = None
    classes: Annotated[
        str | Sequence[int | str] | None,
        Option("Only these classes: `imagenet-e`, or names, WNIDs or indices separated by commas."),
    ] = None
    batch_size: Annotated[int | None, Option("Pictures rendered at once; no effect on them.")] = None
    workers: Annotated[int | None, Option("Worker processes; no effect on the pictures.")] = None
    quality: Annotated[
        Quality, Option("`report` measures every picture's validity, `strict` also makes invalid ones again.")
    ] = "report"
    agreement: Annotated[
        str | None,
        Option(
            "A CLIP-like model, such as `open_clip:ViT-B-32/openai`, that measures whether pictures show the words "
            "that they were drawn from [default: not measured].",
            metavar="MODEL",
        ),
    ] = None
    tries: Annotated[
        int, Option("With `--quality strict`: how many new seeds to try before leaving a picture out.")
    ] = 3

    def __post_init__(self) -> None:
        RenderSettings.__post_init__(self)
        EngineSettings.__post_init__(self)
        check_range("runs", self.runs, 1, 1000)
        check_range("fills", self.fills, 1, 100)
        check_choice("quality", self.quality, Quality)
        check_range("tries", self.tries, 0, 100)
        for name, number in (("batch size", self.batch_size), ("number of workers", self.workers)):
            if number is not None and number < 1:
                raise UserError(f"the {name} is {number}", allowed="1 or more")


@dataclass(frozen=True, kw_only=True)
class ImportSettings:
    """How a published dataset becomes a benchmark.

    labels: the labels file; classes: a text file with one class name per line, if they are not ImageNet's; original:
    the folder of unedited pictures. copy: pictures are copied instead of linked.
    """

    labels: Annotated[
        Path | str | None, Option("Lines of `name<TAB>class` [default: labels.txt in the dataset, or its shards].")
    ] = None
    classes: Annotated[
        Path | str | None, Option("A text file with one class name per line, if the classes are not ImageNet's.")
    ] = None
    original: Annotated[str | None, Option("The folder of unedited pictures [default: `ori` or `original`].")] = None
    copy: Annotated[bool, Option("Copy the pictures instead of linking to them.", flags=("--copy",))] = False
    workers: Annotated[int, Option("Number of threads that read and hash files.")] = 4


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What a FiftyOne dataset shows besides the pictures: predictions, with the flips as a saved view."""

    predictions: Annotated[
        Path | str | None, Option("Also show these predictions (`fiftyone` only).", flags=("-p", "--predictions"))
    ] = None
    overwrite: Annotated[bool, Option("Replace a FiftyOne dataset of the same name.", flags=("--overwrite",))] = False
