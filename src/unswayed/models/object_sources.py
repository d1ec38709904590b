"""`detector:` and `segmenter:`: a file, or a model of torchvision or transformers.

`detector:torchvision:NAME[/WEIGHTS]`, `segmenter:torchvision:NAME`; `?checkpoint=FILE&labels=…` loads weights of your
own. `detector:transformers:NAME` (DETR, RT-DETR, YOLOS; Grounding DINO and OWL-ViT with the benchmark's class names),
`segmenter:transformers:NAME` (SegFormer, Mask2Former, …). Each library prepares pictures for its models itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unswayed.errors import UserError, check_known
from unswayed.files.downloads import quick_hub
from unswayed.files.whole import Json
from unswayed.jobs import choose_device
from unswayed.labels import LabelSpace, Task, imagenet
from unswayed.specs import Spec

from .box_decoding import corners
from .from_torchvision import published, state_of
from .label_mapping import labels_from
from .libraries import torchvision
from .object_files import open_object_file
from .objects import LEAST_SCORE, SCORE, ObjectModel
from .opening import MODELS
from .runtime import true_float32
from .weights import available, load_foreign, weights_hash

models = torchvision.models
_KINDS = {"detect": "detection", "segment": "segmentation"}


def _open(
    spec: Spec, labels: LabelSpace | None = None, *, task: Task, device: str | None = None, precision: str | None = None
) -> ObjectModel:
    library, colon, name = spec.name.partition(":")
    if not colon or library not in _LIBRARIES:
        return open_object_file(spec, task, device)
    if precision not in (None, "fp32"):
        raise UserError(f"{spec} runs in fp32, not in {precision}", allowed="--precision fp32")
    return _LIBRARIES[library](spec, name, labels, task, str(choose_device(device)))


def _torchvision(spec: Spec, name: str, labels: LabelSpace | None, task: Task, device: str) -> ObjectModel:
    spec.check_options("checkpoint", "labels", "score")
    name, _, wanted = name.partition("/")
    kind = getattr(models, _KINDS[task])
    check_known(f"{spec.kind} of torchvision", [name], models.list_models(kind))
    chosen = published(name, wanted)
    space = labels_from(spec.options) or LabelSpace(f"torchvision {chosen.name}", tuple(chosen.meta["categories"]))
    state = state_of(spec, chosen)
    module = models.get_model(name, weights=None, weights_backbone=None, num_classes=len(space))
    load_foreign(module, state, spec.options.get("checkpoint", str(spec)))
    module = module.to(device).eval().requires_grad_(False)

    def detect(pictures: list[np.ndarray]) -> list[Any]:
        tensors = [_tensor(picture, device) for picture in pictures]
        with torch.inference_mode(), true_float32(device):
            detections = module(tensors)
        return [[part[key].cpu().numpy() for key in ("boxes", "labels", "scores")] for part in detections]

    def mapped(picture: np.ndarray) -> np.ndarray:
        prepared = chosen.transforms()(_tensor(picture, device))
        with torch.inference_mode(), true_float32(device):
            scores = module(prepared[None])["out"]
        whole = torch.nn.functional.interpolate(scores, picture.shape[:2], mode="bilinear", align_corners=False)
        return np.asarray(whole[0].argmax(0).cpu())

    find = detect if task == "detect" else lambda pictures: list(map(mapped, pictures))
    return _model(spec, find, space, task, device, module, {"library": f"torchvision {torchvision.__version__}"})


def _transformers(spec: Spec, name: str, labels: LabelSpace | None, task: Task, device: str) -> ObjectModel:
    MODELS.require("transformers")
    import transformers

    spec.check_options("score")

    def opened(kind: Any) -> Any:
        return kind.from_pretrained(name, trust_remote_code=False)

    with available(spec, f"give the folder of a {spec.kind} of transformers"), quick_hub(name):
        config, processor = opened(transformers.AutoConfig), opened(transformers.AutoImageProcessor)
        worded = type(config) in transformers.MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING
        if task == "segment":
            semantic = type(config) in transformers.MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING
            kind = "SemanticSegmentation" if semantic else "UniversalSegmentation"
        else:
            kind = "ZeroShotObjectDetection" if worded else "ObjectDetection"
        reader = processor
        if worded:
            processor = opened(transformers.AutoProcessor)
        module = opened(getattr(transformers, f"AutoModelFor{kind}")).to(device).eval().requires_grad_(False)
    named = {int(index): str(words) for index, words in config.id2label.items()}
    classes = tuple(named.get(index, f"class {index}") for index in range(max(named, default=-1) + 1))
    space = labels or imagenet() if worded else LabelSpace(name, classes)
    grounded = config.model_type.endswith("grounding-dino")
    words = [f"{word.lower().replace('.', '')}." if grounded else word for word in space.classes]

    def ran(picture: np.ndarray, text: object = None) -> tuple[Any, Any]:
        asked = {} if text is None else {"text": text}
        inputs = processor(images=picture, return_tensors="pt", **asked).to(device)
        with torch.inference_mode(), true_float32(device):
            return module(**inputs), inputs

    def boxed(picture: np.ndarray) -> list[np.ndarray]:
        outputs, _ = ran(picture, [words] if worded else None)
        [found] = reader.post_process_object_detection(
            outputs, threshold=LEAST_SCORE, target_sizes=torch.tensor([picture.shape[:2]])
        )
        return [found[key].cpu().numpy() for key in ("boxes", "labels", "scores")]

    def mapped(picture: np.ndarray) -> np.ndarray:
        outputs, _ = ran(picture)
        [found] = processor.post_process_semantic_segmentation(outputs, target_sizes=[picture.shape[:2]])
        return np.asarray(found.cpu())

    find: Callable[[np.ndarray], Any] = mapped if task == "segment" else boxed
    if grounded:
        find = _grounding(ran, processor.tokenizer, words, config.max_text_len)
    origin: Json = {"library": f"transformers {transformers.__version__}"}
    origin |= {"settings": {"words": words}} if worded else {}
    return _model(spec, lambda pictures: list(map(find, pictures)), space, task, device, module, origin)


def _grounding(
    ran: Callable[[np.ndarray, object], tuple[Any, Any]], tokenizer: Any, words: list[str], most: int
) -> Callable[[np.ndarray], Any]:
    """How Grounding DINO finds these words in a picture: a box means the word whose tokens fit it best, as in
    its evaluation on COCO; words that do not fit into one text are asked about in several."""
    stop, room, groups = tokenizer.convert_tokens_to_ids("."), most - 2, [list[int]()]  # the text has two ends
    for index, tokens in enumerate(tokenizer(words, add_special_tokens=False)["input_ids"]):
        if len(tokens) > room:
            groups, room = [*groups, []], most - 2
        groups[-1].append(index)
        room -= len(tokens)

    def find(picture: np.ndarray) -> Any:
        parts = []
        for group in groups:
            outputs, inputs = ran(picture, " ".join(words[index] for index in group))
            ids = inputs["input_ids"][0]
            phrase = (ids == stop).cumsum(0)
            own = torch.stack([(phrase == at) & (ids != stop) for at in range(len(group))]).float()
            own[0, 0] = 0  # the beginning of the text
            fit = outputs.logits[0, :, : len(ids)].sigmoid() @ (own / own.sum(1, keepdim=True).clamp(min=1)).T
            scores, best = fit.max(1)
            parts.append([part.cpu().numpy() for part in (outputs.pred_boxes[0], best, scores)])
            parts[-1][1] = np.array(group)[parts[-1][1]]
        boxes, classes, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
        return corners(boxes, "cxcywh") * (picture.shape[1::-1] * 2), classes, scores

    return find


def _model(
    spec: Spec, find: Callable[..., Any], space: LabelSpace, task: Task, device: str, module: Any, origin: Json
) -> ObjectModel:
    score = spec.number("score", float, 0, 1, SCORE)
    size = sum(weight.nbytes for weight in module.state_dict().values() if isinstance(weight, torch.Tensor))
    return ObjectModel(
        find, space, task, str(spec), None, score if task == "detect" else 0.0, device, "fp32", origin,
        weights_hash(module), size,
    )  # fmt: skip


def _tensor(picture: np.ndarray, device: str) -> torch.Tensor:
    """(H, W, 3) uint8 -> (3, H, W) float32 in [0, 1]."""
    return torch.from_numpy(picture).to(device).permute(2, 0, 1).float().div_(255)


def names() -> list[str]:
    """The models of torchvision that find objects, without a network."""
    return [f"torchvision:{name}" for kind in _KINDS.values() for name in models.list_models(getattr(models, kind))]


_LIBRARIES: dict[str, Callable[..., ObjectModel]] = {"torchvision": _torchvision, "transformers": _transformers}
open_detector = functools.partial(_open, task="detect")
open_segmenter = functools.partial(_open, task="segment")
