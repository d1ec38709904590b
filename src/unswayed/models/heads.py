"""Linear heads on frozen features: trained with a validation split and early stopping, saved as safetensors and a card.

head = fit_head(open_model("lite:0"), images, targets, ["cat", "dog"])
head.save("my-head")                    # then: unswayed evaluate BENCH -m head:my-head

Beside a trained model stands `trained-on.bin`: which photographs it was trained on, eight bytes for each.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from unswayed.errors import UserError
from unswayed.files.records import read_object
from unswayed.files.tensor_files import read_tensor_file, write_tensor_file
from unswayed.files.whole import Json, read_file, remove_file, write_bytes, write_json
from unswayed.labels import LabelSpace, own
from unswayed.sources.source import content_key
from unswayed.specs import Spec

from .classifier import Classifier
from .opening import open_base
from .runtime import watching
from .weights import linear

_KINDS = {"base": str, "base_weights_sha256": str, "labels": Json, "normalized": bool | None}
T = TypeVar("T")  # a picture, as the caller has it


@dataclass(frozen=True)
class Training:
    """How a head is trained on cross-entropy, and how its epoch is chosen on the validation split.

    patience: stop when so many epochs brought nothing better, None: never; optimizer: `adamw` or `adam`, whose weight
    decay is a penalty in the loss; standardize: train on standardized features from zero weights, otherwise on the
    features as they are from PyTorch's own initialization; choose: the epoch of the lowest validation `loss` or of the
    highest validation `accuracy`.
    """

    epochs: int = 200
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    batch_size: int = 256
    validation: float = 0.2
    patience: int | None = 10
    seed: int = 0
    optimizer: Literal["adamw", "adam"] = "adamw"
    standardize: bool = True
    choose: Literal["loss", "accuracy"] = "loss"

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1:
            raise UserError(
                f"there are {self.epochs} epochs of batches of {self.batch_size}", allowed="1 or more of both"
            )
        if not (self.learning_rate > 0 and self.weight_decay >= 0 and 0 < self.validation < 1):
            raise UserError(
                f"the learning rate is {self.learning_rate}, the weight decay {self.weight_decay}, the share held out "
                f"{self.validation}",
                allowed="a learning rate above 0, a weight decay of 0 or more, a validation share between 0 and 1",
            )


# RIVAL10's released fine-tuner (Moayeri et al., CVPR 2022) in its optimizer and epochs; heads for pictures with a gray
# background are trained twice as long. It chooses the epoch on the test pictures, which is not repeated here.
RELEASED = Training(
    epochs=10, learning_rate=1e-5, batch_size=32, patience=None, optimizer="adam", standardize=False, choose="accuracy"
)
PRESETS = {"default": Training(), "released": RELEASED}


@dataclass(frozen=True, eq=False)
class Head:
    """A trained head: weight (classes, D), bias (classes,), its base model, and a record of the training.

    photographs: (N,) uint64, the keys of the files it was trained on (`keys_of`), if known.
    """

    base: Classifier
    labels: LabelSpace
    weight: torch.Tensor
    bias: torch.Tensor
    card: Json
    photographs: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"Head({len(self.labels)} classes on {self.base})"

    def classifier(self, name: str | None = None) -> Classifier:
        """The base model with this head in place of its own last layer."""
        return replace(
            self.base,
            module=nn.Sequential(feature_network(self.base), linear(self.weight, self.bias)),
            labels=self.labels,
            name=name or f"{self.base.name} with a head for {self.labels.name}",
            layer=f"0.{self.base.layer}" if self.base.layer else None,
            origin={"head": self.card, **self.base.origin},
            fixed_hash=None,
        )

    def save(self, folder: str | Path) -> None:
        """Write `head.safetensors` and `head.json` into `folder`, and `trained-on.bin` if the photographs are known;
        `head:FOLDER` opens them."""
        write_tensor_file(Path(folder) / "head.safetensors", {"weight": self.weight, "bias": self.bias})
        write_trained_on(folder, self.photographs, self.base.origin)
        write_json(Path(folder) / "head.json", self.card)


def fit_head(
    base: Classifier,
    images: Iterable[T],
    targets: Sequence[int],
    labels: LabelSpace | Sequence[str],
    training: Training = Training(),
    prepare: Callable[[T], torch.Tensor] | None = None,
    **described: object,
) -> Head:
    """A linear head on the frozen features of `base` for any label space.

    images: (H, W, 3) uint8 pictures, read once; targets: an index into `labels` for each. The epoch is chosen on a
    validation split of the pictures (by class), never on the pictures it will be evaluated on.
    prepare: one of `images` -> the network's input (3, crop, crop), by the model's own transform if None. described:
    what else the head's card says about its pictures, such as their framing.
    """
    space = labels if isinstance(labels, LabelSpace) else own(labels)
    features = extract_features(base, images, prepare=prepare)
    answers = torch.as_tensor(list(targets))
    if len(features) != len(answers):
        raise UserError(f"there are {len(features)} pictures and {len(answers)} targets")
    if len(answers) and (int(answers.min()) < 0 or int(answers.max()) >= len(space)):
        raise UserError(f"a target is outside the {len(space)} classes", allowed=f"0 to {len(space) - 1}")
    train, held_out = split(answers, training)
    weight, bias, history = train_linear(features, answers, train, held_out, len(space), training)
    card = {
        "base": base.spec,
        "base_weights_sha256": base.weights_hash,
        "labels": {"name": space.name, "classes": list(space.classes)},
        "training": asdict(training),
        "pictures": {"train": len(train), "validation": len(held_out)},
        **described,
        **history,
    }
    return Head(base, space, weight, bias, card)


def open_head(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """`head:FOLDER`: the saved head on the model it was trained on; refused if that model's weights have changed.

    `head:FOLDER?trust=yes` opens a base of any source; without it, only one that cannot run code.
    """
    spec.check_options("trust")
    folder = Path(spec.name).expanduser()
    card = read_object(folder / "head.json", _KINDS)
    base = open_base(spec, card["base"], **where)
    if card.get("normalized") is False:
        base = base.without_normalization()
    if base.weights_hash != card["base_weights_sha256"]:
        raise UserError(
            f"{spec} was trained on other weights of {card['base']} than the current ones",
            run="unswayed fit-head SOURCE -m MODEL -o DIR",
        )
    tensors = read_tensor_file(folder / "head.safetensors")
    space = LabelSpace.from_json(card["labels"], f"{folder / 'head.json'}, labels")
    shapes = [tuple(tensors[name].shape) if name in tensors else () for name in ("weight", "bias")]
    if len(shapes[0]) != 2 or shapes[1] != shapes[0][:1] or shapes[1] != (len(space),):
        raise UserError(f"{folder / 'head.safetensors'} is not a linear head for the {len(space)} classes of its card")
    model = Head(base, space, tensors["weight"], tensors["bias"], card).classifier(str(spec))
    return replace(model, origin={**model.origin, **origin_of(folder)})


def feature_network(model: Classifier) -> nn.Module:
    """A copy of the model's network without its last linear layer: (N, 3, crop, crop) -> (N, D) features."""
    module = copy.deepcopy(model.module).eval().requires_grad_(False)
    module.set_submodule(classification_layer(model), nn.Identity())
    return module


def classification_layer(model: Classifier) -> str:
    """The dotted name of the last linear layer that runs and returns the model's logits."""
    names: list[str] = []

    def record(name: str, layer: nn.Module, _: object, output: torch.Tensor) -> None:
        if isinstance(layer, nn.Linear) and output.shape == (1, len(model.labels)):
            names.append(name)

    with watching(model.module, record):
        model.logits(torch.zeros(1, 3, model.transform.crop, model.transform.crop))
    if not names:
        raise UserError(f"{model.name} does not end in a linear layer, so it cannot be replaced by a head")
    return names[-1]


def extract_features(
    model: Classifier, images: Iterable[T], batch_size: int = 32, prepare: Callable[[T], torch.Tensor] | None = None
) -> torch.Tensor:
    """(N, D) float32 features of the pictures on the CPU; `prepare` as in `fit_head`."""
    network = feature_network(model)
    pictures = map(prepare or cast(Callable[[T], torch.Tensor], model.prepare), images)
    rows = []
    with torch.inference_mode():
        while batch := list(itertools.islice(pictures, batch_size)):
            rows.append(network(torch.stack(batch).to(model.device)).float().cpu())
    if not rows:
        raise UserError("there are no pictures to train a head on")
    return torch.cat(rows).clone()


def split(targets: torch.Tensor, training: Training) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices for training and validation: the same share of every class with two or more pictures is held out."""
    generator = torch.Generator().manual_seed(training.seed)
    held_out = []
    for label in targets.unique():
        of_class = (targets == label).nonzero().flatten()
        if len(of_class) > 1:
            count = min(len(of_class) - 1, max(1, round(training.validation * len(of_class))))
            held_out.append(of_class[torch.randperm(len(of_class), generator=generator)[:count]])
    if not held_out:
        raise UserError("no class has two pictures, so none can be held out", allowed="two or more pictures of a class")
    chosen = torch.cat(held_out).sort().values
    rest = torch.ones(len(targets), dtype=torch.bool)
    rest[chosen] = False
    return rest.nonzero().flatten(), chosen


def train_linear(
    features: torch.Tensor,
    targets: torch.Tensor,
    train: torch.Tensor,
    held_out: torch.Tensor,
    classes: int,
    training: Training,
) -> tuple[torch.Tensor, torch.Tensor, Json]:
    """Weight (classes, D), bias (classes,) of the best validation epoch, and the history for the card."""
    # Features are standardized while training, so that one learning rate suits every network; the head's weights
    # include the scaling.
    center, spread = torch.zeros(features.shape[1]), torch.ones(features.shape[1])
    if training.standardize:
        center, spread = features[train].mean(0), features[train].std(0, correction=0).clamp_min(1e-6)
    scaled = (features - center) / spread
    torch.manual_seed(training.seed)
    head = nn.Linear(features.shape[1], classes)
    if training.standardize:
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    make = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[training.optimizer]
    optimizer = make(head.parameters(), training.learning_rate, weight_decay=training.weight_decay)
    generator = torch.Generator().manual_seed(training.seed)
    best_score, best_loss, best_epoch, losses = -float("inf"), float("nan"), 0, []
    best = copy.deepcopy(head.state_dict())
    for epoch in range(1, training.epochs + 1):
        for part in train[torch.randperm(len(train), generator=generator)].split(training.batch_size):
            optimizer.zero_grad()
            functional.cross_entropy(head(scaled[part]), targets[part]).backward()
            optimizer.step()
        with torch.no_grad():
            answered = head(scaled[held_out])
            losses.append(float(functional.cross_entropy(answered, targets[held_out])))
            right = float((answered.argmax(1) == targets[held_out]).float().mean())
        score = right if training.choose == "accuracy" else -losses[-1]
        if score > best_score:
            best_score, best_loss, best_epoch, best = score, losses[-1], epoch, copy.deepcopy(head.state_dict())
        elif training.patience is not None and epoch - best_epoch >= training.patience:
            break
    head.load_state_dict(best)
    with torch.no_grad():
        right = float((head(scaled[held_out]).argmax(1) == targets[held_out]).float().mean())
        weight = head.weight / spread
        bias = head.bias - weight @ center
    history = {"epoch": best_epoch, "validation_loss": best_loss, "validation_accuracy": right, "losses": losses}
    return weight.detach().clone(), bias.detach().clone(), history


FILE = "trained-on.bin"
ORIGIN = "trained_on"  # the entry in the origin of a model that names its file
MUCH = 0.05  # share of photographs of the training from which on a model counts as not measured
_MOST = 2**32  # bytes
_KEY = np.dtype("<u8")


class Overlap(NamedTuple):
    """What is said about a model that is measured on photographs of its training; both None if it is not."""

    suspicion: str | None = None
    remark: str | None = None


def training_overlap(name: str, origin: Mapping[str, object], files: Iterable[str]) -> Overlap:
    """How many of these photographs a model of this origin was trained on: a suspicion if they are many, else a remark.

    files: those of the photographs; they are read only if the origin says what the model was trained on.
    """
    known = trained_on(origin)
    keys = [content_key(file) for file in dict.fromkeys(files) if Path(file).is_file()] if len(known) else []
    count = int(np.isin(np.array(keys, _KEY), known).sum())
    if not count:
        return Overlap()
    warning = f"{name}: {count} of the {len(keys)} photographs were in its training, so its numbers are too good"
    return Overlap(suspicion=warning) if count > MUCH * len(keys) else Overlap(remark=warning)


def keys_of(files: Iterable[str | Path]) -> np.ndarray:
    """(N,) sorted uint64, one number for the content of each of these files; a missing file has none."""
    return np.unique(np.array([content_key(file) for file in files if Path(file).is_file()], _KEY))


def trained_on(origin: Mapping[str, object]) -> np.ndarray:
    """(N,) sorted uint64: the photographs that a model of this origin was trained on, empty where they are unknown."""
    if ORIGIN not in origin:
        return np.zeros(0, _KEY)
    path = str(origin[ORIGIN])
    data = read_file(path, _MOST)
    if len(data) % _KEY.itemsize:
        raise UserError(f"{path} is damaged: it has {len(data)} bytes", allowed="a multiple of 8", run=f"rm {path}")
    return np.frombuffer(data, _KEY)


def write_trained_on(folder: str | Path, keys: np.ndarray | None, base: Mapping[str, object]) -> None:
    """Write which photographs a model was trained on, with those of its base; None if that is not known.

    base: the origin of the model that it was made from.
    """
    if keys is None:
        remove_file(Path(folder) / FILE)  # of a model that was there before
        return
    write_bytes(Path(folder) / FILE, np.union1d(keys, trained_on(base)).astype(_KEY).tobytes())


def origin_of(folder: Path) -> dict[str, str]:
    """The entry for the origin of a model that was opened from a folder; empty if the folder has no such file."""
    return {ORIGIN: str(folder / FILE)} if (folder / FILE).is_file() else {}
