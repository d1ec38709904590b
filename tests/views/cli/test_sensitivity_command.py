"""`unswayed sensitivity` as a user runs it: the sample, RIVAL10's published layout with a malicious file, mistakes."""

import base64
import csv
import io
import json
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from command_line import refusal, run_cli
from unswayed.evaluation.probes import read_probe
from unswayed.sources import open_source


def unswayed(*arguments, command="sensitivity"):
    return run_cli(command, *arguments)


def png(mask):
    buffer = io.BytesIO()
    Image.fromarray((mask * 255).astype(np.uint8)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue())


@pytest.fixture
def rival10(tmp_path):
    """Three pictures of two classes in the published layout, with attribute masks; one of their files is malicious."""
    rng = np.random.default_rng(0)
    pictures, masks = tmp_path / "RIVAL10/test/ordinary", tmp_path / "RIVAL10/test/entire_object_masks"
    pictures.mkdir(parents=True)
    masks.mkdir()
    for name in ("n02690373_1", "n04552348_2", "n02099712_3"):
        mask, wings = np.zeros((224, 224)), np.zeros((224, 224))
        mask[60:160, 50:180] = 1
        wings[100:130, 60:120] = 1
        Image.fromarray(rng.integers(0, 255, (224, 224, 3), dtype=np.uint8)).save(pictures / f"{name}.JPEG")
        Image.fromarray((mask * 255).astype(np.uint8)).save(masks / f"{name}.JPEG")
        labels = np.zeros((2, 18))
        labels[0, 1] = name.startswith(("n0269", "n0455"))
        np.save(pictures / f"{name}_attr_labels.npy", labels)
        content = {"entire-object": png(mask)} | ({"wings": png(wings)} if labels[0, 1] else {})
        (pictures / f"{name}_attr_dict.pkl").write_bytes(pickle.dumps(content))
    return tmp_path / "RIVAL10"


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/unswayed-was-here",)


def test_rival10_with_attribute_masks_and_one_malicious_pickle(rival10, tmp_path):
    (rival10 / "test/ordinary/n02099712_3_attr_dict.pkl").write_bytes(pickle.dumps({"ears": Evil()}))
    out = tmp_path / "out"
    done = unswayed(
        f"rival10:{rival10}", "-m", "lite:0", "-o", out, "--levels", 60, "--table", "drops", "--format", "json"
    )
    assert done.exit_code == 4, done.output
    assert "n02099712_3_attr_dict.pkl: refused" in done.stderr
    assert not os.path.exists("/tmp/unswayed-was-here")
    drops = {(row["norm"], row["region"]): row for row in json.loads(done.stdout)}
    assert set(drops) == {
        *(("linf", region) for region in ("foreground", "background", "everything", "wings")),
        *(("grey", region) for region in ("foreground", "background", "wings")),
    }
    assert drops["linf", "wings"]["n"] == 2
    assert set(read_probe(out, "noise")["notes"]) == {None}
    assert (out / "attributes.png").is_file()
    card = json.loads((out / "noise/lite-0.json").read_text())
    assert card["settings"]["classes_mapped"]["kind"] == "groups"


def test_the_sample_gives_tables_a_curve_and_heat_maps_and_resumes(tmp_path):
    groups = tmp_path / "groups.csv"
    groups.write_text("model,architecture\nlite:0,EfficientNet\n")
    asked = ["sample", "-m", "lite:0", "-o", tmp_path / "out", "--limit", 3, "--levels", "60,120"]
    done = unswayed(*asked, "--saliency", "layercam", "--groups", groups, "--format", "csv", "--table", "rfs")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["level"] for row in rows] == ["60.0", "120.0", ""]
    assert all(row["n"] == "3" for row in rows)
    assert (tmp_path / "out/rfs.png").read_bytes().startswith(b"\x89PNG")
    for name in ("rfs", "class", "group", "drops", "irfs", "saliency", "saliency-class", "answers", "suspects"):
        assert (tmp_path / f"out/{name}.csv").is_file(), name
    drawn = {
        "group-architecture", "saliency-group-architecture", "noise-scatter", "irfs", "irfs-scatter", "rfs-bars",
        "saliency-class",
    }  # fmt: skip
    assert {f"{name}.png" for name in drawn} <= set(os.listdir(tmp_path / "out"))
    again = unswayed(*asked)
    assert "0 pictures measured now, 3 before" in again.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-m", "lite:0", "--norm", "l3"], "no norm 'l3'"),
        (["-m", "lite:0", "--levels", "0"], "the levels are '0'"),
        (["-m", "lite:0", "--norm", "both", "--levels", "30"], "levels of one norm"),
        (["-m", "lite:0", "--seeds", "0"], "the setting seeds is 0"),
        (["-m", "lite:0", "-m", "lite:0"], "one or more different models"),
        (["-m", "lite:0", "--measure", "presicion"], "did you mean 'precision'"),
    ],
)
def test_mistakes_are_answered_in_words(tmp_path, options, reason):
    done = unswayed("sample", "-o", tmp_path, *options)
    refusal(done, reason)


def test_a_folder_holds_results_in_one_framing(tmp_path):
    asked = ["sample", "-m", "lite:0", "-o", tmp_path, "--limit", 2, "--levels", 210, "--saliency", "layercam"]
    assert unswayed(*asked, "--spurious", "--channels", "heat", "--frame", "squash").exit_code == 0
    for kind in ("noise", "saliency"):
        assert json.loads((tmp_path / kind / "lite-0.json").read_text())["settings"]["frame"] == "squash"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    refused = unswayed(*asked, "--frame", "object")
    refusal(refused, "contains results of lite-0 with --frame squash, not object")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_head_is_fitted_probed_in_its_own_framing_and_refused_in_another(rival10, tmp_path):
    for name in ("n02690373_4", "n04552348_5", "n02099712_6"):
        for ending in (".JPEG", "_attr_labels.npy", "_attr_dict.pkl"):
            old = rival10 / f"test/ordinary/{name.rpartition('_')[0]}_{int(name[-1]) - 3}{ending}"
            (rival10 / f"test/ordinary/{name}{ending}").write_bytes(old.read_bytes())
    (rival10 / "test/ordinary/n02099712_3_attr_dict.pkl").write_bytes(pickle.dumps({"ears": Evil()}))
    source, head = f"rival10:{rival10}", tmp_path / "head"
    asked = [source, "-m", "base=lite:0", "-o", head, "--frame", "squash", "--preset", "released"]
    fitted = unswayed(*asked, "--ablate", "background", command="fit-head")
    assert fitted.exit_code == 4, fitted.output
    assert "10 classes, 4 pictures for training, 1 for validation" in fitted.stdout
    assert "n02099712_3_attr_dict.pkl: refused" in fitted.stderr
    card = json.loads((head / "head.json").read_text())
    assert (card["base"], card["frame"], card["ablated"]) == ("lite:0", "squash", "background")
    assert (card["training"]["optimizer"], card["training"]["epochs"]) == ("adam", 20)
    probe = [source, "-m", f"head:{head}", "-o", tmp_path / "out", "--levels", 60]
    refused = unswayed(*probe)
    refusal(refused, "was trained on pictures with --frame squash, and these have --frame object")
    assert not (tmp_path / "out").exists()
    assert unswayed(*probe, "--frame", "squash").exit_code == 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--epochs", 0], "1 or more"),
        (["--learning-rate", 0], "a learning rate above 0"),
        ([], "no class has two pictures"),
    ],
)
def test_heads_that_cannot_be_fitted_are_refused_and_nothing_is_written(tmp_path, options, reason):
    done = unswayed("sample", "-m", "lite:0", "-o", tmp_path / "head", "--limit", 3, *options, command="fit-head")
    refusal(done, reason)
    assert not (tmp_path / "head").exists()


def test_a_random_sample_is_measured(tmp_path):
    assert unswayed("sample", "-m", "lite:0", "-o", tmp_path, "--sample", 2, "--levels", 60).exit_code == 0
    source = open_source("sample")
    measured = set(read_probe(tmp_path, "noise")["source_id"])
    assert measured == set(source.select(sample=2).ids) != set(source.select(limit=2).ids)
    refusal(unswayed("sample", "-m", "lite:0", "-o", tmp_path, "--sample", 2, "--limit", 2), given="limit and sample")
