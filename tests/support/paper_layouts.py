"""RIVAL10 and ImageNet-X in miniature, in the official layouts, for the commands of docs/reproduce.md."""

from __future__ import annotations

import base64
import io
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

from factor_worlds import random_answers, write_annotations, write_model_types, write_result_tree
from unswayed.sources.imagenet_x import load_annotations

SIDE = 96


def rival10(folder: Path) -> dict[str, str]:
    """Ships on blue and dogs on green: three photographs of each to train on and two to test on, one attribute each."""
    root = folder / "RIVAL10"
    rng = np.random.default_rng(0)
    for split, count in (("train", 3), ("test", 2)):
        for place in ("ordinary", "entire_object_masks"):
            (root / split / place).mkdir(parents=True)
        for number in range(2 * count):
            wnid, attribute, color = (("n03095699", "metallic", 2), ("n02099712", "ears", 1))[number % 2]
            stem = f"{wnid}_{split}{number}"
            pixels = rng.integers(0, 60, (SIDE, SIDE, 3), dtype=np.uint8)
            pixels[..., color] += 120
            mask, part = np.zeros((2, SIDE, SIDE), np.uint8)
            mask[30:70, 20 + number : 70], part[35:50, 30:45] = 255, 255
            pixels[mask > 0] = rng.integers(60, 255, (int((mask > 0).sum()), 3))
            Image.fromarray(pixels).save(root / split / "ordinary" / f"{stem}.JPEG")
            Image.fromarray(mask).save(root / split / "entire_object_masks" / f"{stem}.JPEG")
            content = {attribute: _png(part), "entire-object": _png(mask)}
            (root / split / "ordinary" / f"{stem}_attr_dict.pkl").write_bytes(pickle.dumps(content))
    groups = folder / "groups.csv"
    groups.write_text("model,training\nresnet50,standard\nrobust,adversarial\nsimclr,contrastive\nclip,contrastive\n")
    return {
        "RIVAL10": str(root),
        "RESNET50": _small_network(folder / "resnet.pth", "test_resnet"),
        "ROBUST": "lite:0",
        # The checkpoint of Lightning Bolts: an encoder, and the projection that training needs.
        "SIMCLR": _small_network(folder / "simclr.ckpt", "test_resnet", "encoder.", "projection."),
        "DEIT": _small_network(folder / "deit.pth", "test_vit"),
        "CLIP": "lite:0",
        "TRAINING": str(groups),
    }


def _small_network(file: Path, architecture: str, *prefixes: str) -> str:
    """The spec of one of timm's test networks with random weights in a checkpoint, as a head's base may be."""
    import timm
    import torch

    torch.manual_seed(0)
    state = timm.create_model(architecture, pretrained=False).state_dict()
    if prefixes:
        encoder, other = prefixes
        state = {f"{encoder}{name}": tensor for name, tensor in state.items()} | {f"{other}weight": torch.ones(2, 2)}
    torch.save({"state_dict": state, "epoch": 800, "hyper_parameters": {"batch_size": 256}}, file)
    return f"timm:{architecture}?checkpoint={file}"


def imagenet_x(folder: Path) -> dict[str, str]:
    """The annotations of 400 images, two models' predictions for them, and a small tree of result tables."""
    annotations = write_annotations(folder / "imagenet_x" / "annotations")
    write_model_types(annotations.parent)
    write_result_tree(folder / "results")
    known = load_annotations("top", folder=annotations)
    predictions = folder / "model_predictions" / "base"
    predictions.mkdir(parents=True)
    for seed, name in enumerate(("ResNet50", "ViT")):
        answers = random_answers([f"{key}.JPEG" for key in known.keys], known.labels, seed)
        answers.write_csv(predictions / f"{name}.csv")
    return {"IMAGENETX": str(annotations), "PREDICTIONS": str(predictions), "RESULTS": str(folder / "results")}


def _png(levels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue())
