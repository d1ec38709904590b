"""A model that is measured on the photographs of its own training is not measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unswayed.analyses.drops.gate import check
from unswayed.benchmark import Benchmark, BuildSettings, build
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings, run_evaluation
from unswayed.evaluation.head_fitting import fit_head
from unswayed.evaluation.model_cards import sentences_in
from unswayed.evaluation.study import check_plausible
from unswayed.models import open_model
from unswayed.models.heads import trained_on
from unswayed.sources import open_source
from unswayed.views.report.drop_tables import remark_lines

CPU = EvaluateSettings(device="cpu")


def photographs(folder: Path, count: int, seed: int) -> Path:
    """`count` small pictures of each of two classes, with masks."""
    rng = np.random.default_rng(seed)
    for name, color in (("blue", (20, 20, 230)), ("red", (230, 20, 20))):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            image = rng.integers(90, 140, (40, 40, 3)).astype(np.uint8)
            image[10:30, 8:32] = color
            mask = np.zeros((40, 40), np.uint8)
            mask[10:30, 8:32] = 255
            Image.fromarray(image).save(folder / name / f"{number}.jpg")
            Image.fromarray(mask).save(folder / name / f"{number}_mask.png")
    return folder


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("head")
    photographs(root / "train", 4, seed=0)
    fit_head(f"folder:{root / 'train'}", "lite:0", root / "head", epochs=5, device="cpu")
    return root


def test_a_head_tested_on_its_training_photographs_is_not_measured(head: Path, tmp_path: Path) -> None:
    spec = f"head:{head / 'head'}"
    assert (head / "head/trained-on.bin").stat().st_size == 8 * 8
    settings = BuildSettings(recipe="original", renderer="paste", size=64, quality="off")
    build(f"folder:{head / 'train'}", tmp_path / "bench", settings)
    done = run_evaluation(tmp_path / "bench", [spec, f"mine={spec}+flip"], tmp_path / "out", CPU)
    for name in (spec, "mine"):
        assert f"{name}: 8 of the 8 photographs were in its training" in str(done.warnings[name])
        assert f"{name}: 8 of the 8 photographs" in str(remark_lines(tmp_path / "out", [name]))
    assert check(tmp_path / "out", min_accuracy={"original": 2}, models=[spec]).verdict == "not measured"
    model = open_model(spec, device="cpu")
    for place, pictures in {
        "source": open_source(f"folder:{head / 'train'}"),
        "built": Benchmark(tmp_path / "bench"),
    }.items():
        check_plausible(model, pictures, tmp_path / place)
        assert "8 of the 8 photographs were in its training" in sentences_in(tmp_path / place)[0]


def test_new_photographs_and_a_few_of_the_training_are_measured(head: Path, tmp_path: Path) -> None:
    spec, folder = f"head:{head / 'head'}", photographs(tmp_path / "new", 12, seed=1)
    assert not run_evaluation(f"images:{folder}", [spec], tmp_path / "new-out", CPU).warnings[spec]
    shutil.copy(head / "train/red/0.jpg", folder / "red/known.jpg")
    done = run_evaluation(f"images:{folder}", [spec], tmp_path / "out", CPU)
    assert done.warnings[spec] == [f"{spec}: 1 of the 25 photographs were in its training, so its numbers are too good"]
    (card,) = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")]
    assert card["suspicion"] is None and card["warnings"] == done.warnings[spec]


def test_photographs_of_the_base_count_and_a_damaged_record_is_refused(head: Path, tmp_path: Path) -> None:
    photographs(tmp_path / "more", 3, seed=2)
    fit_head(f"folder:{tmp_path / 'more'}", f"head:{head / 'head'}", tmp_path / "second", epochs=1, device="cpu")
    model = open_model(f"head:{tmp_path / 'second'}", device="cpu")
    assert len(trained_on(model.origin)) == 8 + 6
    assert len(trained_on(open_model("lite:0", device="cpu").origin)) == 0
    (tmp_path / "second/trained-on.bin").write_bytes(b"12345")
    with pytest.raises(UserError, match="is damaged"):
        trained_on(model.origin)
