"""The renderer that draws what words say with a pipeline of diffusers; the object's pixels are put back exactly.

One picture is drawn at a time unless `?batch=` says otherwise: of some pipelines a batch is not several pictures
(Kandinsky 2.2 uses the mask of the first for all of them, Qwen-Image-Edit pads prompts to the longest), and the
arithmetic of a batch differs in the last bits from that of one picture.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np

from unswayed.edits.layers import Layers, composite, own_colors
from unswayed.errors import UserError, first_line
from unswayed.specs import Spec

from ..layers import Key, NetworkRenderer, Refusal, Rendering
from .folders import IN_PAINTING, INSTRUCTION
from .pipelines import Call, EditRequest, Pipeline, call_of, open_pipeline, parse

# What is asked for by kind of pipeline and what is redrawn. {words}: what the edit says; {class}: the photograph's.
TEMPLATES = {
    (IN_PAINTING, "background"): "{words}",
    (IN_PAINTING, "object"): "{words}",
    (INSTRUCTION, "background"): "Change the background to: {words}. Keep the {class} as it is.",
    (INSTRUCTION, "object"): "Change the {class} to: {words}. Keep the background as it is.",
}
# What describes the photograph as it is, for the control and for the band around a moved object.
CAPTION, AS_IT_IS = "a photo of a {class}", "Keep the picture as it is: {words}."
BAND = 8  # pixels of 256 around an object that is moved, in which it is blended with its new surroundings
PROMPTS = ("caption", "captioner", "template")


@dataclass(eq=False)
class Editor(NetworkRenderer):
    """Pictures by a pipeline that reads words.

    spec: how it was asked for; caption: the template that describes a photograph; captioner: what describes it instead.
    """

    pipeline: Pipeline
    call: Call
    spec: Spec
    caption: str
    captioner: Captioner | None = None

    def stream(
        self, take: Callable[[], tuple[Key, Layers] | None], on_passes: Callable[[int], None] | None = None
    ) -> Iterator[tuple[Key, Rendering | Refusal]]:
        """(key, answer) of each picture that `take` returns with its key, until it returns None: drawn, pasted if
        nothing in it needs a network, or refused with a reason."""
        ended = False
        while not ended:
            group: list[tuple[Key, Layers, EditRequest]] = []
            while len(group) < self.pipeline.batch:
                taken = take()
                if taken is None:
                    ended = True
                    break
                asked = self._asked(taken[1])
                if isinstance(asked, EditRequest):
                    group.append((*taken, asked))
                else:
                    yield taken[0], asked
            drawn = self.pipeline.draw([asked for _, _, asked in group], self.call, on_passes)
            for (key, layers, asked), picture in zip(group, drawn, strict=True):
                yield key, picture if isinstance(picture, Refusal) else self._finished(layers, asked, picture)

    def passes(self, start: float, regenerated: bool = False) -> int:
        """How many steps a picture takes; regenerated: whether more is drawn than a band around the object."""
        drawn = start > 0 and (regenerated or self.pipeline.kind == IN_PAINTING)
        return max(1, int(self.call.steps * self.call.strength)) if drawn else 0

    def describe(self) -> dict[str, Any]:
        """The renderer's entry in benchmark.json."""
        way = self.pipeline.ways[0]
        captioner = None if self.captioner is None else self.captioner.describe()
        return {
            "renderer": self.spec.text,
            "pipeline": self.pipeline.facts,
            **vars(self.call),
            "pixels": self.pipeline.side,
            "caption": captioner or self.caption,
            "batch": self.pipeline.batch,
            "device": self.pipeline.device.type,
            "precision": way.precision,
            "tiling": way.tiling,
            "offload": way.offload,
        }

    def seconds(self, passes: int) -> float:
        """How long so many passes will take, from two short trials on a gray picture."""
        each, step = self._pace
        return passes * step + passes / max(self.call.steps, 1) * each

    @cached_property
    def _pace(self) -> tuple[float, float]:
        """The seconds of a picture beside its steps, and of one step."""
        gray = np.full((64, 64, 3), 128, np.uint8)
        asked = [EditRequest(gray, np.ones((64, 64), bool), "a photo", None, 0)]
        took = []
        for steps in (1, 1, 3):  # the first one includes what is done only once
            began = time.perf_counter()
            self.pipeline.draw(asked, Call(steps, self.call.guidance_scale, 1.0, self.call.negative))
            took.append(time.perf_counter() - began)
        step = max((took[2] - took[1]) / 2, 0.0)
        return max(took[1] - step, 0.0), step

    def _asked(self, layers: Layers) -> EditRequest | Rendering | Refusal:
        """What is asked of the pipeline, or the answer where nothing is."""
        words = layers.words
        if layers.guidance is not None:
            return Refusal(f"{layers.guidance.kind} guidance needs gradients, which {self.pipeline.name} does not give")
        whole = composite(layers.object, layers.alpha, layers.background)
        if not self.passes(*layers.passes_by):
            return Rendering(whole)
        inside = layers.alpha > 0.5
        if words is not None and words.where == "object":
            redrawn = inside
        elif layers.needs_network is not None:
            redrawn = ~inside
        else:
            redrawn = band(inside)
        negative = None if words is None else words.negative
        if negative is not None and "negative_prompt" not in self.pipeline.accepts:
            return Refusal(f"{self.pipeline.name} takes no negative prompt")
        return EditRequest(whole, redrawn, self._prompt(layers, whole), negative, layers.seed)

    def _prompt(self, layers: Layers, whole: np.ndarray) -> str:
        words, kind = layers.words, self.pipeline.kind
        if words is not None and words.prompt:
            where = words.where
            template = self.spec.options.get("template") if where == "background" else None
            return _filled(template or TEMPLATES[kind, where], words.prompt, layers.class_name)
        caption = _filled(self.caption, "", layers.class_name) if self.captioner is None else self.captioner(whole)
        return caption if kind == IN_PAINTING else AS_IT_IS.replace("{words}", caption)

    def _finished(self, layers: Layers, asked: EditRequest, drawn: np.ndarray) -> Rendering:
        """The drawn picture with everything that must not change put back: bit for bit inside, faded in outside."""
        call = self.call
        measures: dict[str, Any] = {
            "passes": self.passes(*layers.passes_by),
            "steps": call.steps,
            "guidance_scale": call.guidance_scale,
            "prompt": asked.prompt,
        }
        if layers.words is not None and layers.words.where == "object":
            return Rendering(
                composite(drawn, np.clip(2 * layers.alpha - 1, 0, 1), asked.image), measures, generated=True
            )
        if layers.needs_network is None:
            soft = cv2.blur(asked.redrawn.astype(np.float32), (5, 5)) * asked.redrawn
            drawn = composite(drawn, soft, asked.image)
        front = np.where(layers.alpha[..., None] > 0.5, layers.object, own_colors(layers.object, layers.alpha))
        return Rendering(composite(front, np.minimum(2 * layers.alpha, 1), drawn), measures, generated=True)


def band(inside: np.ndarray) -> np.ndarray:
    """(S, S) bool: the pixels around the object, without the object itself."""
    reach = 2 * max(1, round(BAND * len(inside) / 256)) + 1
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach))
    return (cv2.dilate(inside.astype(np.uint8), kernel) > 0) & ~inside


def _filled(template: str, words: str, name: str | None) -> str:
    """The template with its words and the class, if that is known.

    >>> _filled("a photo of a {class}", "", None), _filled("a {class} in {words}", "the snow", "husky")
    ('a photo', 'a husky in the snow')
    """
    unnamed = template.replace(" of a {class}", "").replace("{class}", "object")
    return (unnamed if name is None else template.replace("{class}", name)).replace("{words}", words)


class Captioner:
    """Describes a picture in words with an image-to-text model of transformers, always with the same words."""

    def __init__(self, name: str, device: Any) -> None:
        import transformers

        try:
            here: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
            self.processor = transformers.AutoProcessor.from_pretrained(name, **here)
            loader = transformers.AutoModelForImageTextToText
            network = loader.from_pretrained(name, use_safetensors=True, **here)
        except Exception as error:
            raise UserError(
                f"the captioner '{name}' cannot be opened: {first_line(error)}",
                allowed="the folder of an image-to-text model of transformers, such as BLIP, or one that is downloaded",
                run=f"hf download {name}",
            ) from error
        self.name, self.network = name, network.eval().to(device)

    def __call__(self, picture: np.ndarray) -> str:
        import torch
        from PIL import Image

        inputs = self.processor(images=Image.fromarray(picture), return_tensors="pt").to(self.network.device)
        with torch.inference_mode():
            tokens = self.network.generate(**inputs, max_new_tokens=30, do_sample=False, num_beams=1)
        return str(self.processor.batch_decode(tokens, skip_special_tokens=True)[0]).strip() or "a photo"

    def describe(self) -> dict[str, Any]:
        from unswayed.models.weights import weights_hash

        return {"captioner": self.name, "weights_sha256": weights_hash(self.network)}


def open_editor(detail: str, settings: Any, **_: Any) -> Editor:
    """The renderer `diffusers:NAME_OR_FOLDER?option=value`; settings: the `RenderSettings`."""
    spec = parse(detail, *PROMPTS)
    options = spec.options
    if {"caption", "captioner"} <= set(options):
        raise UserError(f"'{spec}' states both caption and captioner", allowed="one of them")
    if "{words}" not in options.get("template", "{words}"):
        raise UserError(f"the template {options['template']!r} has no {{words}}", allowed="a {class} in {words}")
    pipeline = open_pipeline(spec, settings.device, settings.precision)
    captioner = Captioner(options["captioner"], pipeline.device) if "captioner" in options else None
    return Editor(pipeline, call_of(pipeline, spec, settings.steps), spec, options.get("caption", CAPTION), captioner)
