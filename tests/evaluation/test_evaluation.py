"""Evaluation end to end on a small benchmark: rows, cards, resuming, failures, sharing one pass."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import unswayed
from color_world import CLASSES, write_benchmark
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings, cards, decoding, read_predictions, run_evaluation
from unswayed.models import open_model


def test_rows_and_columns(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    frame = unswayed.evaluate(benchmark, own_models + "good", tmp_path, EvaluateSettings(device="cpu"))
    assert frame.height == 48
    assert frame.columns == [
        *("model", "sample_id", "source_id", "file_name", "edit", "run", "label", "predicted", "probability"),
        *("true_probability", "correct", "rank", "top5", "top5_probabilities", "energy", "object_survives"),
        *("picture", "subset_correct", "task", "iou", "box", "mask", "found_class", "boxes", "box_scores"),
        *(
            "box_classes",
            "box_matches",
            "truth_classes",
            "answer_text",
            "outcome",
            "choice_position",
            "tokens",
        ),
        *("white_box", "suspicion", "chance", "doubted_masks"),
    ]
    originals = frame.filter(edit="original")
    assert originals["correct"].all()
    assert originals["rank"].max() == 1
    assert frame["sample_id"].to_list()[:2] == ["photo-000/original/0", "photo-000/dark/0"]
    assert frame["file_name"][0] == "photo-000.png"
    # 28 of 32 pixels are seen: 14 of the object's 16 rows, all of its columns.
    assert frame["object_survives"].unique().to_list() == [14 / 16]
    assert ((frame["probability"] - frame["true_probability"]).abs() < 1e-6).to_list() == frame["correct"].to_list()


def test_the_card_says_it_all(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    run_evaluation(benchmark, [own_models + "good"], tmp_path, EvaluateSettings(transform="paper", device="cpu"))
    (card,) = cards(tmp_path).values()
    assert (card["transform"]["resize"], card["transform"]["crop"], card["transform"]["mean"]) == (256, 224, [0, 0, 0])
    assert card["labels"]["classes"] == list(CLASSES)
    assert card["originals"] == {"n": 24, "accuracy": 1.0, "chance": 0.25}
    assert card["weights_sha256"] == open_model(own_models + "good", device="cpu").weights_hash
    assert (card["precision"], card["rows"], card["white_box"], card["warnings"]) == ("fp32", 48, False, [])
    assert card["benchmark"]["path"] == str(benchmark)


def test_labels_are_matched_by_name(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    frame = unswayed.evaluate(
        benchmark, [own_models + "good", own_models + "reordered"], tmp_path, EvaluateSettings(device="cpu")
    )
    columns = [frame.filter(model=own_models + name)["predicted"].to_list() for name in ("good", "reordered")]
    assert columns[0] == columns[1]


def test_one_decoding_pass_serves_all_models_and_a_rerun_does_nothing(
    benchmark: Path, own_models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr(decoding, "read_picture", lambda path, most: read.append(path) or real(path, most))
    models = [open_model(own_models + name, device="cpu") for name in ("good", "reordered", "bytes_wanted")]
    run_evaluation(benchmark, models, tmp_path, EvaluateSettings(device="cpu", workers=0))
    assert len(read) == 48
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    done = run_evaluation(benchmark, models, tmp_path, EvaluateSettings(device="cpu", workers=0))
    assert (done.scored, len(done.skipped), len(read)) == ((), 3, 48)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert not (tmp_path / ".parts").exists()


real = decoding.read_picture


def test_changed_weights_are_never_skipped(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    code = Path(own_models.removeprefix("python:").removesuffix(":")).read_text()
    code += f"""
def saved():
    colour = Colour()
    colour.load_state_dict(torch.load({str(weights)!r}))
    return Classifier(colour, PLAIN, NAMES)
"""
    (tmp_path / "mine.py").write_text(code)
    spec = f"python:{tmp_path}/mine.py:saved"
    state = open_model(own_models + "good", device="cpu").module.state_dict()
    torch.save(state, weights)
    assert run_evaluation(benchmark, [spec], tmp_path / "out", EvaluateSettings(device="cpu")).scored == (spec,)
    state["linear.bias"] = state["linear.bias"] + 1e-3
    torch.save(state, weights)
    assert run_evaluation(benchmark, [spec], tmp_path / "out", EvaluateSettings(device="cpu")).scored == (spec,)
    assert run_evaluation(benchmark, [spec], tmp_path / "out", EvaluateSettings(device="cpu")).skipped == (spec,)


def test_worker_processes_give_the_same_rows(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    frames = [
        unswayed.evaluate(
            benchmark, own_models + "good", tmp_path / str(workers), EvaluateSettings(device="cpu", workers=workers)
        )
        for workers in (0, 2)
    ]
    assert frames[0].equals(frames[1])


def test_a_model_that_fails_is_recorded_and_the_rest_go_on(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    names = ["broken", "failing", "too_few", "too_few_outputs", "nothing", "good", "broken_on_blue"]
    done = run_evaluation(benchmark, [own_models + name for name in names], tmp_path, EvaluateSettings(device="cpu"))
    assert done.scored == (own_models + "good",)
    reasons = {name: done.failed[own_models + name] for name in names if name != "good"}
    assert "NaN or infinite" in reasons["broken"]
    assert "no kernel for this" in reasons["failing"]
    assert "no counterpart for 1 of the benchmark's classes: grey" in reasons["too_few"]
    assert "has 5 classes" in reasons["too_few_outputs"]
    assert "returned a NoneType" in reasons["nothing"]
    assert "first for photo-002/original/0" in reasons["broken_on_blue"]
    recorded = [json.loads(path.read_text())["model"] for path in tmp_path.glob("*.failed.json")]
    assert sorted(recorded) == sorted(done.failed)
    assert list(cards(tmp_path)) == [own_models + "good"]


def test_randomness_and_batch_dependence_are_detected(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    done = run_evaluation(
        benchmark, [own_models + "noisy", own_models + "batch_statistics"], tmp_path, EvaluateSettings(device="cpu")
    )
    assert "different logits for the same pictures in two passes" in done.failed[own_models + "noisy"]
    assert "dropout" in done.failed[own_models + "noisy"]
    assert "depend on the batch size" in done.failed[own_models + "batch_statistics"]


def test_killed_in_the_middle_and_rerun_gives_the_same_rows(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from unswayed.evaluation import EvaluateSettings, run_evaluation\n"
        "def slow(done, total):\n"
        "    if done: time.sleep(0.3)\n"
        "bench, model, output = sys.argv[1:]\n"
        "settings = EvaluateSettings(device='cpu', batch_size=4)\n"
        "run_evaluation(bench, [model], output, settings, save_every=0, progress=slow)\n"
    )
    spec, killed = own_models + "good", tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", program, str(benchmark), spec, str(killed)])
    deadline = time.monotonic() + 120
    # The first 24 pictures are written together, once the contract is checked; a batch a file from then on.
    while len(list(killed.glob(".parts/*/*-*.parquet"))) < 8 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(killed.glob("*.parquet"))
    calls: list[int] = []
    run_evaluation(
        benchmark,
        [open_model(spec, device="cpu")],
        killed,
        EvaluateSettings(device="cpu", batch_size=4),
        progress=lambda done, total: calls.append(done),
    )
    assert next(done for done in calls if done) >= 32  # what was written is not done again
    whole = unswayed.evaluate(benchmark, spec, tmp_path / "whole", EvaluateSettings(device="cpu", batch_size=4))
    assert read_predictions(killed).equals(whole)


def test_adapted_batch_norm_sees_each_edit_by_itself(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    plain, adapted = own_models + "adapting", own_models + "adapting+bn-adapt"
    with pytest.warns(UserWarning, match="come from at most 24 pictures"):
        frame = unswayed.evaluate(benchmark, [plain, adapted], tmp_path, EvaluateSettings(device="cpu"))
    model = open_model(plain, device="cpu")
    for edit in ("original", "dark"):
        rows = frame.filter(model=adapted, edit=edit)
        pictures = [real(benchmark / "images" / edit / name) for name in rows["file_name"]]
        batch = torch.stack([model.prepare(picture) for picture in pictures])
        deviation = batch.var((0, 2, 3), keepdim=True) + model.module.norm.eps
        by_hand = model.module.linear(((batch - batch.mean((0, 2, 3), keepdim=True)) / deviation.sqrt()).mean((2, 3)))
        assert np.allclose(rows["energy"].to_numpy(), by_hand.logsumexp(1).detach().numpy(), atol=1e-2)
    assert cards(tmp_path)[adapted]["weights_sha256"] == cards(tmp_path)[plain]["weights_sha256"]


def test_the_guide_of_adversarial_pictures_is_marked(own_models: str, tmp_path: Path) -> None:
    weights = open_model(own_models + "good", device="cpu").weights_hash
    bench = write_benchmark(tmp_path / "bench", 2, {"name": "somebody's", "weights_sha256": weights})
    models = [own_models + "good", own_models + "good+tencrop", own_models + "shifted"]
    run_evaluation(bench, models, tmp_path / "out", EvaluateSettings(device="cpu"))
    assert [card["white_box"] for card in (cards(tmp_path / "out")[name] for name in models)] == [True, True, False]


def test_a_labelled_folder(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    for number in range(8):
        folder = tmp_path / "photos" / CLASSES[number % 4]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"ILSVRC2012_val_{number:08}.png").write_bytes(
            (benchmark / f"images/original/photo-{number:03}.png").read_bytes()
        )
    (tmp_path / "photos" / "red" / "cut.png").write_bytes(b"\x89PNG\r\n")
    spec = f"images:{tmp_path / 'photos'}"
    with pytest.warns(UserWarning, match="1 pictures cannot be read"):
        frame = unswayed.evaluate(spec, own_models + "good", tmp_path / "out", EvaluateSettings(device="cpu"))
    assert frame.height == 8
    assert frame["correct"].all()
    assert frame["edit"].unique().to_list() == ["original"]
    assert frame["object_survives"].null_count() == 8
    assert "ILSVRC2012_val_00000003.png" in frame["file_name"].to_list()


def test_a_benchmark_with_missing_files_is_refused(own_models: str, tmp_path: Path) -> None:
    bench = write_benchmark(tmp_path / "bench", 1)
    (bench / "images/dark/photo-002.png").unlink()
    with pytest.raises(UserError, match=r"1 files of the benchmark .* are missing, first images/dark/photo-002.png"):
        run_evaluation(bench, [own_models + "good"], tmp_path / "out")
    with pytest.raises(UserError, match="is not a benchmark"):
        run_evaluation(tmp_path / "nowhere", [own_models + "good"], tmp_path / "out")


def test_bad_requests_are_refused_before_any_work(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    good = own_models + "good"
    for models, options, message in (
        ([], {}, "no model is given"),
        ([good, "lit:0"], {}, "did you mean 'lite'"),
        ([good], {"batch_size": 0}, "batch_size is 0"),
    ):
        with pytest.raises(UserError, match=message):
            run_evaluation(benchmark, models, tmp_path, EvaluateSettings(device="cpu", **options))
        assert not list(tmp_path.iterdir())


def test_all_models_failing_is_an_error(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="failed"), pytest.raises(UserError, match="no model could be evaluated"):
        unswayed.evaluate(benchmark, own_models + "broken", tmp_path, EvaluateSettings(device="cpu"))
