"""`import unswayed`: one line edits a photograph, a benchmark is a dataset, and the gate and report are functions."""

from __future__ import annotations

import inspect
import io
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import unswayed
from unswayed.files.whole import sha256
from unswayed.rendering.photograph import replay


def shape_of(image: Image.Image) -> tuple[int, int]:
    return image.size


def to_tensor(image: Image.Image):
    import torch

    return torch.from_numpy(np.array(image))


@pytest.fixture(scope="module")
def dog() -> unswayed.Scene:
    return unswayed.open_source("sample")["dog"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("api") / "bench"
    recipe = root.parent / "small.toml"
    recipe.write_text('name = "small"\nedits = ["size=0.05,0.1"]\n')
    unswayed.build("sample", root, unswayed.BuildSettings(recipe=str(recipe), renderer="paste", limit=2))
    return root


def test_a_file_a_pillow_image_and_an_array_give_the_same_edit(dog, tmp_path):
    Image.fromarray(dog.image).save(tmp_path / "dog.png")
    mask = Image.fromarray(np.rint(dog.mask * 255).astype(np.uint8))
    mask.save(tmp_path / "mask.png")
    options = {"size": 0.05, "background": "checker", "seed": 3, "renderer": "paste"}
    made = [
        unswayed.edit(tmp_path / "dog.png", str(tmp_path / "mask.png"), **options),
        unswayed.edit(Image.fromarray(dog.image), mask, **options),
        unswayed.edit(dog.image, dog.mask, **options),
    ]
    assert len({one.image.tobytes() for one in made}) == 1
    assert made[0].image.size == made[0].mask.size == (256, 256)
    assert (np.asarray(made[0].mask) > 127).mean() == pytest.approx(0.05, abs=0.002)


def test_the_result_says_what_was_drawn_and_shows_itself(dog):
    made = unswayed.edit(dog.image, dog.mask, size=0.05, background="random", position=(1, 1), seed=3, renderer="paste")
    assert list(made.parameters) == ["background", "size", "position"]
    assert made.parameters["size"]["rate"] == 0.05
    assert made.values["from"] in unswayed.open_source("sample")
    assert made.seed == 3
    shown = Image.open(io.BytesIO(made._repr_png_()))
    assert np.array_equal(np.asarray(shown), np.asarray(made.image))
    assert np.nonzero(np.asarray(made.mask) > 127)[1].max() >= 252


def test_a_photograph_from_memory_is_saved_with_a_record_that_replays_it(dog, tmp_path):
    made = unswayed.edit(dog.image, dog.mask > 0.5, lighting={"stops": -2, "where": "both"}, renderer="paste")
    paths = made.save(tmp_path / "dark.png")
    again = replay(paths[2]).save(tmp_path / "again.png")
    assert [sha256(path) for path in paths[:2]] == [sha256(path) for path in again[:2]]
    assert (tmp_path / "dark.photograph.png").is_file()


def test_the_embedded_network_is_the_default(dog):
    made = unswayed.edit(dog.image, dog.mask, background="inversion", steps=2, device="cpu")
    assert made.record["rendered_by"]["network"]["name"] == "compact"
    assert made.image.size == (256, 256)


def test_a_scene_brings_its_own_mask(dog):
    assert unswayed.edit(dog, size=0.05, renderer="paste").record["id"] == "dog"
    with pytest.raises(unswayed.UserError, match="another one is given"):
        unswayed.edit(dog, dog.mask, size=0.05)


def test_a_box_stands_for_a_mask_and_an_object_is_removed(dog):
    made = unswayed.edit(dog.image, (60, 40, 300, 300), size=0.1, renderer="paste")
    assert "from the box 60,40,300,300" in made.record["notes"][0]
    empty = unswayed.remove_object(dog.image, dog.mask, pixels=128)
    before = Image.fromarray(unswayed.frame(dog).image).resize((128, 128))
    inside = np.asarray(Image.fromarray(unswayed.frame(dog).mask).resize((128, 128))) > 0.5
    change = np.abs(np.asarray(empty, int) - np.asarray(before, int)).mean(axis=2)
    assert change[inside].mean() > 5 * change[~inside].mean()


@pytest.mark.parametrize(
    ("image", "mask", "edits", "says"),
    [
        (np.zeros((8, 8, 3)), None, {"size": 0.1}, "uint8"),
        (None, np.full((8, 8), 3.0), {"size": 0.1}, "floating point"),
        (None, None, {}, "no edit"),
        (None, None, {"sise": 0.1}, "did you mean 'size'"),
        (None, None, {"size": 7}, "0.001 to 1"),
        ("nowhere.jpg", None, {"size": 0.1}, "does not exist"),
    ],
)
def test_mistakes_say_what_is_allowed(dog, image, mask, edits, says):
    with pytest.raises(unswayed.UserError, match=says):
        unswayed.edit(dog.image if image is None else image, dog.mask if mask is None else mask, **edits)


def test_a_box_beyond_the_picture_is_refused(dog):
    high, wide = dog.mask.shape
    with pytest.raises(unswayed.UserError, match="reaches beyond the picture") as refused:
        unswayed.edit(dog.image, (wide - 50, 10, 51, 40), size=0.05, renderer="paste")
    assert f"x + width ≤ {wide}" in str(refused.value)


def test_masks_that_look_wrong_raise_a_warning_that_stays_in_the_notes(dog):
    with pytest.warns(unswayed.UnswayedWarning, match="looks inverted"):
        made = unswayed.edit(dog.image, 1 - dog.mask, lighting=-1, renderer="paste")
    assert "warning: the mask looks inverted" in made.notes[0]
    gray = np.asarray(Image.fromarray(dog.image).convert("L"))
    with pytest.warns(unswayed.UnswayedWarning, match="looks like a photograph"):
        unswayed.edit(dog.image, gray, lighting=-1, renderer="paste")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unswayed.edit(dog.image, dog.mask, size=0.05, renderer="paste").notes == ()


@pytest.mark.parametrize("edits", [{"size": 0.05}, {"background": "random"}, {"position": (0, 1)}])
def test_an_edit_that_needs_a_background_is_refused_where_the_mask_is_all_white(dog, edits):
    white = np.full(dog.mask.shape, 255, np.uint8)
    with (
        pytest.warns(unswayed.UnswayedWarning, match="all white"),
        pytest.raises(unswayed.UserError, match="needs a background"),
    ):
        unswayed.edit(dog.image, white, renderer="paste", **edits)
    with pytest.raises(unswayed.UserError, match="the mask is empty"):
        unswayed.edit(dog.image, 0 * white, renderer="paste", **edits)
    with pytest.warns(unswayed.UnswayedWarning, match="all white"):
        assert unswayed.edit(dog.image, white, renderer="paste", lighting=-1).image.size == (256, 256)


@pytest.mark.parametrize("name", ["haze", "frame"])
def test_an_edit_of_another_package_is_given_by_its_name(dog, monkeypatch, tmp_path, name):
    """Also an edit that has the name of a keyword of `edit`."""
    (tmp_path / "hazy.py").write_text(
        f"from unswayed.edits.blur import Blur\nclass Haze(Blur):\n    name = '{name}'\n    order = 99\n"
    )
    (tmp_path / "hazy-1.dist-info").mkdir()
    (tmp_path / "hazy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: hazy\nVersion: 1\n")
    (tmp_path / "hazy-1.dist-info" / "entry_points.txt").write_text(f"[unswayed.edits]\n{name} = hazy:Haze\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hazy", raising=False)
    made = unswayed.edit(dog.image, dog.mask, edits={name: 4}, size=0.05, renderer="paste")
    assert [step["edit"] for step in made.record["request"]["chain"]] == ["size", name]
    if name == "haze":
        again = unswayed.edit(dog.image, dog.mask, haze=4, size=0.05, renderer="paste")
        assert again.image.tobytes() == made.image.tobytes()


def test_a_benchmark_is_a_dataset(bench):
    pictures = unswayed.Benchmark(bench)
    assert len(pictures) == len(pictures.to_polars().filter(status="ok")) == 10
    image, label, row = pictures[0]
    assert isinstance(image, Image.Image)
    assert pictures.labels.classes[label] == "bison"
    assert (row.source_id, row.edit) == ("bison", pictures.edits[0])
    small = pictures.edit("size-0.05")
    assert {small[at][2].edit for at in range(len(small))} == {"size-0.05"}
    assert len(small) == small.to_polars().height == 2
    assert small[-1][2].requested == 0.05
    assert small[0][2].parameters["chain"][0]["rate"] == 0.05
    assert len(pictures) == 10
    with pytest.raises(IndexError):
        pictures[10]
    with pytest.raises(unswayed.UserError, match=r"did you mean 'size-0\.05'"):
        pictures.edit("size-0.06")


def test_a_benchmark_goes_to_the_workers_of_a_data_loader(bench):
    from torch.utils.data import DataLoader

    pictures = unswayed.Benchmark(bench, transform=to_tensor).edit("original")
    batches = list(DataLoader(pictures, batch_size=2, num_workers=1, collate_fn=unswayed.Benchmark.collate))
    images, labels, rows = batches[0]
    assert len(batches) == 1
    assert images.shape == (2, 256, 256, 3)
    assert [row.label for row in rows] == labels.tolist()
    again = pickle.loads(pickle.dumps(unswayed.Benchmark(bench, transform=shape_of).edit("original")))
    assert again[0][0] == (256, 256)


def test_manifest_and_predictions_as_pandas(bench, tmp_path):
    pytest.importorskip("pandas")
    assert len(unswayed.Benchmark(bench).edit("size-0.1").to_pandas()) == 2
    settings = unswayed.EvaluateSettings(device="cpu", workers=0, limit=1)
    predictions = unswayed.evaluate(bench, "lite:0", tmp_path, settings)
    assert predictions.to_pandas()["correct"].sum() == predictions["correct"].sum()


def test_every_example_of_the_python_page_runs(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[1].joinpath("docs", "python.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)
    assert (tmp_path / "report.html").is_file()
    assert "allowed: 0.001 to 1" in capsys.readouterr().out


def answers() -> pl.DataFrame:
    rows = [
        {"model": model, "source_id": str(at), "edit": edit, "run": 0, "correct": edit == "original" or at >= lost}
        for model, lost in (("good", 2), ("bad", 60))
        for edit in ("original", "size-0.05")
        for at in range(100)
    ]
    return pl.DataFrame(rows)


def test_the_gate_and_the_comparison_are_functions():
    frame = answers()
    passed = unswayed.check(frame, max_drop={"size-0.05": 20}, models=["good"])
    assert (passed.verdict, passed.passed) == ("pass", True)
    failed = unswayed.check(frame, max_drop={"size-0.05": 20})
    assert (failed.verdict, failed.passed) == ("fail", False)
    assert failed.checks.height == 2
    assert unswayed.check(frame.filter(model="good"), baseline=frame.filter(model="good"), margin=5).passed
    compared = unswayed.compare(frame, "good", "bad").filter(edit="size-0.05")
    assert compared["drop_difference"].item() == pytest.approx(-58)


def test_functions_take_settings_or_keywords_but_not_both(tmp_path):
    frame = answers()
    by_keyword = unswayed.check(frame, max_drop={"size-0.05": 20}, models=["good"])
    by_settings = unswayed.check(frame, unswayed.GateSettings(max_drop={"size-0.05": 20}, models=["good"]))
    assert by_keyword.checks.equals(by_settings.checks)
    with pytest.raises(unswayed.UserError, match="did you mean 'max_drop'"):
        unswayed.check(frame, max_drops={"size-0.05": 20})
    with pytest.raises(unswayed.UserError, match="both settings and level"):
        unswayed.check(frame, unswayed.GateSettings(), level=0.9)
    built = unswayed.build("sample", tmp_path / "bench", recipe="color-gray", renderer="paste", limit=1, quality="off")
    assert built.counts["ok"] == 3
    assert "recipe" in inspect.signature(unswayed.build).parameters


def test_an_edit_whose_name_is_a_keyword_is_given_in_a_mapping(dog):
    named = unswayed.edit(dog, edits={"size": 0.05}, renderer="paste")
    assert named.image.tobytes() == unswayed.edit(dog, size=0.05, renderer="paste").image.tobytes()


def test_every_result_is_shown_in_one_line(dog, bench):
    checked = unswayed.check(answers(), max_drop={"size-0.05": 20})
    results = [dog, unswayed.open_source("sample").labels, unswayed.edit(dog, size=0.05, renderer="paste"), checked]
    results += [unswayed.verify(bench), unswayed.plan(None, drop=[5.0]), unswayed.Benchmark(bench)]
    for result in results:
        assert len(repr(result)) <= 120 and "\n" not in repr(result)
        assert repr(result).startswith(type(result).__name__)


def test_what_there_is_can_be_listed():
    assert unswayed.list_edits()[:3] == ["background", "size", "direction"]
    assert {"sample", "folder:PATH"} <= set(unswayed.list_sources())
    assert unswayed.list_models("lite:[01]") == ["lite:0", "lite:1"]


def test_a_room_with_the_name_of_a_function_is_both():
    code = (
        "import unswayed, unswayed.views.report.page as page, unswayed.repair.settings as settings, inspect\n"
        "assert page.__name__.endswith('page') and settings.RepairSettings is unswayed.RepairSettings\n"
        "for name in ('repair', 'masks', 'report'): assert callable(getattr(unswayed, name))\n"
        "try: unswayed.masks('nowhere', 'out', device='cuda')\n"
        "except unswayed.UserError as error: print(error.given)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "needs a classifier" in done.stdout
