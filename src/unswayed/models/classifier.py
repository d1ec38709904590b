"""A classifier: a network, its transform, its classes, its device and its precision; and the layer of its heat map."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from unswayed.choices import Precision, TransformName, check_choice
from unswayed.errors import UserError, check_known
from unswayed.files.whole import Json
from unswayed.jobs import choose_device
from unswayed.labels import LabelSpace, Task, imagenet, own
from unswayed.specs import Spec

from .answering import NamedModel
from .foreign_transforms import as_transform
from .runtime import evaluating, true_float32, watching
from .transforms import Transform, paper, transform_from
from .weights import tensors_in, weights_hash

Origin = Json  # what a model was made from
Where = Mapping[str, str | None]  # the device and the precision that a model is opened with


@dataclass(frozen=True, eq=False)
class Classifier(NamedModel):
    """An image classifier, as every source of models returns it; it also wraps a user's own module.

    Called with transformed pictures, a float tensor (N, 3, crop, crop), it returns (N, classes) logits.

    module: transformed (N, 3, crop, crop) float32 -> (N, classes) logits; it is moved to the device, and after every
    use it is in the mode, and takes the gradients, that it had before. transform: a Transform, its JSON, or a
    torchvision preset or Compose. labels: a LabelSpace or a list of class names, in the order of the outputs. name: the
    spec it was opened by. device: `cpu`, `cuda`, `cuda:1` …, chosen if None. precision: fp32, bf16 or fp16; None is
    fp32 on a CPU and bf16 on a GPU. layer: dotted name of the heat layer, found if None. origin: what else it was made
    from, for the card. adapt: set by `+bn-adapt`; called with batches before a set of pictures is scored. wraps: for a
    wrapper that holds another model, the wrapper and the model inside it.
    """

    module: nn.Module
    transform: Transform
    labels: LabelSpace
    name: str = "own"
    device: str | None = None
    precision: str | None = None
    layer: str | None = None
    origin: Origin = field(default_factory=dict)
    adapt: Callable[[Iterable[torch.Tensor]], None] | None = None
    wraps: tuple[Callable[[Classifier], Classifier], Classifier] | None = None
    fixed_hash: str | None = None
    task: ClassVar[Task] = "classify"

    def __post_init__(self) -> None:
        device = choose_device(self.device)
        precision = self.precision or ("bf16" if device.type == "cuda" else "fp32")
        check_choice("precision", precision, Precision)
        labels = self.labels if isinstance(self.labels, LabelSpace) else _space(self.labels)
        if not labels.classes:
            raise UserError(f"{self.name}: the model has no classes")
        if not isinstance(self.module, nn.Module):
            raise UserError(f"{self.name}: the module is a {type(self.module).__name__}", allowed="a torch.nn.Module")
        module = self.module.to(device)
        if device.type in ("cpu", "cuda"):
            module = module.to(memory_format=torch.channels_last)
        values = {"device": str(device), "precision": precision, "labels": labels, "module": module}
        for name, value in {**values, "transform": as_transform(self.transform)}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        name = self.name if len(self.name) <= 60 else f"{self.name[:29]}…{self.name[-30:]}"
        return f"Classifier('{name}': {len(self.labels.classes)} classes, crop {self.transform.crop}, {self.device})"

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the weights, or of the answers where the weights are not in the network's state; wrappers such as
        `+tencrop` keep that of the model they wrap. Computed each time, since a caller may train the network on."""
        return self.fixed_hash or weights_hash(self.module) or self.answers_hash

    @property
    def answers_hash(self) -> str:
        """SHA-256 of the logits for four pictures of noise, smooth to sharp, which differ if anything that the network
        computes with does: also an array, a session of another library or a file that its state does not contain."""
        side, generator = self.transform.crop, torch.Generator().manual_seed(0)
        noise = [torch.rand(1, 3, size, size, generator=generator) for size in (1, 4, 16, side)]
        pixels = torch.cat([nn.functional.interpolate(part, (side, side)) for part in noise])
        return hashlib.sha256(self.logits(self.transform.normalize(pixels)).cpu().numpy().tobytes()).hexdigest()

    @property
    def nbytes(self) -> int:
        """The size of the weights in bytes."""
        return sum(tensor.nbytes for _, tensor in tensors_in(self.module.state_dict()))

    @functools.cached_property
    def heat_layer(self) -> HeatLayer:
        """The layer from which a heat map of this model is computed."""
        side = self.transform.crop
        return find_heat_layer(self.module, torch.zeros(1, 3, side, side, device=self.device), self.layer)

    def prepare(self, image: np.ndarray) -> torch.Tensor:
        """(H, W, 3) uint8 RGB -> (3, crop, crop) float32, by the model's own transform."""
        return self.transform.tensor(image)

    def from_pixels(self, crops: torch.Tensor) -> torch.Tensor:
        """(N, crop, crop, 3) uint8 crops -> the network's normalized input on its device."""
        pixels = crops.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        return self.transform.normalize(pixels.to(torch.float32).div_(255), in_place=True)

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        """Transformed (N, 3, crop, crop) -> (N, classes) float32 logits on the model's device, without gradients."""
        with torch.inference_mode():
            return self._forward(batch)

    __call__ = logits

    def classify(self, crops: torch.Tensor, size: int) -> torch.Tensor:
        """(N, crop, crop, 3) uint8 crops -> (N, classes) float32 logits, `size` pictures at a time."""
        return torch.cat([self.logits(self.from_pixels(part)) for part in crops.split(size)])

    def differentiable(self, pixels: torch.Tensor) -> torch.Tensor:
        """(N, 3, S, S) in [0, 1] -> (N, classes) float32 logits, with gradients to the pixels."""
        return self._forward(self.transform.differentiable(pixels.to(self.device)))

    def _forward(self, batch: torch.Tensor) -> torch.Tensor:
        assert self.device is not None
        batch = batch.to(self.device, non_blocking=True)
        if batch.ndim == 4:
            batch = batch.contiguous(memory_format=torch.channels_last)
        if self.precision == "fp32":
            precision: AbstractContextManager[object] = true_float32(self.device)
        else:
            kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[str(self.precision)]
            precision = torch.autocast(torch.device(self.device).type, dtype=kind)
        with evaluating(self.module), precision:
            output: object = self.module(batch)
        if not isinstance(output, torch.Tensor):
            raise UserError(f"{self.name} returns a {type(output).__name__}", allowed="(N, classes) logits")
        if output.is_complex() or output.dtype == torch.bool:
            raise UserError(f"{self.name} returns {output.dtype}", allowed="real numbers, (N, classes) logits")
        classes = len(self.labels.classes)
        if output.ndim != 2 or output.shape[1] != classes:
            raise UserError(
                f"{self.name} returns the shape {tuple(output.shape)}, but its label space {self.labels.name!r} has "
                f"{classes} classes",
                allowed=f"(N, {classes}) logits, or a label space of as many classes as the model has outputs",
            )
        return output.float()

    def with_transform(self, kind: TransformName) -> Classifier:
        """The same model under its `own` transform, or under the `paper`'s: resize 256, crop 224."""
        if kind == "own":
            return self
        check_choice("transform", kind, TransformName)
        if self.wraps is not None:
            # A wrapper derives its transform from that of the model inside, so that one is changed.
            wrap, inside = self.wraps
            made = wrap(replace(inside.with_transform(kind), device=self.device, precision=self.precision))
            return replace(made, name=self.name, origin=self.origin, layer=self.layer, fixed_hash=self.weights_hash)
        return replace(self, transform=paper(self.transform), fixed_hash=self.weights_hash)

    def without_normalization(self) -> Classifier:
        """The same model for which pixels in [0, 1] are the input, as in RIVAL10's released code."""
        bare = replace(self.transform, mean=(0.0,) * 3, std=(1.0,) * 3, scale=1.0, channels="RGB")
        return replace(self, transform=bare, fixed_hash=self.weights_hash)

    def check_framing(self, frame: str | None) -> None:
        """Refuse a head that was trained in another framing; one without a record, and any other model, fits every one.

        frame: how the pictures that it is about to see are framed, None if unknown.
        """
        trained = self.origin.get("head", {}).get("frame")
        if trained is not None and frame is not None and trained != frame:
            raise UserError(
                f"{self.name} was trained on pictures with --frame {trained}, and these have --frame {frame}",
                allowed=f"--frame {trained} for this head",
                run=f"unswayed fit-head SOURCE -m MODEL -o DIR --frame {frame}",
            )

    def stated_transform(self) -> dict[str, object]:
        return self.transform.to_json()


def classifier_of(
    spec: Spec, module: nn.Module, transform: Transform, labels: LabelSpace, where: Where, origin: Origin
) -> Classifier:
    """The classifier that `spec` names, with the options that every source takes."""
    transform, layer = transform_from(spec.options, transform), spec.options.get("layer")
    device, precision = where.get("device"), where.get("precision")
    return Classifier(module, transform, labels, str(spec), device, precision, layer, origin)


def assumed(spec: Spec, transform: Transform, why: str) -> dict[str, str]:
    """The entry in the origin of a model with a checkpoint, which does not state its preprocessing: what is assumed.

    Empty without a checkpoint, and if the name states mean and standard deviation.
    """
    if "checkpoint" not in spec.options or {"mean", "std"} <= spec.options.keys():
        return {}
    numbers = str(transform).partition(", mean ")[2]
    stated = f"{spec} does not state its preprocessing: assumed is {why}, mean {numbers}"
    return {"assumed": f"{stated}; ?mean=…&std=… states another"}


def _space(labels: object) -> LabelSpace:
    """A list of names as a label space; ImageNet's own, where a dog and a garment are cardigans, is ImageNet."""
    if isinstance(labels, str) or not isinstance(labels, Sequence) or not all(isinstance(name, str) for name in labels):
        raise UserError(f"the labels are {labels!r}", allowed="a LabelSpace, or a list of class names in output order")
    names = tuple(labels)
    if names == imagenet().classes:
        return imagenet()
    return LabelSpace("own", names) if len(set(names)) == len(names) else own(names)


@dataclass(frozen=True)
class HeatLayer:
    """The layer of a heat map, and how its output becomes (N, channels, height, width).

    name: dotted module name; reshape: `none` (it has that shape), `channels-last` (N, h, w, C) or `tokens`
    (N, prefix + h·w, C), where the first `prefix` tokens (class, registers) have no position.
    """

    name: str
    reshape: str
    height: int
    width: int
    prefix: int = 0

    def module(self, root: nn.Module) -> nn.Module:
        return root.get_submodule(self.name)

    def as_maps(self, output: torch.Tensor) -> torch.Tensor:
        """The layer's output as (N, channels, height, width)."""
        if self.reshape == "tokens":
            tokens = output[:, self.prefix :]
            return tokens.reshape(len(tokens), self.height, self.width, -1).permute(0, 3, 1, 2)
        return output.permute(0, 3, 1, 2) if self.reshape == "channels-last" else output

    @property
    def reshape_transform(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The `reshape_transform` of the grad-cam library."""
        return None if self.reshape == "none" else self.as_maps

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def find_heat_layer(module: nn.Module, example: torch.Tensor, name: str | None = None) -> HeatLayer:
    """The heat layer of `module`, or the one called `name`, from one pass of `example` (1, 3, h, w).

    Convolutional networks and those that keep a grid: the last output with more than one position. Vision
    transformers: the first norm of the last block, since after it only the class token reaches the output.
    """
    layers: list[tuple[HeatLayer, str]] = []  # in the order of execution, with their class names

    def record(layer_name: str, layer: nn.Module, _: object, output: object) -> None:
        if isinstance(output, torch.Tensor) and (heat_layer := _describe(layer_name, output)):
            layers.append((heat_layer, type(layer).__name__))

    with watching(module, record), evaluating(module), torch.no_grad():
        module(example)
    if name is not None:
        known = {layer.name: layer for layer, _ in layers}
        check_known("layer with spatial positions", [name], known)
        return known[name]
    if not layers:
        raise UserError("no layer of this model has spatial positions, so it has no heat map")
    # Grids, and the norms of blocks of tokens. A grid that comes after the last block's tokens (Swin, EdgeNeXt) is
    # nearer to the output than they are.
    useful = [layer for layer, kind in layers if layer.reshape != "tokens" or ("Norm" in kind and _block(layer.name))]
    if not useful:
        return layers[-1][0]
    last = useful[-1]
    if last.reshape != "tokens":
        return last
    block = _block(last.name)
    return next(layer for layer in useful if layer.reshape == "tokens" and _block(layer.name) == block)


def _describe(name: str, output: torch.Tensor) -> HeatLayer | None:
    shape = tuple(output.shape)
    if len(shape) == 4 and shape[2] == shape[3] > 1:
        return HeatLayer(name, "none", shape[2], shape[3])
    if len(shape) == 4 and shape[1] == shape[2] > 1:
        return HeatLayer(name, "channels-last", shape[1], shape[2])
    if len(shape) == 3 and shape[0] == 1:
        side = int(shape[1] ** 0.5)
        if side > 1 and shape[1] - side * side <= 8:
            return HeatLayer(name, "tokens", side, side, shape[1] - side * side)
    return None


def _block(name: str) -> str:
    """The path of the numbered block that contains a module: `blocks.11` of `blocks.11.norm1`."""
    match = re.match(r"(.*\.?\d+)\.[^\d]", name)
    return match.group(1) if match else ""
