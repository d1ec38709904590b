"""Vision-language models of the transformers library on this machine: `transformers:NAME`, image-text-to-text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

from unswayed.errors import UserError
from unswayed.jobs import choose_device
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .questions import Reply, Shown
from .vision_language import ALTERNATIVES, OPTIONS, VisionLanguageModel, sampling, vision_language_model
from .weights import available, weights_hash

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def is_vision_language(config: object) -> bool:
    """Whether the library knows the architecture as one that writes about pictures."""
    return type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING


def open_local_chat(spec: Spec, config: Any, labels: LabelSpace | None, **where: str | None) -> VisionLanguageModel:
    """A vision-language model of the library, with the processor that it comes with."""
    spec.check_options(*OPTIONS)
    device = str(choose_device(where.get("device")))
    precision = where.get("precision") or ("bf16" if device.startswith("cuda") else "fp32")
    settings = sampling(spec)
    with available(spec, "give the folder of a vision-language model"):
        processor = transformers.AutoProcessor.from_pretrained(spec.name, trust_remote_code=False)
        network = transformers.AutoModelForImageTextToText.from_pretrained(
            spec.name, trust_remote_code=False, dtype=_TYPES[precision]
        )
    library = f"transformers {transformers.__version__}"
    origin = {"library": library, "architecture": config.model_type, "settings": settings}
    talker = LocalChat(network.eval().requires_grad_(False).to(device), processor, **settings)
    identity, size = str(weights_hash(network)), sum(parameter.nbytes for parameter in network.parameters())
    return vision_language_model(
        spec, labels, talker, origin, identity, nbytes=size, device=device, precision=precision
    )


@dataclass(eq=False)
class LocalChat:
    """A network with its processor, asked like a `ChatServer`; one picture at a time, so that no answer depends on
    another."""

    network: Any
    processor: Any
    temperature: float
    max_tokens: int
    dropped: frozenset[str] = frozenset()

    def replies(self, asked: Sequence[tuple[Shown, str]]) -> list[Reply]:
        return [self._reply(Image.fromarray(shown.pixels), prompt, shown) for shown, prompt in asked]

    @torch.inference_mode()
    def _reply(self, picture: Image.Image, prompt: str, shown: Shown) -> Reply:
        inputs = self._inputs(picture, prompt).to(self.network.device, self.network.dtype)
        length = inputs["input_ids"].shape[1]
        sampled = {"do_sample": True, "temperature": self.temperature} if self.temperature else {"do_sample": False}
        # A sampled reply depends on the picture and the repetition alone, like the order of the options.
        torch.manual_seed(int(shown.picture[:12], 16) + shown.repeat)
        made = self.network.generate(
            **inputs, **sampled, max_new_tokens=self.max_tokens, return_dict_in_generate=True, output_logits=True
        )
        tokenizer = getattr(self.processor, "tokenizer", self.processor)
        # Some models return the prompt as well.
        new = made.sequences[0][-len(made.logits) :].tolist()
        # Either is a number, several, or None.
        ends = set(np.hstack([self.network.generation_config.eos_token_id, tokenizer.eos_token_id]).tolist())
        logarithms = [torch.log_softmax(logits[0].float(), -1) for logits in made.logits]
        stated = [
            (tokenizer.decode([token]), float(row[token]))
            for token, row in zip(new, logarithms, strict=True)
            if token not in ends
        ]
        best = logarithms[0].topk(min(ALTERNATIVES, len(logarithms[0])))
        first = [(tokenizer.decode([int(token)]), float(value)) for value, token in zip(*best, strict=True)]
        text = tokenizer.decode(new, skip_special_tokens=True)
        outcome = "answered" if new and new[-1] in ends else "truncated"
        return Reply(outcome, text, stated, first, length + len(new))

    def _inputs(self, picture: Image.Image, prompt: str) -> Any:
        """The network's input: a conversation if the processor has a template for one, else picture and text."""
        if getattr(self.processor, "chat_template", None) is None:
            return self.processor(images=picture, text=prompt, return_tensors="pt")
        said = [{"type": "image", "image": picture}, {"type": "text", "text": prompt}]
        try:
            return self.processor.apply_chat_template(
                [{"role": "user", "content": said}],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )
        except (TypeError, ValueError) as error:
            raise UserError(f"the processor of the model takes no picture in a conversation: {error}") from error
