"""Vision-language models: `openai:URL?model=NAME` asks a server, `transformers:NAME` a model on this machine.

The options are the same: `ask=choice|free`, `prompt=TEXT`, `labels=FILE`, `temperature`, `max_tokens`, `seed` (of the
order of the options, and of the server's sampling), `pixels` (the longest side of the picture that is sent).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import cv2
import numpy as np

from unswayed.errors import UserError
from unswayed.files.whole import hash_values
from unswayed.labels import LabelSpace, Task, imagenet
from unswayed.specs import Spec

from .answering import Answer, NamedModel
from .chat_server import KEY, ChatServer
from .label_mapping import labels_from
from .questions import CHOICE, FREE, Question, Reply, Shown, interpret, question

OPTIONS = ("ask", "prompt", "labels", "temperature", "max_tokens", "seed", "pixels")
_SERVER = (*OPTIONS, "model", "key", "logprobs")
ALTERNATIVES = 20  # tokens whose probabilities are asked for: the most that servers give


class Talker(Protocol):
    """What answers questions: a server, or a network on this machine; dropped: the settings that it does not take."""

    @property
    def dropped(self) -> Set[str]: ...
    def replies(self, asked: Sequence[tuple[Shown, str]]) -> list[Reply]: ...


@dataclass(frozen=True, eq=False)
class VisionLanguageModel(NamedModel):
    """A model that names the object in a picture. ask: `choice` or `free`; pixels: the longest side that is sent."""

    name: str
    labels: LabelSpace
    talker: Talker
    weights_hash: str
    ask: str
    template: str
    seed: int
    pixels: int
    origin: Mapping[str, Any]
    nbytes: int = 0
    device: str | None = "cpu"
    precision: str | None = None
    adapt: Callable[..., None] | None = None
    task: ClassVar[Task] = "answer"

    @property
    def answers_hash(self) -> str:
        return self.weights_hash

    def stated_transform(self) -> dict[str, Any]:
        return {"longest_side": self.pixels, "format": "PNG"}

    @property
    def remarks(self) -> list[str]:
        """What a reader of the card must know beside it: settings that the server does not take."""
        left_out = sorted(self.talker.dropped - {"max_tokens"})  # which has another name there
        told = f"{self.name}: the server does not take {', '.join(left_out)}, so its own values apply"
        return [told] if left_out else []

    def prepare(self, image: np.ndarray) -> Shown:
        scale = self.pixels / max(image.shape[:2])
        if scale < 1:
            size = [max(1, round(side * scale)) for side in image.shape[1::-1]]
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        digest = hashlib.sha256(f"{image.shape}".encode() + np.ascontiguousarray(image).tobytes())
        return Shown(image, digest.hexdigest())

    def question(self, shown: Shown) -> Question:
        """The question about a picture: the order of its options depends on the picture and the repetition alone."""
        seed = [self.seed, shown.repeat, int(shown.picture[:16], 16)]
        return question(self.template, self.labels, seed if self.ask == "choice" else None)

    def answer(self, prepared: Sequence[Shown]) -> list[Answer]:
        questions = [self.question(shown) for shown in prepared]
        replies = self.talker.replies([(shown, asked.prompt) for shown, asked in zip(prepared, questions, strict=True)])
        return [interpret(reply, asked, self.labels) for reply, asked in zip(replies, questions, strict=True)]


def vision_language_model(
    spec: Spec,
    labels: LabelSpace | None,
    talker: Talker,
    origin: Mapping[str, Any],
    weights_hash: str,
    **opened: Any,
) -> VisionLanguageModel:
    """The model that `spec` names, by the options that all of them take; opened: its further fields."""
    ask = spec.one_of("ask", ("choice", "free"))
    template = spec.options.get("prompt", CHOICE if ask == "choice" else FREE)
    if ("{}" in template) != (ask == "choice"):
        raise UserError(
            f"the prompt is {template!r}",
            allowed="with ask=choice a text with {} for the list of classes; with ask=free a text without it",
        )
    space = labels_from(spec.options, labels) or imagenet()
    seed, pixels = spec.number("seed", int, 0, 2**31, 0), spec.number("pixels", int, 16, 8192, 1024)
    settings = {"ask": ask, "prompt": template, "seed": seed, "pixels": pixels, **origin["settings"]}
    origin = {**origin, "kind": "vision-language model", "settings": settings}
    return VisionLanguageModel(str(spec), space, talker, weights_hash, ask, template, seed, pixels, origin, **opened)


def sampling(spec: Spec) -> dict[str, Any]:
    """How replies are sampled: the most likely token unless the name of the model says otherwise."""
    return {
        "temperature": spec.number("temperature", float, 0, 2, 0.0),
        "max_tokens": spec.number("max_tokens", int, 1, 100_000, 64),
    }


def check_server(spec: Spec) -> ChatServer:
    """The server that `spec` names; refused before anything is written, since a name that holds a key is a secret."""
    spec.check_options(*_SERVER)
    if "model" not in spec.options:
        raise UserError("the name of an openai: model states no model", allowed="openai:https://HOST/v1?model=NAME")
    settings = {**sampling(spec), "seed": spec.number("seed", int, 0, 2**31, 0)}
    if spec.one_of("logprobs", ("yes", "no")) == "yes":
        settings |= {"logprobs": True, "top_logprobs": ALTERNATIVES}
    return ChatServer(spec.name, spec.options["model"], settings, spec.options.get("key", KEY))


def open_openai(spec: Spec, labels: LabelSpace | None = None, **_: str | None) -> VisionLanguageModel:
    """A model of a server with OpenAI's chat protocol."""
    server = check_server(spec)
    origin = {"url": server.url, "model": server.model, "settings": dict(server.settings)}
    identity = hash_values([[server.url, server.model]])[0]
    return vision_language_model(spec, labels, server, origin, identity)
