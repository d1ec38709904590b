"""`unswayed repair` and `unswayed enhance` from photographs to the table of before and after."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from betrayed import CLASSES, TRANSFORM, load_or_die, small_classifier, train_plainly, write_model, write_photographs
from command_line import refusal, run_cli
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.analyses.drops.gate import check
from unswayed.benchmark import BuildSettings, build
from unswayed.edits.mixture import KINDS
from unswayed.errors import UserError
from unswayed.evaluation import run_evaluation
from unswayed.evaluation.inputs import open_pictures
from unswayed.models.heads import keys_of, trained_on
from unswayed.models.opening import open_model
from unswayed.repair import RepairSettings, photographs, repair, run
from unswayed.repair.measuring import EXITS, enhance
from unswayed.sources import open_source
from unswayed.transforms import EditMixture

QUICK = RepairSettings(epochs=1, batch_size=8, fill="smooth", mixture=EditMixture(probability=0.8))
RECIPE = "original,background-random"
HERE = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = write_photographs(tmp_path_factory.mktemp("photos"), 12)
    # Two photographs without a mask, one that is no photograph.
    for name in ("disc/000", "square/000"):
        (folder / f"{name}_mask.png").unlink()
    (folder / "triangle/000.jpg").write_bytes(b"not a picture")
    return folder


@pytest.fixture(scope="module")
def shown():
    """What `done` showed of its progress."""
    return []


@pytest.fixture(scope="module")
def done(photos, shown, tmp_path_factory):
    torch.set_num_threads(1)  # so that a process of its own has the same losses
    folder = tmp_path_factory.mktemp("repaired")
    spec = write_model(folder / "model", train_plainly(photos, steps=5))
    write_photographs(folder / "others", 2, seed=1)
    tests = [f"images:{folder / 'others'}"]
    options = {"recipe": RECIPE, "workers": 1, "tests": tests, "device": "cpu", "show": shown.append}
    return repair(f"folder:{photos}", spec, folder / "out", QUICK, **options)


def test_photographs_without_a_mask_are_used_plainly_and_counted(done):
    assert done.counts["train_without_mask"] == 2 and done.counts["unusable"] + done.counts["held_out"] >= 1
    card = json.loads((done.folder / "card.json").read_bytes())
    assert card["training"]["photographs"] == done.counts and card["training"]["arm"] == "repaired"


def test_a_command_killed_in_the_second_arm_and_resumed_has_the_losses_of_one_that_was_not(done, photos, tmp_path):
    """The result of so few photographs is uncertain: the exit code is 3."""
    spec = f"python:{done.folder.parent / 'model/small.py'}:build"
    command = ["repair", f"folder:{photos}", "-m", spec, "-o", str(tmp_path), "--recipe", RECIPE, "--device", "cpu"]
    command += ["--epochs", "1", "--batch-size", "8", "--fill", "smooth", "--probability", "0.8", "--workers", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    script = [sys.executable, str(HERE / "killed_repair.py"), *command]
    killed = subprocess.run(script, env=environment, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr.decode()
    states = [json.loads((tmp_path / "state" / arm / "state.json").read_bytes()) for arm in ("control", "repaired")]
    assert 0 < states[1]["step"] < states[0]["step"] and not (tmp_path / "card.json").exists()
    resumed = run_cli(*command)
    assert resumed.exit_code == 3 and "cannot tell" in resumed.output, resumed.output
    for part in ("control", "."):
        whole, again = (
            json.loads((folder / part / "card.json").read_bytes())["training"]["history"]
            for folder in (done.folder, tmp_path)
        )
        assert again["losses"] == whole["losses"] and again["epochs"] == whole["epochs"]


def test_a_repair_that_makes_a_model_worse_exits_with_1(tmp_path, monkeypatch):
    """A huge weight of the consistency loss, which only the repaired arm has, keeps it from learning the classes."""
    photos = write_photographs(tmp_path / "photos", 20)
    spec = write_model(tmp_path / "model", train_plainly(photos, steps=0))
    used = []

    def evaluate(pictures, models, output, settings=None, **more):
        used.append(settings.workers)
        return run_evaluation(pictures, models, output, settings, **more)

    monkeypatch.setattr(run, "run_evaluation", evaluate)
    command = ["repair", f"folder:{photos}", "-m", spec, "-o", str(tmp_path / "out"), "--recipe", RECIPE, "--json"]
    command += ["--epochs", "6", "--batch-size", "8", "--fill", "smooth", "--workers", "1", "--no-freeze-norm"]
    command += ["--train", "all", "--consistency", "1e6", "--learning-rate", "3e-3", "--held-out", "0.5", "--ema", "0"]
    result = run_cli(*command)
    found = json.loads(result.stdout.splitlines()[-1])
    original = next(row for row in found["rows"] if (row["measure"], row["pictures"]) == ("accuracy", "original"))
    assert (result.exit_code, found["verdict"]) == (1, "worse") and original["high"] < -2
    assert used == [1], "measuring has as many workers as the command asks for"


def test_one_process_at_a_time_repairs_into_a_folder_and_a_refused_one_makes_none(photos, tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        repair(f"folder:{tmp_path / 'nothing'}", small_classifier(), tmp_path / "out", QUICK)
    assert not (tmp_path / "out").exists()
    program = (
        "import sys; from pathlib import Path; from unswayed.files.locks import Lock; "
        "lock = Lock(Path(sys.argv[1])); print(lock.take(), flush=True); input()"
    )
    (tmp_path / "out").mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "out" / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout.readline() == b"True\n"
    with pytest.raises(UserError, match="another process repairs a model in"):
        repair(f"folder:{photos}", small_classifier(), tmp_path / "out", QUICK)
    other.communicate(b"\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] in ([], [".lock"])


def test_progress_counts_every_stage_and_both_arms_as_one(done, shown):
    stages = list(dict.fromkeys(view.command for view in shown))
    assert stages == ["reading (train)", "reading (validation)", "fine-tuning", "build", "evaluate"]
    steps = [view for view in shown if view.command == "fine-tuning"]
    assert [view.done for view in steps] == list(range(1, steps[-1].total + 1)), "up to the end of the second arm"
    halves = [view.note.partition(",")[0] for view in steps]
    assert halves == ["control"] * (len(steps) // 2) + ["repaired"] * (len(steps) // 2)
    assert steps[-2].left is not None
    reading = [view for view in shown if view.command == "reading (train)"]
    assert reading[-1].done == reading[-1].total >= done.counts["train"]


@pytest.mark.parametrize("fits", [4, 0], ids=["smooth fits", "nothing fits"])
def test_photographs_beyond_the_memory_get_a_smooth_fill_and_the_card_says_so(photos, tmp_path, monkeypatch, fits):
    monkeypatch.setattr(photographs, "IN_MEMORY", fits * 36 * TRANSFORM.crop**2)
    settings, said = replace(QUICK, fill="patches", validation=0.0), []
    repair(f"folder:{photos}", small_classifier(), tmp_path, settings, recipe=RECIPE, workers=1, note=said.append)
    card = json.loads((tmp_path / "card.json").read_bytes())["training"]
    assert card["fill"]["train"] == "smooth" and not (tmp_path / "removed").exists()
    assert json.loads((tmp_path / "repair.json").read_bytes())["fill"] == card["fill"]
    assert any(line.startswith("the fill is smooth (train): with patches they need more than") for line in said)


def test_control_and_repaired_have_the_same_budget(done):
    histories = [
        json.loads((done.folder / part / "card.json").read_bytes())["training"]["history"] for part in ("", "control")
    ]
    assert histories[0]["steps"] == histories[1]["steps"] > 0
    assert histories[0]["losses"] != histories[1]["losses"]


def test_the_table_holds_every_model_every_edit_and_the_folders(done):
    result = json.loads((done.folder / "repair.json").read_bytes())
    found = {(row["measure"], row["pictures"]) for row in result["rows"]}
    assert {("accuracy", "original"), ("drop", "background-random"), ("drop", "average")} <= found
    other = f"images:{done.folder.parent / 'others'}"
    assert {("calibration error", "original"), ("accuracy", other), ("calibration error", other)} <= found
    for row in result["rows"]:
        assert row["before"] is not None and np.isclose(row["difference"], row["repaired"] - row["control"])


def test_a_repaired_folder_opens_as_a_model_that_is_described(done):
    model = open_model(f"repaired:{done.folder}?trust=yes", device="cpu")
    assert model.labels.classes == CLASSES and model.transform == TRANSFORM
    described = run_cli("models", f"repaired:{done.folder}?trust=yes")
    assert described.exit_code == 0 and "arm" in described.output and "repaired" in described.output
    damaged = bytearray((done.folder / "control" / "model.safetensors").read_bytes())
    damaged[-1] ^= 255
    (done.folder / "control" / "model.safetensors").write_bytes(bytes(damaged))
    with pytest.raises(UserError, match="not those that its card states"):
        open_model(f"repaired:{done.folder / 'control'}?trust=yes", device="cpu")


def test_a_repaired_model_is_exported_to_onnx_with_the_same_answers_and_not_repaired_again(done, photos, tmp_path):
    pytest.importorskip("onnxruntime")
    from unswayed.models.deployed import export_onnx

    model = open_model(f"repaired:{done.folder}?trust=yes", device="cpu")
    export_onnx(model, tmp_path / "model.onnx")
    again = open_model(f"onnx:{tmp_path / 'model.onnx'}")
    pixels = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model.logits(pixels), again.logits(pixels), atol=1e-4)
    assert again.labels.classes == CLASSES and again.transform == TRANSFORM
    with pytest.raises(UserError, match="no trainable parameters"):
        repair(f"folder:{photos}", f"onnx:{tmp_path / 'model.onnx'}", tmp_path / "out", QUICK)


def test_the_report_shows_a_repair_beside_its_predictions(done, tmp_path):
    from unswayed.views.report.page import write_report

    write_report(done.folder / "predictions", tmp_path / "report.html", heat_maps=0, resamples=20)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Before and after the repair" in page and "background-random" in page


def test_enhance_compares_every_way_with_the_plain_model(done, tmp_path):
    found = enhance(done.folder / "benchmark", f"repaired:{done.folder}?trust=yes", tmp_path, device="cpu")
    assert [row["way"] for row in found.rows] == [
        "plain",
        "tencrop",
        "tencrop-probability",
        "flip",
        "object-crop",
        "bn-adapt",
    ]
    assert not found.skipped
    for row in found.rows[1:]:
        assert row["drop_low"] <= row["drop_difference"] <= row["drop_high"]
    json.loads((tmp_path / "enhance" / "enhance.json").read_bytes())


def test_the_command_compares_with_another_model_and_prints_every_edit(done, tmp_path):
    bench, repaired = str(done.folder / "benchmark"), f"repaired:{done.folder}?trust=yes"
    model = f"python:{done.folder.parent / 'model/small.py'}:build"
    command = ["enhance", bench, "-m", model, "-o", str(tmp_path), "--with", repaired, "--device", "cpu"]
    plain = run_cli(*command, "--format", "json")
    assert plain.exit_code == 0, plain.output
    rows = {row["way"]: row for row in json.loads(plain.stdout)}
    assert list(rows)[0] == "plain" and list(rows)[-1] == repaired and "tencrop-probability" in rows
    before = next(row for row in done.rows if row["measure"] == "drop" and row["pictures"] == "average")
    found = rows[repaired]
    assert np.isclose(found["average_drop"], before["repaired"])
    assert np.isclose(found["drop_difference"], before["repaired"] - before["before"])
    assert rows["plain"]["drop_difference"] is None and np.isclose(rows["plain"]["average_drop"], before["before"])
    table = run_cli(*command, "--by-edit")
    assert table.exit_code == 0 and "background-random" in table.stdout and "calibration error" in table.stdout
    stored = json.loads((tmp_path / "enhance/enhance.json").read_bytes())
    assert stored["rows"] == list(rows.values())
    assert {row["pictures"] for row in stored["by_edit"]} == {"original", "source", "background-random", "average"}


def test_enhance_takes_an_alias_and_the_papers_transform(done, tmp_path):
    model = f"own=python:{done.folder.parent / 'model/small.py'}:build"
    command = ["enhance", str(done.folder / "benchmark"), "-m", model, "-o", str(tmp_path), "--device", "cpu"]
    answer = run_cli(*command, "--transform", "paper", "--format", "json")
    assert answer.exit_code == 0, answer.output
    assert [row["way"] for row in json.loads(answer.stdout)][:2] == ["plain", "tencrop"]
    cards = {path.stem: json.loads(path.read_bytes()) for path in tmp_path.glob("*.json")}
    assert {"own", "own-tencrop", "own-flip"} <= set(cards)
    assert cards["own"]["transform"]["crop"] == 224 and cards["own"]["settings"]["transform"] == "paper"


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_photograph_that_ends_its_reader_costs_only_itself(photos, monkeypatch, in_memory):
    if not in_memory:
        monkeypatch.setattr(photographs, "IN_MEMORY", 0)
    source = replace(open_source(f"folder:{photos}"), load=load_or_die)
    rows = tuple(row for row in photographs.listed(source) if row.masked and row.entry.id.startswith("disc"))
    read = photographs.Photographs(rows, 32, "smooth")
    read.read("cpu", workers=1)
    plan = [np.arange(len(read))[:3], np.arange(len(read))[3:]]
    batches = list(read.batches(plan, "cpu"))
    assert list(read.unusable) == ["disc--001"]
    assert sum(len(batch.images) for batch in batches) == len(rows) - 1


def test_a_way_that_does_not_suit_a_model_is_skipped_with_its_reason(done, tmp_path):
    (tmp_path / "plain.py").write_text(
        "import torch\nfrom unswayed.models.classifier import Classifier\nfrom betrayed import CLASSES, TRANSFORM\n"
        "def build():\n    torch.manual_seed(0)\n    features = torch.nn.Conv2d(3, 8, 8, 8)\n"
        "    network = torch.nn.Sequential(features, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), "
        "torch.nn.Linear(8, 3))\n    return Classifier(network, TRANSFORM, list(CLASSES), device='cpu')\n"
    )
    found = enhance(done.folder / "benchmark", f"python:{tmp_path / 'plain.py'}:build", tmp_path / "out")
    assert "no batch norm" in found.skipped["bn-adapt"] and len(found.rows) == 5


def test_a_new_head_answers_for_the_classes_of_the_source_and_more_photographs_can_be_added(photos, tmp_path):
    base = open_model("timm:test_resnet.r160_in1k?weights=none", device="cpu")
    more = write_photographs(tmp_path / "more", 12, seed=1)
    for path in photos.glob("*/*.jpg"):
        shutil.copy(path, more / path.parent.name / f"copy-{path.name}")
    out, also = tmp_path / "out", f"images:{more}"
    done = repair(f"folder:{photos}", base, out, QUICK, new_head=True, also=also, recipe=RECIPE, workers=1)
    model = open_model(f"repaired:{out}", device="cpu")
    held_out = keys_of(open_pictures(str(out / "benchmark")).photographs)
    assert len(held_out) and not set(held_out) & set(trained_on(model.origin)), "copies of them are not trained on"
    assert model.labels.classes == CLASSES and all(row["before"] is None for row in done.rows)
    assert done.counts["train"] > 30 and done.counts["train_without_mask"] >= 35


def test_photographs_that_are_measured_on_are_never_trained_on(photos, tmp_path):
    build(f"folder:{photos}", tmp_path / "bench", BuildSettings(recipe=RECIPE, renderer="paste", size=64, per_class=4))
    said: list[str] = []
    done = repair(
        f"folder:{photos}",
        small_classifier(),
        tmp_path / "out",
        QUICK,
        benchmark=tmp_path / "bench",
        workers=1,
        note=said.append,
    )
    measured = open_pictures(str(tmp_path / "bench")).photographs
    assert len(measured) >= 11, "one of the photographs is no picture"
    assert f"{len(measured)} photographs are not trained on, since they are also measured on" in said
    assert done.counts["held_out"] == len(measured)
    assert sum(done.counts[name] for name in ("train", "validation", "unusable", "held_out")) == 36
    assert done.verdict == "cannot tell" and "photographs were measured" in done.reason
    known = trained_on({"trained_on": str(tmp_path / "out/trained-on.bin")})
    assert len(known) == done.counts["train"] + done.counts["validation"]
    assert not set(keys_of(measured)) & set(known)
    with pytest.raises(UserError, match="all 36 photographs of .* are also measured on"):
        repair(f"folder:{photos}", small_classifier(), tmp_path / "all", QUICK, tests=[f"images:{photos}"])


def test_a_model_says_when_it_is_measured_on_photographs_of_its_training(done, photos, tmp_path):
    spec, other = f"repaired:{done.folder}?trust=yes", f"images:{done.folder.parent / 'others'}"
    found = run_evaluation(f"images:{photos}", [spec], tmp_path / "seen")
    (warning,) = [line for line in found.warnings[spec] if "in its training" in line]
    assert f"{spec}: {done.counts['train'] + done.counts['validation']} of the 36 photographs" in warning
    assert check(tmp_path / "seen", min_accuracy={"original": 2}).verdict == "not measured"
    assert "training" not in str(run_evaluation(other, [spec], tmp_path / "new").warnings)


@pytest.fixture(scope="module")
def command(photos, done):
    """The beginning of a command that repairs the same model once more."""
    model = f"python:{done.folder.parent / 'model/small.py'}:build"
    settings = ["--epochs", "1", "--batch-size", "8", "--fill", "smooth", "--recipe", RECIPE, "--workers", "1"]
    return ["repair", f"folder:{photos}", "-m", model, "--device", "cpu", *settings]


def test_the_command_draws_by_the_drops_of_the_model_and_the_ranges_of_a_file(done, command, tmp_path):
    (tmp_path / "ranges.json").write_text('{"most": 1, "size": [0.05, 0.1]}')
    options = ["--from", str(done.folder / "predictions"), "--mixture", str(tmp_path / "ranges.json")]
    result = run_cli(*command, "-o", tmp_path / "out", *options, "--probability", "0.4")
    assert result.exit_code in EXITS.values(), result.output
    used = json.loads((tmp_path / "out/repair.json").read_bytes())["settings"]["mixture"]
    assert used["most"] == 1 and used["size"] == [0.05, 0.1] and used["probability"] == 0.4
    table = dropped_accuracy(done.folder / "predictions", models=[command[3]]).filter(edit="background-random")
    hurt = table["drop"].item() > 0
    assert used["weights"] == ({**dict.fromkeys(KINDS, 0.1), "background": 1.0} if hurt else dict.fromkeys(KINDS, 1.0))


def test_the_command_refuses_files_of_edits_that_it_cannot_use(done, command, tmp_path):
    def refused(text: str, *options: str) -> str:
        (tmp_path / "mixture.json").write_text(text)
        given = ["-o", str(tmp_path / "out"), "--mixture", str(tmp_path / "mixture.json"), *options]
        return refusal(run_cli(*command, *given))

    assert "not readable JSON" in refused("{")
    assert "did you mean 'size'" in refused('{"sise": [0.1, 0.2]}')
    assert "the range of size" in refused('{"size": [0.1, 20]}')
    predictions = ["--from", str(done.folder / "predictions")]
    assert "both --from and" in refused('{"weights": {"size": 1}}', *predictions)
    assert done.folder.name in refused("{}", *predictions, "-m", "lite:0"), "the models there are"
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_repair_frees_a_classifier_from_the_background_that_betrays_the_label(tmp_path):
    photos = write_photographs(tmp_path / "photos", 100)
    spec = write_model(tmp_path / "model", train_plainly(photos))
    command = ["repair", f"folder:{photos}", "-m", spec, "-o", str(tmp_path / "out"), "--json", "--workers", "1"]
    options = ["--epochs", "24", "--batch-size", "32", "--learning-rate", "3e-3", "--no-freeze-norm", "--train", "all"]
    options += ["--fill", "smooth", "--recipe", RECIPE, "--probability", "0.8", "--patience", "24"]
    result = run_cli(*command, *options)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    rows = {(row["measure"], row["pictures"]): row for row in found["rows"]}
    drop, original = rows["drop", "background-random"], rows["accuracy", "original"]
    assert drop["before"] > 30, "trained plainly it relies on the background"
    assert drop["repaired"] <= drop["before"] / 2 and drop["repaired"] <= drop["control"] / 2
    assert original["repaired"] >= original["control"] - 2
    assert found["verdict"] == "better" and Path(found["benchmark"]).is_dir()
