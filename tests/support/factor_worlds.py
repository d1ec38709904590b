"""A small made-up world of annotations in the files' own format, and models' answers over it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from unswayed.sources.imagenet_x import FACTORS, METACLASSES


def write_annotations(folder: Path, images: int = 400, seed: int = 0) -> Path:
    """A folder like the published one: `images` validation and a quarter as many training images, three prototypes."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    names = {
        "val": [f"ILSVRC2012_val_{i + 1:08d}.JPEG" for i in range(images)],
        "train": [f"n{rng.integers(10**7, 10**8):08d}_{i}.JPEG" for i in range(images // 4)],
    }
    for partition, files in names.items():
        labels = rng.integers(0, 1000, len(files))
        multi = rng.random((len(files), len(FACTORS))) < np.linspace(0.7, 0.05, len(FACTORS))
        multi[:, 0] |= ~multi.any(axis=1)
        # the top factor is the rarest of those ticked
        top = np.zeros_like(multi)
        top[np.arange(len(files)), len(FACTORS) - 1 - multi[:, ::-1].argmax(axis=1)] = True
        for which, flags in (("top", top), ("multi", multi)):
            lines = [
                json.dumps(
                    {"file_name": f, "class": int(c), **dict(zip(FACTORS, row.tolist(), strict=True)), "one_word": "x"}
                )
                for f, c, row in zip(files, labels, flags.astype(int), strict=True)
            ]
            (folder / f"imagenet_x_{partition}_{which}_factor.jsonl").write_text("\n".join(lines) + "\n")
    metaclass = [*METACLASSES[:16], "fish", "bottle"]
    rows = [f"n{i:08d},{metaclass[i % len(metaclass)]},{i % 100}" for i in range(1000)]
    (folder / "imagenet_1k_classes_to_100_metaclasses.csv").write_text("\n".join(["wnid,name,metaclass", *rows]) + "\n")
    real = [sorted({int(x) for x in rng.integers(0, 1000, rng.integers(0, 4))}) for _ in range(images)]
    (folder / "imagenet_real_labels.jsonl").write_text(json.dumps(real))
    (folder / "prototypical_paths.csv").write_text("\n".join(["file_name", *names["val"][:3]]) + "\n")
    return folder


def random_answers(file_names: list[str], labels: np.ndarray, seed: int, accuracy: float = 0.7) -> pl.DataFrame:
    """A model's CSV: right with the given chance, a random class otherwise, and a confidence."""
    rng = np.random.default_rng(seed)
    wrong = rng.integers(0, 1000, len(labels))
    predicted = np.where(rng.random(len(labels)) < accuracy, labels, wrong)
    columns = {"file_name": file_names, "predicted_class": predicted, "predicted_probability": rng.random(len(labels))}
    return pl.DataFrame(columns)


RESULT_SUMMARIES = ("worst_factor", "average", "worst_100_classes")


def write_table(path: Path, models: list[str], seed: int = 0, metaclasses: tuple[str, ...] = ()) -> pl.DataFrame:
    """A result table of made-up accuracies in the published columns."""
    rng = np.random.default_rng(seed)
    keys = {"model": models}
    if metaclasses:
        keys = {"model": np.repeat(models, len(metaclasses)).tolist(), "metaclass": list(metaclasses) * len(models)}
    rows = len(keys["model"])
    names = (*FACTORS, *RESULT_SUMMARIES) if not metaclasses else (*FACTORS, *RESULT_SUMMARIES[:2])
    table = pl.DataFrame({**keys, **{name: rng.uniform(0.3, 0.9, rows) for name in names}})
    path.parent.mkdir(parents=True, exist_ok=True)
    table.write_csv(path)
    return table


def write_result_tree(results: Path) -> None:
    """A folder like the published `results`: validation, the top factor, sets of models and of training runs."""
    place = results / "val" / "top_factor"
    jitter = [f"eval_crop100.0_wd1e-05_color{s}_id{i}" for s in ("1.0", "50.0") for i in range(5)]
    sweep = [f"eval_crop{crop}_wd1e-05_id{i}" for crop in ("100.0", "60.0", "20.0") for i in range(5)]
    sets = {
        "imagenet_testbed": [f"net{i}" for i in range(6)],
        "modelvshuman": ["MoCo", "PIRL", "net0"],
        "base": ["DINO", "ViT"],
        "crop": [*sweep, "eval_crop10.0_wd1e-05_id9"],
        "colorjitter": jitter,
        "colorjitter_crop": ["both0", "both1"],
        "adaptive_colorjitter": ["own0", "own1"],
    }
    for seed, (name, models) in enumerate(sets.items(), start=1):
        write_table(place / name / "class" / "accuracies_per_factor.csv", models, seed)
    write_table(place / "base" / "real_class" / "accuracies_per_factor.csv", ["DINO", "human"], 8)
    write_table(place / "base" / "class" / "accuracies_per_factor_metaclass.csv", ["DINO"], 9, ("dog", "bird"))


def write_model_types(package: Path) -> None:
    """The file of the published package that gives the models of `write_result_tree` their types."""
    types = {f"net{i}": ("STANDARD", "MORE", "LOW")[i % 3] for i in range(6)}
    types |= {"MoCo": "SSL", "PIRL": "SSL", "DINO": "SSL"}
    lines = [f"'{model}': ModelTypes.{kind}," for model, kind in types.items()]
    (package / "model_types.py").write_text(
        "class ModelTypes:\n    STANDARD = 'Supervised on ImageNet-1K'\n    MORE = 'Supervised on more data'\n"
        "    SSL = 'Self-supervised'\n    LOW = 'Low Accuracy CNN'\nmodel_types_map = {\n" + "\n".join(lines) + "\n}\n"
    )
