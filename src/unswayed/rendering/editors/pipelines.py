"""An open pipeline of diffusers: how it is loaded, held in memory and called for one picture or several."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
import torch
from PIL import Image

from unswayed.edits.geometry import resized
from unswayed.errors import UserError, first_line, need
from unswayed.files.whole import sha256
from unswayed.jobs import choose_device
from unswayed.jobs.resources import is_out_of_memory
from unswayed.specs import Spec

from ..layers import Refusal
from ..networks.loading import PRECISIONS
from .folders import decoder_width, editor_of, elements_of, facts_of, folder_of, stated_side, weight_files
from .memory import OFFLOADS, Holding, fitting, hold, holdings

# The options that decide what is loaded; the others decide how it is called.
LOADING = ("lora", "scheduler", "size", "offload", "tiling", "batch")
CALLING = ("steps", "guidance_scale", "strength", "negative")
T = TypeVar("T")


def parse(detail: str, *more: str) -> Spec:
    """The names and options in `NAME?option=value`; more: options besides those of loading and calling."""
    spec = Spec.parse(f"diffusers:{detail}")
    spec.check_options(*LOADING, *CALLING, *more)
    if not spec.name:
        raise UserError("the pipeline has no name", allowed="diffusers:NAME_OR_FOLDER", run="unswayed weights")
    return spec


@dataclass(frozen=True, eq=False)
class EditRequest:
    """A picture to be edited: image (H, W, 3) uint8; redrawn: (H, W) bool, what in-painting draws anew."""

    image: np.ndarray
    redrawn: np.ndarray
    prompt: str
    negative: str | None
    seed: int


@dataclass(frozen=True)
class Call:
    """How a pipeline is called; guidance_scale: None leaves it to the pipeline."""

    steps: int
    guidance_scale: float | None
    strength: float
    negative: str | None = None


@dataclass(eq=False)
class Pipeline:
    """An open pipeline. side: of the pictures that it makes; ways: how it may be held, the first is how it is.

    batch: pictures at once, always the same number, so that none depends on how many there are; facts: for the card.
    """

    pipe: Any
    kind: str
    name: str
    side: int
    batch: int
    device: torch.device
    ways: list[Holding]
    facts: dict[str, Any]

    def __post_init__(self) -> None:
        self.accepts = dict(inspect.signature(type(self.pipe).__call__).parameters)

    def usual(self, parameter: str) -> Any:
        """The pipeline's own value of a parameter; None if it does not have it."""
        declared = self.accepts.get(parameter)
        return None if declared is None or declared.default is inspect.Parameter.empty else declared.default

    @property
    def scale(self) -> str | None:
        """What the pipeline calls the strength of its guidance by the prompt."""
        if self.usual("guidance_scale") is None and "true_cfg_scale" in self.accepts:
            return "true_cfg_scale"
        return "guidance_scale" if "guidance_scale" in self.accepts else None

    def draw(
        self, asked: Sequence[EditRequest], call: Call, on_step: Callable[[int], None] | None = None
    ) -> list[np.ndarray | Refusal]:
        """The edited pictures (H, W, 3) uint8, each of the size of its input, or why there is none."""
        answers: list[np.ndarray | Refusal] = []
        for first in range(0, len(asked), self.batch):
            group = list(asked[first : first + self.batch])
            padded = [*group, *[group[-1]] * (self.batch - len(group))]
            made, flagged = self.run(padded, call, on_step)
            answers += [self._answer(*each) for each in zip(group, made, flagged, strict=False)]
        return answers

    def run(
        self, group: list[EditRequest], call: Call, on_step: Callable[[int], None] | None = None
    ) -> tuple[np.ndarray, list[bool]]:
        """The pictures of a full batch, (N, side, side, 3) float32 in [0, 1], and whether a safety checker rejected
        them."""
        with _quiet():
            made = self.fitted(lambda: self.pipe(**self._arguments(group, call, on_step)))
        pictures = np.asarray(made.images if hasattr(made, "images") else made[0], np.float32)
        return pictures, list(getattr(made, "nsfw_content_detected", None) or [False] * len(pictures))

    def fitted(self, work: Callable[[], T]) -> T:
        """What `work` returns, which begins again in the next way to hold the pipeline whenever memory runs out."""
        while True:
            try:
                return work()
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            # Outside the handler, whose traceback holds the tensors of the failed run.
            self.step_down()

    def step_down(self) -> None:
        """Hold the pipeline in the next way that makes the same pictures in less memory; UserError if there is none."""
        now = self.ways[0]
        less = [w for w in self.ways[1:] if (w.precision, w.tiling) == (now.precision, now.tiling)]
        if not less:
            raise UserError(
                f"out of memory on {self.device} with {self.name} ({now.precision}, offload {now.offload}, batch "
                f"{self.batch})",
                allowed="?tiling=yes, ?size= with fewer pixels, or a device with more free memory",
                run="nvidia-smi" if self.device.type == "cuda" else "free -h",
            )
        self.ways = less
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        hold(self.pipe, less[0], self.device)

    def _arguments(self, group: list[EditRequest], call: Call, on_step: Callable[[int], None] | None) -> dict[str, Any]:
        def told(pipe: Any, step: int, timestep: Any, kept: dict[str, Any]) -> dict[str, Any]:
            if on_step is not None:
                on_step(len(group))
            return kept

        several = (lambda values: values[0]) if len(group) == 1 else list
        side, scale = self.side, self.scale
        negatives = [asked.negative or call.negative for asked in group]
        if not any(negatives) and (self.usual("true_cfg_scale") or 1) > 1:
            negatives = [" "] * len(group)  # without one such a pipeline does without guidance
        # A generator on the CPU draws the same noise for every device, and one a picture does so for every batch.
        given = {
            "image": several([Image.fromarray(resized(asked.image, side, cv2.INTER_CUBIC)) for asked in group]),
            "mask_image": several([Image.fromarray(_mask(asked.redrawn, side)) for asked in group]),
            "prompt": several([asked.prompt for asked in group]),
            "generator": several([torch.Generator().manual_seed(asked.seed) for asked in group]),
            "num_inference_steps": call.steps,
            "strength": call.strength,
            "height": side,
            "width": side,
            "max_area": side * side,
            "_auto_resize": False,
            "output_type": "np",
            "callback_on_step_end": told,
        }
        if any(negatives):
            given["negative_prompt"] = several([negative or "" for negative in negatives])
        if scale is not None and call.guidance_scale is not None:
            given[scale] = call.guidance_scale
        return {name: value for name, value in given.items() if name in self.accepts}

    def _answer(self, asked: EditRequest, picture: np.ndarray, flagged: bool) -> np.ndarray | Refusal:
        if flagged:
            return Refusal(f"the safety checker of {self.name} rejected the picture and made it black", status="failed")
        if not np.isfinite(picture).all():
            return Refusal(f"{self.name} returned NaN or infinity", status="failed")
        made = np.clip(np.rint(picture * 255), 0, 255).astype(np.uint8)
        return resized(made, asked.image.shape[0], cv2.INTER_CUBIC)


def _mask(redrawn: np.ndarray, side: int) -> np.ndarray:
    """(side, side) uint8: 255 where a pixel is drawn anew, also where only a part of it is."""
    return np.where(resized(redrawn.astype(np.float32), side, cv2.INTER_CUBIC) > 0, 255, 0).astype(np.uint8)


def call_of(pipeline: Pipeline, spec: Spec, steps: int | None) -> Call:
    """How the pipeline is called: its own steps and guidance where nothing else is asked for."""
    steps = steps or spec.number("steps", int, 1, 1000) or int(pipeline.usual("num_inference_steps") or 50)
    own = None if pipeline.scale is None else pipeline.usual(pipeline.scale)
    scale, strength = spec.number("guidance_scale", float, 0, 100, own), spec.number("strength", float, 0.01, 1, 1.0)
    negative = spec.options.get("negative")
    if negative is not None and "negative_prompt" not in pipeline.accepts:
        raise UserError(f"{pipeline.name} takes no negative prompt", allowed="no ?negative=")
    return Call(steps, scale, strength, negative)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A block in which the libraries draw no progress bars, print only errors, and do not warn of what they plan."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        from diffusers.utils import logging as of_diffusers
        from transformers.utils import logging as of_transformers

        before = of_diffusers.get_verbosity(), of_transformers.get_verbosity()
        for each in (of_diffusers, of_transformers):
            each.disable_progress_bar()
            each.set_verbosity_error()
        try:
            yield
        finally:
            for each, level in zip((of_diffusers, of_transformers), before, strict=True):
                each.enable_progress_bar()
                each.set_verbosity(level)


def open_pipeline(spec: Spec, device: str | None, precision: str | None) -> Pipeline:
    """The pipeline of a spec, on its device; of several names (`BIG|SMALL`) the first that fits.

    The last two are kept open, so that a renderer and a removal share one.
    """
    settings = tuple((name, spec.options[name]) for name in LOADING if name in spec.options)
    return _opened(spec.name, settings, str(choose_device(device)), precision)


@functools.lru_cache(maxsize=2)
@_quiet()
def _opened(names: str, settings: tuple[tuple[str, str], ...], device: str, precision: str | None) -> Pipeline:
    spec, target, refused = Spec(f"diffusers:{names}", "diffusers", names, dict(settings)), torch.device(device), []
    offload, tiling = spec.options.get("offload"), spec.options.get("tiling")
    for option, allowed in (("offload", OFFLOADS), ("tiling", ("yes", "no"))):
        if option in spec.options:
            spec.one_of(option, allowed)
    tiled = None if tiling is None else tiling == "yes"
    for name in names.split("|"):
        folder = folder_of(name)
        kind, what = editor_of(folder)
        elements = {part: elements_of(files) for part, files in weight_files(folder).items()}
        side = spec.number("size", int, 16, 4096) or stated_side(folder, kind)
        ways = holdings(elements, side, decoder_width(folder), target, precision, offload, tiled)
        try:
            ways = fitting(ways, name, target)
        except UserError as error:
            refused.append(error)
            continue
        return _loaded(spec, name, folder, kind, what, side, ways, target)
    raise refused[-1]


def _loaded(
    spec: Spec, name: str, folder: Path, kind: Any, what: str, side: int, ways: list[Holding], device: torch.device
) -> Pipeline:
    way = ways[0]
    try:
        pipe = kind.from_pretrained(
            folder, torch_dtype=PRECISIONS[way.precision], local_files_only=True, use_safetensors=True
        )
    except Exception as error:
        raise UserError(f"{folder} cannot be opened as {kind.__name__}: {first_line(error)}") from error
    pipe.set_progress_bar_config(disable=True)
    facts = {"name": name, "class": kind.__name__, "kind": what, **facts_of(folder)}
    if "scheduler" in spec.options:
        _reschedule(pipe, spec.options["scheduler"])
    facts["scheduler"] = type(pipe.scheduler).__name__ if getattr(pipe, "scheduler", None) is not None else None
    if "lora" in spec.options:
        facts["lora"] = _adapt(pipe, spec.options["lora"])
    grid = _grid(pipe)
    if side % grid:
        given = f"the side {side} of {name} is no multiple of {grid}"
        raise UserError(given, allowed=f"?size={side // grid * grid or grid}")
    opened = Pipeline(pipe, what, name, side, spec.number("batch", int, 1, 64, 1), device, ways, facts)
    opened.fitted(lambda: hold(pipe, opened.ways[0], device))
    _check_batch(opened)
    return opened


def _check_batch(pipeline: Pipeline) -> None:
    """Refuse a batch in which a picture depends on its neighbors, as in a pipeline that uses one mask for all."""
    if pipeline.batch == 1:
        return
    left, random = np.tile(np.arange(64) < 32, (64, 1)), np.random.default_rng(0)
    noise, dark = (random.integers(0, level, (64, 64, 3), np.uint8) for level in (255, 20))
    last, other = EditRequest(noise, left, "a photo", None, 1), EditRequest(dark, ~left, "a longer text " * 8, None, 2)
    call = Call(2, None, 1.0)
    try:
        made = [pipeline.run([*[beside] * (pipeline.batch - 1), last], call)[0][-1] for beside in (last, other)]
        same = np.array_equal(*made)
    except (ValueError, RuntimeError, TypeError, IndexError):  # it takes one picture alone
        same = False
    if not same:
        raise UserError(
            f"{pipeline.name} does not draw {pipeline.batch} pictures at once as it draws each of them",
            allowed="?batch=1, which is the default",
        )


def _grid(pipe: Any) -> int:
    """The number of pixels that the side of a picture must be a multiple of."""
    inner = getattr(pipe, "decoder_pipe", pipe)
    factor = getattr(inner, "vae_scale_factor", None) or getattr(inner, "movq_scale_factor", 8) ** 2
    patch = getattr(getattr(getattr(inner, "transformer", None), "config", None), "patch_size", 1)
    processor = getattr(getattr(inner, "image_processor", None), "config", None)
    return math.lcm(factor * (patch if isinstance(patch, int) else 1), getattr(processor, "vae_scale_factor", 1))


def _reschedule(pipe: Any, name: str) -> None:
    inner = getattr(pipe, "decoder_pipe", pipe)
    known = {kind.__name__: kind for kind in (type(inner.scheduler), *inner.scheduler.compatibles)}
    if name not in known:
        raise UserError(f"{type(pipe).__name__} has no scheduler '{name}'", allowed=", ".join(sorted(known)))
    inner.scheduler = known[name].from_config(inner.scheduler.config)
    if inner is not pipe:
        pipe.scheduler = inner.scheduler


def _adapt(pipe: Any, text: str) -> dict[str, Any]:
    """Load a LoRA, `FILE` or `FILE@SCALE`, and return what a card says of it."""
    name, at, scale = text.rpartition("@") if re.search(r"@[\d.]+$", text) else (text, "", "1")
    file = Path(name).expanduser()
    if file.suffix != ".safetensors" or not file.is_file():
        raise UserError(f"the LoRA is '{name}'", allowed="a safetensors file, and @SCALE if it is not 1")
    if not hasattr(pipe, "load_lora_weights"):
        raise UserError(f"{type(pipe).__name__} takes no LoRA", allowed="no ?lora=")
    need("editors", "peft")
    try:
        pipe.load_lora_weights(str(file.parent), weight_name=file.name, adapter_name="given", local_files_only=True)
        pipe.set_adapters(["given"], [float(scale)])
    except Exception as error:
        raise UserError(f"{file} is no LoRA of {type(pipe).__name__}: {first_line(error)}") from error
    return {"name": file.name, "sha256": sha256(file), "scale": float(scale)}
