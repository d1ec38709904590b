"""How often the check before an evaluation notices a wrong transform, and how often it doubts the right one.

    python benchmarks/contract.py "oxford-pet:data?split=all" --model lite:0 --photographs 200

Each wrong transform is stated for the model, as a user would by mistake, and the check of `unswayed evaluate` is made
on many draws of n photographs. Every photograph is classified once under each transform that the check tries.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from unswayed.evaluation.contract import SANITY, check_accuracy, sanity_sample
from unswayed.models import Classifier, Transform, open_model
from unswayed.models.label_mapping import LabelMapping, map_labels
from unswayed.models.transforms import IMAGENET_MEAN, IMAGENET_STD
from unswayed.sources import open_source
from unswayed.sources.pictures import read_picture

BATCH = 32
HALF, ZERO, ONE = (0.5,) * 3, (0.0,) * 3, (1.0,) * 3


@dataclass(frozen=True, eq=False)
class Remembering(Classifier):
    """A model whose input are the numbers of photographs; under each transform it classifies all of them, once."""

    photographs: Sequence[np.ndarray] = ()
    known: dict[Transform, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing: every field is that of an opened model, and thousands of copies are made."""

    def from_pixels(self, crops: torch.Tensor) -> torch.Tensor:
        return crops

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        if self.transform not in self.known:
            parts = []
            for start in range(0, len(self.photographs), BATCH):
                some = self.photographs[start : start + BATCH]
                crops = torch.from_numpy(np.stack([self.transform.geometry.apply(one) for one in some]))
                parts.append(super().logits(super().from_pixels(crops)).cpu())
            self.known[self.transform] = torch.cat(parts)
        return self.known[self.transform][batch]


class Normalizing(nn.Module):
    """A network that normalizes its input itself."""

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.network((pixels - self.mean) / self.std)


def stated(model: Remembering) -> dict[str, Remembering]:
    """The model under its own transform and under wrong ones, which users state by mistake."""
    own = model.transform
    name, mean, std = "ImageNet's mean and std", IMAGENET_MEAN, IMAGENET_STD
    if own.mean == IMAGENET_MEAN:
        name, mean, std = "mean 0.5 and std 0.5", HALF, HALF
    twice, other = (
        replace(model, module=Normalizing(model.module, *values).to(model.device), known={})
        for values in ((own.mean, own.std), (mean, std))
    )
    wrong = {
        "no normalization": replace(own, mean=ZERO, std=ONE),
        name: replace(own, mean=mean, std=std),
        f"channels as {'BGR' if own.channels == 'RGB' else 'RGB'}": replace(
            own, channels="BGR" if own.channels == "RGB" else "RGB"
        ),
        "resize 64 and crop 64": replace(own, resize=64, crop=64),
        "pixels in [0, 255]": replace(own, mean=ZERO, std=ONE, scale=255.0),
    }
    return {
        "the right one": model,
        "normalized twice": twice,
        f"normalized twice, with {name}": replace(other, transform=replace(own, mean=mean, std=std)),
        **{name: replace(model, transform=transform) for name, transform in wrong.items()},
    }


def is_noticed(model: Remembering, mapping: LabelMapping, labels: np.ndarray, drawn: np.ndarray) -> bool:
    """Whether the check finds something suspicious on these photographs."""
    some = np.array(sanity_sample(drawn, SANITY))
    logits = model.logits(torch.from_numpy(some))
    answers, predicted = logits.argmax(1).numpy(), mapping.apply(logits).argmax(1).numpy()
    found = check_accuracy(
        model, mapping, lambda _, places: torch.from_numpy(some[places]), labels[some], answers, predicted
    )
    return found is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="labeled photographs, such as oxford-pet:FOLDER or images:FOLDER")
    parser.add_argument("--model", default="lite:0")
    parser.add_argument("--photographs", type=int, default=200, help="how many of the source")
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 60], help="photographs of an evaluation")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--only-right", action="store_true", help="only the model's own transform")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    source = open_source(given.source)
    count = min(given.photographs, len(source))
    entries = [source.entries[place] for place in sorted(rng.choice(len(source), count, replace=False))]
    labels = np.array([entry.label for entry in entries])
    opened = open_model(given.model)
    model = Remembering(
        opened.module, opened.transform, opened.labels, "own", opened.device, opened.precision,
        fixed_hash=opened.weights_hash, photographs=[read_picture(entry.image) for entry in entries],
    )  # fmt: skip
    mapping = map_labels(opened.labels, source.labels, labels.tolist())
    sizes = [size for size in given.sizes if size <= count]
    print(f"{given.model}, {count} photographs of {len(set(labels.tolist()))} classes, {given.draws} draws of n")
    print(f"| transform | accuracy % | {' | '.join(f'noticed at n = {size}' for size in sizes)} |")
    print(f"| --- | {' | '.join(['---:'] * (1 + len(sizes)))} |", flush=True)
    cases = stated(model)
    rows = []
    for name in list(cases)[:1] if given.only_right else cases:
        right = mapping.apply(cases[name].logits(torch.arange(count))).argmax(1).numpy() == labels
        rows.append((right.mean(), name))
    for accuracy, name in sorted(rows, key=lambda row: -row[0]):
        shares = []
        for size in sizes:
            draws = [rng.permutation(count)[:size] for _ in range(given.draws)]
            shares.append(np.mean([is_noticed(cases[name], mapping, labels, drawn) for drawn in draws]))
        cells = [f"{100 * accuracy:.1f}", *(f"{100 * share:.0f} %" for share in shares)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
