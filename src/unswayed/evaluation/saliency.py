"""Heat maps of a classifier's predictions, by the grad-cam library, and their alignment with the object.

    maps = heat_maps(open_model("lite:0"), pictures, targets=None, method="layercam")
    result = run_probe(SaliencyProbe(open_model("lite:0"), open_source("sample"), "results", "layercam"))

The layer and its reshaping come from the model (`Classifier.heat_layer`), so that convolutional networks and
vision transformers are handled in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import torch

from unswayed.benchmark import Benchmark
from unswayed.choices import Frame
from unswayed.errors import BadPicture, UserError, check_known, need
from unswayed.files.whole import Json, parse_json
from unswayed.jobs.parts import ItemTable
from unswayed.masks.checks import mask_origins, mask_warnings
from unswayed.models import Classifier
from unswayed.models.label_mapping import LabelMapping, map_labels
from unswayed.models.runtime import evaluating
from unswayed.models.transforms import Geometry
from unswayed.scene import MaskOrigin
from unswayed.sources import Source
from unswayed.sources.pictures import read_mask, read_picture

from .measures import MEASURES, alignment
from .noise import at_input, labeled, noted
from .probes import Probe, answers, source_mapping

# our name -> (the class in pytorch_grad_cam, maximum batch size: scorecam makes one pass per channel)
METHODS: dict[str, tuple[str, int | None]] = {
    "gradcam": ("GradCAM", None),
    "layercam": ("LayerCAM", None),
    "hirescam": ("HiResCAM", None),
    "gradcam++": ("GradCAMPlusPlus", None),
    "xgradcam": ("XGradCAM", None),
    "elementwise": ("GradCAMElementWise", None),
    "eigencam": ("EigenCAM", None),
    "eigengradcam": ("EigenGradCAM", None),
    "scorecam": ("ScoreCAM", 1),
}


def heat_maps(
    model: Classifier,
    images: Sequence[np.ndarray],
    targets: Sequence[int] | None = None,
    method: str = "layercam",
    batch_size: int = 16,
) -> np.ndarray:
    """Heat maps of pictures of one shape, by the model's own transform: (N, H, W) float32 in [0, 1].

    images: (H, W, 3) uint8 each, or one (N, H, W, 3) array; targets: the explained class of each picture, the
    predicted one if None; method: a name of `METHODS`. Pixels outside the model's crop are 0. A map without any
    positive evidence is 0 everywhere; any other has the maximum 1.
    """
    if len({image.shape for image in images}) > 1:
        raise UserError("the pictures have different shapes", run="heat_maps once for each shape")
    if targets is not None and len(targets) != len(images):
        raise UserError(
            f"there are {len(targets)} targets for {len(images)} pictures", allowed="one per picture, or None"
        )
    shape = images[0].shape[:2] if len(images) else (0, 0)
    maps = np.zeros((len(images), *shape), np.float32)
    with explainer(model, method, batch_size) as explain:
        for start in range(0, len(images), batch_size):
            chunk = slice(start, start + batch_size)
            inputs = torch.stack([model.prepare(image) for image in images[chunk]])
            of_inputs = explain(inputs, None if targets is None else targets[chunk])
            for index, heat in enumerate(of_inputs, start):
                maps[index] = on_picture(heat, model.transform.geometry, *shape)
    return maps


@contextlib.contextmanager
def explainer(
    model: Classifier, method: str = "layercam", batch_size: int = 16
) -> Iterator[Callable[[torch.Tensor, Sequence[int] | None], np.ndarray]]:
    """A function from transformed inputs (N, 3, crop, crop) and classes to maps (N, crop, crop) in [0, 1].

    Its hooks are removed from the model at the end of the block.
    """
    check_known("saliency method", [method], METHODS)
    need("studies", "pytorch_grad_cam")
    import pytorch_grad_cam
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    name, most = METHODS[method]
    layer = model.heat_layer
    with evaluating(model.module):
        cam = getattr(pytorch_grad_cam, name)(
            model=model.module, target_layers=[layer.module(model.module)], reshape_transform=layer.reshape_transform
        )
        if hasattr(cam, "batch_size"):
            cam.batch_size = batch_size

        def explain(inputs: torch.Tensor, targets: Sequence[int] | None = None) -> np.ndarray:
            wanted = None if targets is None else [ClassifierOutputTarget(int(target)) for target in targets]
            step = most or max(1, len(inputs))
            maps = []
            for start in range(0, len(inputs), step):
                chunk = slice(start, start + step)
                # The model's weights are frozen: gradients flow only if the input requires them.
                part = inputs[chunk].to(model.device).detach().requires_grad_(True)
                maps.append(cam(input_tensor=part, targets=None if wanted is None else wanted[chunk]))
            return unit_peak(np.concatenate(maps)) if maps else np.zeros((0, *inputs.shape[-2:]), np.float32)

        try:
            yield explain
        finally:
            # The library's own context manager swallows an IndexError; this one lets every error through.
            cam.activations_and_grads.release()


def unit_peak(maps: np.ndarray) -> np.ndarray:
    """Maps (N, H, W) with nan as 0, nothing below 0 and a maximum of 1 each; an empty map stays 0."""
    maps = np.maximum(np.nan_to_num(np.asarray(maps, np.float32)), 0)
    peak = maps.max(axis=(1, 2), keepdims=True)
    return np.divide(maps, peak, out=np.zeros_like(maps), where=peak > 1e-6)


def on_picture(heat: np.ndarray, geometry: Geometry, high: int, wide: int) -> np.ndarray:
    """A map of the crop at its position in the picture: (crop, crop) -> (high, wide), 0 outside the crop."""
    tall, broad = geometry.size(high, wide)
    above, before, _, _ = geometry.window(high, wide)
    # Where the crop starts in the resized picture; a crop larger than the picture starts outside it.
    top = above * tall / high if tall >= len(heat) else -((len(heat) - tall) // 2)
    left = before * broad / wide if broad >= len(heat) else -((len(heat) - broad) // 2)
    across, down = broad / wide, tall / high
    matrix = np.array([[across, 0, (across - 1) / 2 - left], [0, down, (down - 1) / 2 - top]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    placed = cv2.warpAffine(heat, matrix, (wide, high), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    rows, columns = np.arange(high) * down + (down - 1) / 2 - top, np.arange(wide) * across + (across - 1) / 2 - left
    seen = _inside(rows, len(heat))[:, None] & _inside(columns, len(heat))
    return np.where(seen, placed, 0).astype(np.float32)


def _inside(positions: np.ndarray, side: int) -> np.ndarray:
    return (positions > -0.5 - 1e-6) & (positions < side - 0.5 + 1e-6)


KIND = "saliency"
SCHEMA: pa.Schema = pa.schema(
    [(name, pa.string()) for name in ("model", "method", "sample_id", "source_id", "edit")]
    + [("label", pa.int64()), ("predicted", pa.int64()), ("correct", pa.bool_())]
    + [(name, pa.float64()) for name in ("probability", "true_probability", *MEASURES)]
    + [("notes", pa.string())]
)


@dataclass(frozen=True, eq=False)
class MaskedPicture:
    """One picture, its object and its label, at the size of the comparison of heat map and mask.

    image: (H, W, 3) uint8; mask: (H, W); whole: the picture has the model's input size and must not be cropped;
    notes: what was done to the photograph or its mask, None if nothing; about_mask: the notes about it, with
    warnings about its mask as it was given; mask_origin: what made the mask, None if it was not made automatically.
    """

    source_id: str
    edit: str
    label: int
    image: np.ndarray
    mask: np.ndarray
    whole: bool
    notes: str | None = None
    about_mask: tuple[str, ...] = ()
    mask_origin: MaskOrigin | None = None


class SaliencyProbe(Probe[MaskedPicture]):
    """FOLDER/saliency/<model>.parquet: alignment of the predicted class's heat map with the object.

    A source's pictures go into the model whole in the given framing, as for noise; a benchmark's pictures, edits
    included, by the model's own transform, as they were evaluated.
    """

    def __init__(
        self,
        model: Classifier,
        pictures: Source | Benchmark,
        folder: str | Path,
        method: str = "layercam",
        frame: Frame = "object",
    ) -> None:
        self.model, self.method = model, method
        self.load_picture, ids, self.mapping, described = opened_pictures(pictures, model, frame)
        settings = {"probe": KIND, **described, "method": method, **model.card()}
        settings["heat_layer"] = model.heat_layer.to_json()
        path = Path(folder) / KIND / f"{model.slug}.parquet"
        super().__init__(ItemTable(path, settings, list(ids), SCHEMA, "sample_id"))
        self.explain = self.enter_context(explainer(model, method))

    def load(self, picture: str) -> MaskedPicture:
        return self.load_picture(picture)

    def measure(self, picture: str, loaded: MaskedPicture) -> list[Json]:
        answer, heat = answer_and_heat(self.model, loaded, self.mapping, self.explain)
        try:
            measures = alignment(heat, loaded.mask)
        except BadPicture as problem:
            raise BadPicture(f"{picture}: {problem}") from None
        named: Json = {"sample_id": picture, "source_id": loaded.source_id, "edit": loaded.edit}
        named |= {"label": loaded.label, "notes": loaded.notes}
        return [{"model": self.model.name, "method": self.method, **named, **answer, **measures}]


def answer_and_heat(
    model: Classifier, picture: MaskedPicture, mapping: LabelMapping, explain: Callable[..., np.ndarray]
) -> tuple[Json, np.ndarray]:
    """The model's prediction for the picture, and the predicted class's heat map, (H, W) in [0, 1]."""
    if picture.whole:
        inputs = model.from_pixels(torch.from_numpy(picture.image)[None])
    else:
        inputs = model.prepare(picture.image)[None]
    logits = model.logits(inputs)
    answer = answers(logits, mapping, picture.label)[0]
    # The model's own class behind its prediction: the largest of that group.
    strongest = max(mapping.members[answer["predicted"]], key=lambda index: float(logits[0, index]))
    heat = explain(inputs, [strongest])[0]
    if not picture.whole:
        heat = on_picture(heat, model.transform.geometry, *picture.mask.shape)
    return answer, heat


def scene_pictures(
    source: Source, model: Classifier, frame: Frame = "object"
) -> tuple[Callable[[str], MaskedPicture], LabelMapping]:
    """A loader by scene id, with whole pictures at the model's input size, and the mapping to their classes."""
    source.require_masks(" to compare heat maps with")

    def load(scene_id: str) -> MaskedPicture:
        scene = source[scene_id]
        image, masks = at_input(scene, model.transform.crop, frame)
        about = (*scene.notes, *mask_warnings(scene.mask, scene.image))
        mask, origin = masks["foreground"], scene.mask_origin
        return MaskedPicture(scene.id, "original", labeled(scene), image, mask, True, noted(scene), about, origin)

    return load, source_mapping(model, source)


def opened_pictures(
    pictures: Source | Benchmark, model: Classifier, frame: Frame = "object"
) -> tuple[Callable[[str], MaskedPicture], dict[str, None], LabelMapping, dict[str, str]]:
    """A loader by sample id, the sample ids in order, the label mapping, and the settings that name the pictures."""
    if isinstance(pictures, Source):
        load_scene, mapping = scene_pictures(pictures, model, frame)
        ids = {f"{scene_id}/original/0": None for scene_id in pictures.ids}
        named = {"source": pictures.spec, "frame": frame}
        return lambda sample_id: load_scene(sample_id.rsplit("/", 2)[0]), ids, mapping, named
    benchmark: Benchmark = pictures
    manifest = benchmark.manifest.to_pylist()
    origins = mask_origins(manifest)
    shown = (row for row in manifest if row["status"] == "ok" and row["mask_path"] and row["label"] is not None)
    rows = {row["sample_id"]: row for row in shown}

    def load_row(sample_id: str) -> MaskedPicture:
        row = rows[sample_id]
        image, mask = read_picture(benchmark.root / row["path"]), read_mask(benchmark.root / row["mask_path"])
        # Edits may move the object away from the edges of the photograph, so only the original shows a wrong mask.
        warnings = mask_warnings(mask, image if row["edit"] == "original" else None)
        about = (*parse_json(row.get("notes") or "[]", f"the notes of {sample_id}"), *warnings)
        origin = origins.get(row["source_id"])
        return MaskedPicture(row["source_id"], row["edit"], row["label"], image, mask, False, None, about, origin)

    mapping = map_labels(model.labels, benchmark.labels, {row["label"] for row in rows.values()})
    return load_row, dict.fromkeys(rows), mapping, {"source": str(benchmark.root)}
