"""`unswayed masks`: whole files, goes on where it stopped, and does not end on one bad picture."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from command_line import refusal, run_cli
from deadly import unswayed
from unswayed.errors import UserError
from unswayed.files.whole import write_bytes
from unswayed.jobs import EngineSettings
from unswayed.masks import MaskSettings
from unswayed.masks.confidence import only_writer
from unswayed.masks.make_masks import make_masks, mask_png
from unswayed.sources import open_source
from unswayed.sources.folder import read_confidences
from unswayed.sources.pictures import read_mask

NAMES = ("koala/1.jpg", "panda/1.jpg", "panda/bad.jpg")


@pytest.fixture
def photographs(tmp_path):
    folder = tmp_path / "photos"
    for name in ("panda", "koala"):
        (folder / name).mkdir(parents=True)
        image = Image.fromarray(open_source("sample")[name].image)
        image.reduce(4).save(folder / name / "1.jpg")
    (folder / "panda" / "bad.jpg").write_text("words")
    return folder


def test_every_good_picture_gets_a_mask_that_the_folder_source_takes(photographs, tmp_path):
    masks = tmp_path / "masks"
    made = list(make_masks(photographs, masks))
    assert [(one.picture, one.status) for one in made] == [
        ("koala/1.jpg", "made"),
        ("panda/1.jpg", "made"),
        ("panda/bad.jpg", "failed"),
    ]
    assert "not a picture but text" in made[2].reason
    source = open_source(f"folder:{photographs}?masks={masks}")
    assert source["panda--1"].pixel_rate > 0.05
    assert sorted(path.name for path in masks.rglob("*") if path.is_file()) == ["1.png", "1.png", "confidence.csv"]


def test_a_second_run_keeps_what_is_there_and_makes_what_is_not(photographs, tmp_path):
    masks = tmp_path / "masks"
    list(make_masks(photographs, masks))
    (masks / "koala/1.png").unlink()
    before = (masks / "panda/1.png").stat().st_mtime_ns
    assert [one.status for one in make_masks(photographs, masks)] == ["made", "kept", "failed"]
    assert (masks / "panda/1.png").stat().st_mtime_ns == before


def test_masks_inside_the_folder_are_no_pictures(photographs):
    masks = photographs / "masks"
    list(make_masks(photographs, masks))
    assert [one.status for one in make_masks(photographs, masks)] == ["kept", "kept", "failed"]


def test_one_picture_with_a_box(photographs, tmp_path):
    made = list(make_masks(photographs / "panda/1.jpg", tmp_path / "one", box=(30, 20, 100, 80)))
    assert [one.status for one in made] == ["made"]
    assert (read_mask(tmp_path / "one/1.png")[:, :28] == 0).all()


def test_two_pictures_that_would_share_a_mask_are_told(photographs, tmp_path):
    Image.open(photographs / "koala/1.jpg").save(photographs / "koala/1.png")
    made = list(make_masks(photographs, tmp_path / "masks"))
    assert [one.status for one in made] == ["made", "failed", "made", "failed"]
    assert "koala/1.jpg differs only in the suffix" in made[1].reason


def test_masks_among_the_pictures_a_missing_and_an_empty_folder_are_refused(photographs, tmp_path):
    with pytest.raises(UserError, match="would be written among the pictures"):
        list(make_masks(photographs, photographs))
    with pytest.raises(UserError, match="gone does not exist"):
        list(make_masks(tmp_path / "gone", tmp_path / "masks"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no pictures"):
        list(make_masks(tmp_path / "empty", tmp_path / "masks"))


def confidences(masks):
    return {row["picture"]: row["confidence"] for row in read_confidences(masks / "confidence.csv").to_pylist()}


def test_after_an_interrupted_run_the_command_gives_every_mask_its_confidence(photographs, tmp_path):
    interrupted = make_masks(photographs, tmp_path / "masks", segmenter="grabcut")
    assert next(interrupted).picture == "koala/1.jpg"
    interrupted.close()
    ends = run_cli("masks", photographs, "-o", tmp_path / "masks")
    assert "1 made, 1 kept, 1 failed" in ends.stdout
    undisturbed = list(make_masks(photographs, tmp_path / "whole", segmenter="grabcut"))
    assert confidences(tmp_path / "masks") == {
        one.picture: pytest.approx(one.confidence, abs=1e-4) for one in undisturbed if one.status == "made"
    }
    assert Image.open(tmp_path / "masks/worst.jpg").width == 400  # both
    assert sorted(path.name for path in (tmp_path / "masks").glob(".*")) == []


def test_a_mask_that_a_person_approved_stays_without_a_confidence(photographs, tmp_path):
    list(make_masks(photographs, tmp_path, segmenter="grabcut"))
    lines = (tmp_path / "confidence.csv").read_text().splitlines()
    (tmp_path / "confidence.csv").write_text("\n".join(line for line in lines if "koala" not in line) + "\n")
    again = make_masks(photographs, tmp_path, segmenter="grabcut")
    assert [made.confidence is None for made in again] == [True, False, True]
    assert confidences(tmp_path).keys() == {"panda/1.jpg"}


def test_two_shards_that_end_together_keep_each_others_confidences(photographs, tmp_path):
    """One shard has read the table and is about to write it while the other one ends, through the command."""
    parts = {number: EngineSettings(shard=f"{number}/2").part(sorted(NAMES)) for number in (1, 2)}
    command = ["masks", str(photographs), "-o", str(tmp_path), "--shard", "1/2"]
    with ThreadPoolExecutor() as pool:
        with only_writer(tmp_path):
            other = pool.submit(run_cli, *command)
            while not all((tmp_path / name).with_suffix(".png").is_file() for name in parts[1] if "bad" not in name):
                assert not other.done()
            write_bytes(tmp_path / "confidence.csv", f"picture,confidence\n{parts[2][0]},0.5\n".encode())
        other.result()
    assert confidences(tmp_path).keys() == {name for name in parts[1] if "bad" not in name} | {parts[2][0]}


def test_the_command_has_the_options_of_the_engine_and_places_the_classifier(photographs, tmp_path):
    command = ["masks", str(photographs / "koala"), "-o", str(tmp_path / "masks"), "--segmenter", "grabcut"]
    options = ["-m", "lite:0", "--label", "no animal", "--device", "cpu", "--per-gpu", "2"]
    refusal(run_cli(*command, *options), "no class in imagenet-1k 'no animal'")
    refusal(run_cli(*command, "--device", "cpu"), "--device cpu needs a classifier")
    workers = set()
    show = lambda view: workers.update((one.name, one.device) for one in view.workers)  # noqa: E731
    chosen = MaskSettings(segmenter="grabcut", model="lite:0", label="koala", device="cpu")
    (made,) = make_masks(photographs / "koala", tmp_path / "masks", chosen, show=show)
    assert (made.status, workers) == ("made", {("cpu 1", "cpu")})


def test_a_mask_comes_back_from_its_file():
    mask = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    assert np.abs(read_mask(mask_png(mask)) - mask).max() < 1 / 255


def test_the_command_ends_with_4_after_a_failure_and_prints_json(photographs, tmp_path):
    done = run_cli("masks", photographs, "-o", tmp_path / "masks", "--json")
    assert done.exit_code == 4
    rows = json.loads(done.stdout)
    assert [row["status"] for row in rows] == ["made", "made", "failed"]
    (photographs / "panda/bad.jpg").unlink()
    done = run_cli("masks", photographs, "-o", tmp_path / "masks")
    assert (done.exit_code, done.stdout.split(":")[0]) == (0, "0 made, 2 kept, 0 failed")


def test_a_photograph_that_ends_its_reader_fails_alone(photographs, tmp_path):
    (photographs / "koala/deadly.jpg").write_bytes((photographs / "koala/1.jpg").read_bytes())
    done = unswayed(
        tmp_path, "masks", photographs, "-o", tmp_path / "masks", "--segmenter", "grabcut", "--workers", 1, "--json"
    )
    assert done.returncode == 4, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["picture"], row["status"]) for row in rows] == [
        ("koala/1.jpg", "made"),
        ("koala/deadly.jpg", "failed"),
        ("panda/1.jpg", "made"),
        ("panda/bad.jpg", "failed"),
    ]
    assert rows[1]["reason"] == "koala/deadly.jpg: the process that worked on it died twice (SIGSEGV)"
    assert confidences(tmp_path / "masks").keys() == {"koala/1.jpg", "panda/1.jpg"}


def test_the_command_refuses_a_wrong_box_and_an_unknown_segmenter(photographs, tmp_path):
    done = run_cli("masks", photographs, "-o", tmp_path / "masks", "--box", "1,2")
    assert (done.exit_code, "X,Y,W,H" in done.stderr) == (2, True)
    done = run_cli("masks", photographs, "-o", tmp_path / "masks", "--segmenter", "grabcat")
    assert (done.exit_code, "did you mean 'grabcut'" in done.stderr) == (2, True)
    done = run_cli("masks", photographs, "-o", tmp_path / "masks", "-m", "grabcut")
    assert (done.exit_code, "allowed: --segmenter grabcut" in done.stderr) == (2, True)
    assert not (tmp_path / "masks").exists()
