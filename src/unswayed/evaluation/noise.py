"""RIVAL10's noise and ablation: a picture at the model's input size, changed in a region at a level, and the answers.

Noise is added before the model's own normalization and the sum is clipped to [0, 1], as in the released code
(Moayeri et al., CVPR 2022), which works at 224×224.

result = run_probe(NoiseProbe(open_model("lite:0"), open_source("sample"), "results", SensitivitySettings()))
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from unswayed.choices import Convention, Frame
from unswayed.errors import BadPicture, UserError, check_known
from unswayed.files.whole import Json, canonical, parquet_columns
from unswayed.jobs.parts import ItemTable
from unswayed.jobs.resources import kept_heap
from unswayed.models import Classifier
from unswayed.scene import Scene, frame
from unswayed.sources import Source

from .probes import Probe, answers, source_mapping
from .settings import SensitivitySettings

# As published: linf levels are standard deviations in 255ths, l2 levels are norms of the whole noise.
LEVELS: dict[str, tuple[float, ...]] = {
    "linf": tuple(float(level) for level in range(30, 211, 30)),
    "l2": tuple(float(level) for level in range(25, 201, 25)),
}
REGIONS = ("foreground", "background", "everything")
GRAY = 0.5


@dataclass(frozen=True)
class Variant:
    """One changed picture: norm `linf`, `l2`, `grey` or `clean` (no level), the region's name, the seed's number."""

    norm: str
    level: float | None
    region: str
    seed: int = 0


def at_input(
    scene: Scene, size: int, how: Frame = "object", convention: Convention = "default"
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The framed scene at the model's input size, (size, size, 3) uint8, and its regions' masks, (size, size) bool.

    The picture is resized and not cropped, as RIVAL10's 224×224 pictures go into a model: a center crop would cut
    objects. Regions: foreground, background, everything, and each part that still covers a pixel. convention:
    `released` resizes picture and masks as torchvision does, in one step, and masks stay soft, float32 in [0, 1].
    """
    if convention == "released":
        framed = scene if how == "squash" else frame(scene, how)
        bilinear = Image.Resampling.BILINEAR
        image = np.array(Image.fromarray(framed.image).resize((size, size), bilinear))
        soft: dict[str, np.ndarray] = {}
        for name, part in {"foreground": framed.mask, **framed.parts}.items():
            levels = Image.fromarray((255 * part).astype(np.uint8)).resize((size, size), bilinear)
            soft[name] = np.asarray(levels, np.float32) / 255
        object_regions(soft["foreground"], scene.id)
        soft |= {"background": 1 - soft["foreground"], "everything": np.ones((size, size), np.float32)}
        return image, {name: mask for name, mask in soft.items() if mask.any()}
    framed = frame(scene, how)
    picture = Image.fromarray(framed.image)
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BICUBIC)
    masks = object_regions(_shrunk(framed.mask, size), scene.id)
    for name, part in framed.parts.items():
        mask = _shrunk(part, size) > 0.5
        if name not in masks and mask.any():
            masks[name] = mask
    return np.array(picture), masks


def object_regions(mask: np.ndarray, name: str = "the scene") -> dict[str, np.ndarray]:
    """The masks of `REGIONS` from an object's mask (H, W) in [0, 1]; raises BadPicture if it is empty or full."""
    inside = mask > 0.5
    if not inside.any():
        raise BadPicture(f"{name}: the mask is empty at the model's input size, so there is no foreground for noise")
    if inside.all():
        raise BadPicture(f"{name}: the mask covers the whole picture, so there is no background for noise")
    return {"foreground": inside, "background": ~inside, "everything": np.ones_like(inside)}


def draw_noise(scene_id: str, size: int, seed: int) -> np.ndarray:
    """Standard normal noise (3, size, size) float32 of one picture and seed, the same in every batch.

    Every level and region of a picture scales and masks the same draw, so that new noise does not disturb a
    curve over levels.
    """
    key = hashlib.blake2b(canonical([seed, scene_id, size]).encode(), digest_size=8).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(key))).standard_normal((3, size, size), dtype=np.float32)


def add_noise(
    picture: torch.Tensor, noise: torch.Tensor, masks: torch.Tensor, norm: str, levels: torch.Tensor
) -> torch.Tensor:
    """The picture under noise in each region: (3, H, W) in [0, 1] -> (V, 3, H, W) in [0, 1].

    noise: (3, H, W) standard normal; masks: (V, H, W), 1 where noise is added; levels: (V,), a standard deviation
    (`linf`: clip(x + ε·n·m)) or a norm (`l2`: clip(x + ε·n·m / ‖n·m‖₂)), in the picture's units.
    """
    check_known("norm", [norm], LEVELS)
    if not bool((masks != 0).flatten(1).any(1).all()):
        raise BadPicture("a region's mask is empty, so no noise can be added", allowed="at least one pixel")
    placed = noise * masks[:, None].to(noise.dtype)
    if norm == "l2":
        levels = levels / torch.linalg.vector_norm(placed, dim=(1, 2, 3))
    return placed.mul_(levels.view(-1, 1, 1, 1)).add_(picture).clamp_(0, 1)


def ablate(picture: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """The picture with each region set to gray 0.5: (3, H, W) and (V, H, W), soft or not -> (V, 3, H, W)."""
    weights = masks[:, None].to(picture.dtype)
    return picture * (1 - weights) + GRAY * weights


def plan_variants(
    regions: Sequence[str], levels: Mapping[str, Sequence[float]], seeds: int, ablation: bool
) -> list[Variant]:
    """Every variant of one picture, norm by norm and seed by seed; gray everywhere is excluded."""
    variants = [
        Variant(norm, level, region, seed)
        for norm, chosen in levels.items()
        for seed in range(seeds)
        for level in chosen
        for region in regions
    ]
    return variants + [Variant("grey", None, region) for region in regions if ablation and region != "everything"]


def changed(
    picture: torch.Tensor,
    masks: Mapping[str, torch.Tensor],
    noise: Callable[[int], torch.Tensor],
    variants: Sequence[Variant],
) -> torch.Tensor:
    """The variants of one picture, (3, S, S) in [0, 1] -> (V, 3, S, S); all of one norm and seed.

    noise: a seed's number -> standard normal noise (3, S, S). Norm `clean` returns the picture unchanged.
    """
    norm = variants[0].norm
    if norm == "clean":
        return picture[None]
    stacked = torch.stack([masks[variant.region] for variant in variants])
    if norm == "grey":
        return ablate(picture, stacked)
    scale = 255.0 if norm == "linf" else 1.0
    levels = torch.tensor([(variant.level or 0.0) / scale for variant in variants], device=picture.device)
    return add_noise(picture, noise(variants[0].seed), stacked, norm, levels)


def choose_levels(norm: str, text: str | None) -> dict[str, tuple[float, ...]]:
    """Norm -> levels for `linf`, `l2` or `both`: those in `text`, or the published ones if None."""
    check_known("norm", [norm], (*LEVELS, "both"))
    if norm == "both":
        if text is not None:
            raise UserError(
                "levels of one norm have no meaning for the other", allowed="--levels with --norm linf or l2"
            )
        return dict(LEVELS)
    return {norm: LEVELS[norm] if text is None else parse_levels(text, norm)}


def parse_levels(text: str, norm: str) -> tuple[float, ...]:
    """`30,60,90` as numbers above 0, in ascending order without repeats."""
    try:
        numbers = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError:
        numbers = []
    if not numbers or not all(np.isfinite(number) and number > 0 for number in numbers):
        published = ",".join(f"{level:g}" for level in LEVELS[norm])
        raise UserError(
            f"the levels are '{text}'", allowed=f"numbers above 0, separated by commas; published: {published}"
        )
    return tuple(numbers)


def _shrunk(mask: np.ndarray, size: int) -> np.ndarray:
    if mask.shape == (size, size):
        return mask
    how = cv2.INTER_AREA if min(mask.shape) > size else cv2.INTER_LINEAR
    return cv2.resize(np.asarray(mask, np.float32), (size, size), interpolation=how)


KIND = "noise"
SCHEMA: pa.Schema = parquet_columns(
    "model source_id label:int64 norm level:float64 region seed:int64 predicted:int64 probability:float64 "
    "true_probability:float64 correct:bool notes"
)
# On a CPU, convolutions have faster kernels from 16 pictures on: EfficientNet-Lite0 takes 11 ms per picture in batches
# of 4 or 8, and 8 ms in batches of 16 to 32.
BATCH_SIZES = {"cpu": 32, "cuda": 256}
# The settings of a study that decide which changes are made to a picture, besides the levels.
CHANGES = ("seeds", "attributes", "ablation", "frame", "convention")


# A label, notes, the picture and the masks of its regions.
LabeledPicture = tuple[int, str | None, np.ndarray, dict[str, np.ndarray]]


class NoiseProbe(Probe[LabeledPicture]):
    """FOLDER/noise/<model>.parquet: one row per picture and variant, the clean picture first."""

    def __init__(self, model: Classifier, source: Source, folder: str | Path, settings: SensitivitySettings) -> None:
        source.require_masks(", so noise cannot be added to the object")
        self.model, self.source, self.settings = model, source, settings
        self.mapping, self.levels = source_mapping(model, source), choose_levels(settings.norm, settings.levels)
        kind = str(model.device).partition(":")[0]
        self.batch_size = settings.batch_size or BATCH_SIZES.get(kind, BATCH_SIZES["cuda"])
        changes = {"levels": self.levels, **{name: getattr(settings, name) for name in CHANGES}}
        described = {
            "probe": KIND,
            "source": source.spec,
            "classes_mapped": self.mapping.to_json(),
            **model.card(),
            **{name: value for name, value in changes.items() if (name, value) != ("convention", "default")},
        }
        super().__init__(ItemTable(Path(folder) / KIND / f"{model.slug}.parquet", described, source.ids, SCHEMA))
        self.enter_context(kept_heap(kind))

    def load(self, picture: str) -> LabeledPicture:
        scene = self.source[picture]
        crop, settings = self.model.transform.crop, self.settings
        return (labeled(scene), noted(scene), *at_input(scene, crop, settings.frame, settings.convention))

    def measure(self, picture: str, loaded: LabeledPicture) -> list[Json]:
        """The predictions for the picture as it is and in all variants, in as few passes as the batch size allows."""
        (label, notes, image, masks), model, settings = loaded, self.model, self.settings
        regions = [name for name in masks if name in REGIONS or settings.attributes]
        planned = plan_variants(regions, self.levels, settings.seeds, settings.ablation)
        variants = [Variant("clean", None, "none"), *planned]
        pixels = torch.from_numpy(image).to(model.device).permute(2, 0, 1).float().div_(255)
        placed = {name: torch.from_numpy(mask).to(model.device) for name, mask in masks.items()}

        @functools.cache
        def noise(seed: int) -> torch.Tensor:
            return torch.from_numpy(draw_noise(picture, pixels.shape[-1], seed)).to(pixels.device)

        shared: Json = {"model": model.name, "source_id": picture, "label": label, "notes": notes}
        rows = []
        for start in range(0, len(variants), self.batch_size):
            chunk = variants[start : start + self.batch_size]
            # Consecutive variants of one norm and seed are made together.
            runs = [list(run) for _, run in groupby(chunk, key=lambda variant: (variant.norm, variant.seed))]
            inputs = torch.cat([changed(pixels, placed, noise, run) for run in runs])
            answered = answers(model.logits(model.transform.normalize(inputs)), self.mapping, label)
            rows += [shared | asdict(variant) | answer for variant, answer in zip(chunk, answered, strict=True)]
        return rows


def labeled(scene: Scene) -> int:
    """The scene's label; raises BadPicture for a scene without one."""
    if scene.label is None:
        raise BadPicture(f"{scene.id}: it has no label, so no prediction for it can be right or wrong")
    return scene.label


def noted(scene: Scene) -> str | None:
    """What was done to the photograph or its masks, for its rows; None if nothing."""
    return "; ".join(scene.notes) or None
