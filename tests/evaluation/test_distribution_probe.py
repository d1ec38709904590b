"""`unswayed distribution` from pictures to text: a real classifier, photographs, noise; FID as torch-fidelity's."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from command_line import run_cli
from unswayed.benchmark import build
from unswayed.benchmark.plan import BuildSettings
from unswayed.errors import UserError
from unswayed.evaluation.distribution import FeaturesProbe, sets_of
from unswayed.evaluation.feature_networks import inception_file, lpips_file, open_inception, open_lpips
from unswayed.files.downloads import place_of
from unswayed.labels import imagenet
from unswayed.sources import open_source

here = pytest.mark.skipif(not place_of("inception").is_file(), reason="run `unswayed weights fetch inception` first")
lpips_here = pytest.mark.skipif(lpips_file() is None, reason="run `unswayed weights fetch lpips-alex` first")


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("noise"), np.random.default_rng(0)
    for place in range(33):
        Image.fromarray(rng.integers(0, 256, (256, 256, 3), np.uint8)).save(folder / f"{place}.png")
    return folder


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """The sample and its mirror images, each object taken out and put back, without a network."""
    folder, photographs = tmp_path_factory.mktemp("bench") / "b", tmp_path_factory.mktemp("photographs")
    for scene in open_source("sample"):
        place = photographs / imagenet().wnids[scene.label]
        place.mkdir(exist_ok=True)
        for name, step in (("plain", 1), ("mirrored", -1)):
            Image.fromarray(scene.image[:, ::step]).save(place / f"{scene.id}-{name}.png")
            mask = np.round(scene.mask[:, ::step] * 255).astype(np.uint8)
            Image.fromarray(mask).save(place / f"{scene.id}-{name}_mask.png")
    build(f"folder:{photographs}", folder, BuildSettings(recipe="reinsertion", renderer="paste"))
    return folder


def outcome(*arguments):
    result = run_cli(*arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def results(edited, noise, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    code, out, err = outcome(
        "distribution", edited, "-m", "lite:0", "-o", folder, "--against", f"images:{noise}", "--no-fid"
    )
    assert code == 0, err
    return folder, out, err


def test_noise_is_called_out_and_a_careful_edit_in(results, noise):
    _, out, _ = results
    assert f"images:{noise} leaves the distribution of the originals for lite:0" in out
    assert "reinsertion stays in the distribution of the originals for lite:0" in out


def test_the_tables_lie_where_the_report_looks(results, edited, tmp_path):
    from unswayed.views.report import ReportSettings
    from unswayed.views.report.extras import distribution_section
    from unswayed.views.report.findings import Findings
    from unswayed.views.report.section import drawing

    folder, _, _ = results
    assert {path.stem for path in folder.glob("*.csv")} == {
        "verdicts", "scores", "histograms", "background", "adaptation"
    }  # fmt: skip
    assert outcome("evaluate", edited, "-m", "lite:0", "-o", tmp_path / "p")[0] == 0
    with drawing("distribution"):
        page = str(distribution_section(folder, Findings(tmp_path / "p", ReportSettings(flips=1))).body)
    assert "reinsertion stays in the distribution" in page and "<svg" in page


def test_a_second_run_measures_nothing_anew(results, edited, noise):
    folder, first, _ = results
    code, out, err = outcome(
        "distribution", edited, "-m", "lite:0", "-o", folder, "--against", f"images:{noise}", "--no-fid"
    )
    assert (code, out) == (0, first)
    assert "0 pictures measured now" in err


def test_another_folder_can_be_the_reference(results, edited, noise):
    folder, _, _ = results
    reference = ("--reference", f"images:{noise}", "--no-fid", "--no-adapt")
    code, out, err = outcome("distribution", edited, "-m", "lite:0", "-o", folder, *reference)
    assert code == 0 and "0 pictures measured now" in err
    assert f"original stays in the distribution of images:{noise} for lite:0" in out, "photographs score higher"
    assert set(pl.read_csv(folder / "histograms.csv")["set"]) == {"original", "reinsertion", "source"}
    code, _, err = outcome("distribution", edited, "-m", "lite:0", "-o", folder, "--reference", "sample", "--no-fid")
    assert code == 2 and "'sample' is no folder to compare with" in err and "images:FOLDER" in err


def test_an_alias_names_the_model_and_its_adapted_form(edited, tmp_path):
    code, _, err = outcome(
        "distribution", edited, "-m", "mine=lite:0", "-o", tmp_path, "--no-fid", "--limit", 4, "--table", "adaptation"
    )
    assert code == 0, err
    assert set(pl.read_csv(tmp_path / "adaptation.csv")["model"]) == {"mine"}
    assert {path.stem for path in (tmp_path / "answers").glob("*.parquet")} == {"mine", "mine-adapted"}


def test_adaptation_shows_accuracy_before_and_after(results):
    table = pl.read_csv(results[0] / "adaptation.csv")
    assert set(table["set"]) >= {"original", "reinsertion"}
    assert table.filter(set="original")["accuracy"].item() >= 0.85
    assert (table["low"] <= table["difference"]).all() and (table["difference"] <= table["high"]).all()


def test_a_model_that_fails_is_recorded_and_the_others_are_measured(edited, tmp_path):
    (tmp_path / "bad.py").write_text("def build():\n    raise RuntimeError('no layers')\n")
    bad, rest = f"python:{tmp_path}/bad.py:build", ("-o", tmp_path / "out", "--no-fid", "--no-adapt", "--limit", 2)
    code, out, err = outcome("distribution", edited, "-m", bad, "-m", "lite:0", *rest)
    assert code == 4, err
    assert f"failed: {bad}:" in err and "no layers" in err
    assert "reinsertion" in out and "lite:0" in out
    assert [path.stem for path in (tmp_path / "out/scores").glob("*.parquet")] == ["lite-0"]
    code, _, err = outcome("distribution", edited, "-m", bad, *rest)
    assert code == 2 and "no model could be measured" in err


def test_without_the_inception_file_the_message_has_the_command(edited, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    code, _, err = outcome("distribution", edited, "-m", "lite:0", "-o", tmp_path / "r")
    assert code == 2
    assert "unswayed weights fetch inception" in err and "--no-fid" in err and "offline" in err


def test_a_file_that_is_not_inception_is_refused(tmp_path):
    import torch

    path = tmp_path / "other.pth"
    torch.save({"weight": torch.zeros(3)}, path)
    with pytest.raises(UserError, match="does not hold the Inception weights"):
        open_inception(inception_file(path))
    path.write_bytes(b"not a network")
    with pytest.raises(UserError, match="not a weights file"):
        open_inception(path)


@here
def test_fid_equals_torch_fidelitys_own_on_two_folders(edited, noise, tmp_path):
    """torch-fidelity reads the same files with the same weights, in its own layout."""
    import torch
    from torch_fidelity import calculate_metrics

    from unswayed.analyses.distribution import distance_table
    from unswayed.evaluation.feature_networks import inception_state
    from unswayed.evaluation.probes import read_probe, run_probe
    from unswayed.files.whole import sha256

    weights = inception_file()
    sets = sets_of(edited, [f"images:{noise}"])
    names = ["original", f"images:{noise}"]
    run_probe(FeaturesProbe(open_inception(weights), sha256(weights), sets, names, tmp_path))
    ours = distance_table(read_probe(tmp_path, "inception")).row(0, named=True)
    torch.save(inception_state(weights), tmp_path / "inception.pth")
    originals = tmp_path / "originals"
    originals.mkdir()
    for file in sorted((Path(edited) / "images" / "original").glob("*.png")):
        os.link(file, originals / file.name) if os.stat(file).st_dev == os.stat(originals).st_dev else (
            originals / file.name
        ).write_bytes(file.read_bytes())
    theirs = calculate_metrics(
        input1=str(noise), input2=str(originals), fid=True, cuda=False, verbose=False, save_cpu_ram=True,
        feature_extractor_weights_path=str(tmp_path / "inception.pth"), cache=False,
    )  # fmt: skip
    assert ours["fid"] == pytest.approx(theirs["frechet_inception_distance"], rel=1e-4)


@pytest.mark.parametrize(
    "content", [b"", b"words", {"trunk": [{"weight": 1, "bias": 2}], "lin": [], "pool_before": []}]
)
def test_a_file_without_lpips_weights_is_refused(content, tmp_path):
    if isinstance(content, bytes):
        (tmp_path / "lpips.pt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "lpips.pt")
    with pytest.raises(UserError, match="does not hold LPIPS weights"):
        open_lpips(tmp_path / "lpips.pt")


@lpips_here
def test_lpips_is_zero_for_equal_pictures_and_grows_with_noise():
    from unswayed.sources import open_source

    distance = open_lpips(lpips_file())
    image = open_source("sample", limit=1)[0].image[:200, :200]
    rng = np.random.default_rng(0)
    noisy = [np.clip(image + rng.normal(0, level, image.shape), 0, 255).astype(np.uint8) for level in (5, 40)]
    assert distance(image, image) == 0
    assert 0 < distance(image, noisy[0]) < distance(image, noisy[1]) < 2
