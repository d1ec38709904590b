"""Predictions of every shape join the annotations by file name, or are refused with a reason."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest

from factor_worlds import random_answers, write_annotations
from unswayed.analyses.factors import Study, make_table, remarks
from unswayed.analyses.factors.answers import read_answers
from unswayed.analyses.factors.error_ratios import factor_errors
from unswayed.errors import UserError
from unswayed.sources.imagenet_x import load_annotations


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = write_annotations(tmp_path_factory.mktemp("annotations"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSWAYED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield folder


@pytest.fixture(scope="module")
def annotations(world):
    return load_annotations("multi", folder=world)


@pytest.fixture(scope="module")
def answers(annotations):
    return random_answers([f"{key}.JPEG" for key in annotations.keys], annotations.labels, seed=1)


def ratios(path, annotations) -> pl.DataFrame:
    (only,) = read_answers(path, annotations)
    return factor_errors(annotations, only, resamples=50).drop("model")


@pytest.fixture(scope="module")
def expected(tmp_path_factory, annotations, answers):
    path = tmp_path_factory.mktemp("plain") / "plain.csv"
    answers.write_csv(path)
    return ratios(path, annotations)


def reshaped(answers: pl.DataFrame) -> dict[str, bytes]:
    text = answers.write_csv()
    return {
        "shuffled": answers.sample(fraction=1, shuffle=True, seed=3).write_csv().encode(),
        "class column": answers.with_columns(pl.lit(7).alias("class")).write_csv().encode(),
        "folders": answers.with_columns("val/n01440764/" + pl.col("file_name")).write_csv().encode(),
        "windows folders": answers.with_columns("C:\\val\\" + pl.col("file_name")).write_csv().encode(),
        "a benchmark's names": text.replace("ILSVRC", "n01440764--ILSVRC").replace(".JPEG", ".png").encode(),
        "windows line ends": text.replace("\n", "\r\n").encode(),
        "byte order mark": b"\xef\xbb\xbf" + text.encode(),
        "other ending": text.replace(".JPEG", ".png").encode(),
        "columns in another order": answers.select(reversed(answers.columns)).write_csv().encode(),
        "blanks after commas in the head": text.replace(",", ", ", 2).encode(),
        "classes as floats": answers.with_columns(pl.col("predicted_class").cast(pl.Float64)).write_csv().encode(),
        "images that are not annotated": text.encode() + b"ILSVRC2012_val_00049999.JPEG,3,0.5\n",
    }


@pytest.mark.parametrize("shape", list(reshaped(pl.DataFrame({"file_name": ["a.JPEG"], "predicted_class": [1]}))))
def test_the_same_answers_in_another_shape_give_the_same_table(shape, tmp_path, annotations, answers, expected):
    (tmp_path / "odd.csv").write_bytes(reshaped(answers)[shape])
    assert ratios(tmp_path / "odd.csv", annotations).equals(expected)


def test_own_parquet_counts_only_unedited_pictures(tmp_path, annotations, answers, expected):
    own = answers.rename({"predicted_class": "predicted", "predicted_probability": "probability"})
    original = own.with_columns(model=pl.lit("lite:0"), edit=pl.lit("original"))
    edited = own.with_columns(pl.lit(0, pl.Int64).alias("predicted"), model=pl.lit("lite:0"), edit=pl.lit("size-0.05"))
    pl.concat([original, edited]).write_parquet(tmp_path / "lite-0.parquet")
    assert ratios(tmp_path / "lite-0.parquet", annotations).equals(expected)
    original.with_columns(edit=pl.lit(None, pl.String)).write_parquet(tmp_path / "lite-0.parquet")
    assert ratios(tmp_path / "lite-0.parquet", annotations).equals(expected)


def test_a_folder_may_mix_formats_and_a_file_may_hold_many_models(tmp_path, annotations, answers, expected):
    answers.write_csv(tmp_path / "a.csv")
    named = [answers.sample(fraction=1, shuffle=True, seed=i).with_columns(model=pl.lit(f"m{i}")) for i in range(3)]
    # interleaved, so that no model is complete before the last rows
    pl.concat(named).sample(fraction=1, shuffle=True, seed=9).write_parquet(tmp_path / "b.parquet", row_group_size=100)
    found = {one.model: one for one in read_answers(tmp_path, annotations)}
    assert sorted(found) == ["a", "m0", "m1", "m2"]
    for one in found.values():
        assert factor_errors(annotations, one, resamples=50).drop("model").equals(expected)


def test_a_subset_says_its_coverage_and_counts_its_own_images(tmp_path, world, annotations, answers):
    part = answers.sample(120, seed=5)
    part.write_csv(tmp_path / "part.csv")
    study = Study(tmp_path, which="multi", folder=world)
    table = make_table(study)
    labels = dict(zip(annotations.keys, annotations.labels, strict=True))
    right = [
        labels[name.removesuffix(".JPEG")] == c for name, c in part.select("file_name", "predicted_class").iter_rows()
    ]
    average = table.filter(pl.col("factor") == "average").row(0, named=True)
    assert (average["n"], average["accuracy"]) == (120, pytest.approx(np.mean(right)))
    assert average["coverage"] == pytest.approx(120 / len(annotations))
    assert remarks(study, table) == [f"part: {120 / len(annotations):.1%} of the {len(annotations)} annotated images"]
    assert make_table(study, "coverage").row(0) == ("part", 120, 120, 397, 120 / 397)


def test_training_images_have_their_own_annotations(tmp_path, world):
    train = load_annotations("top", "train", world)
    random_answers([f"{k}.JPEG" for k in train.keys], train.labels, seed=2, accuracy=1).write_csv(tmp_path / "m.csv")
    (only,) = read_answers(tmp_path, train)
    average = factor_errors(train, only).filter(pl.col("factor") == "average").row(0, named=True)
    assert (average["n"], average["accuracy"], average["error_ratio"]) == (100, 1.0, None)
    with pytest.raises(UserError, match="validation images only"):
        factor_errors(train, only, "real")
    with pytest.raises(UserError, match="--partition train"):
        list(read_answers(tmp_path, load_annotations("top", "val", world)))


BAD = {
    "file_name,predicted_class\nfoo.jpg,1\nbar.jpg,2\n": "none of the 2 file names",
    "file_name,predicted_class\n": "none of the 0 file names",
    "predicted_class\n1\n": "no file_name column",
    "file_name,answer\na,1\n": "no predicted_class column",
    "file_name,predicted_class\nILSVRC2012_val_00000009.JPEG,1000\n": "not ImageNet class numbers",
    "file_name,predicted_class\nILSVRC2012_val_00000009.JPEG,-1\n": "not ImageNet class numbers",
    "file_name,predicted_class\nILSVRC2012_val_00000009.JPEG,1.5\n": "not ImageNet class numbers",
    "file_name,predicted_class\nILSVRC2012_val_00000009.JPEG,\n": "not ImageNet class numbers",
    "file_name,predicted_class\nILSVRC2012_val_00000009.JPEG,cat\n": "row 2: invalid value 'cat'",
    "file_name,predicted_class,predicted_probability\nILSVRC2012_val_00000009.JPEG,1,55\n": "outside 0…1",
    "file_name,predicted_class,predicted_probability\nILSVRC2012_val_00000009.JPEG,1,high\n": "row 2: invalid value",
    "file_name,predicted_class\nILSVRC2012_val_00000009.JPEG,1\nx/ILSVRC2012_val_00000009.JPEG,1\n": "more than once",
    "": "not a readable CSV file: it is empty",
}


@pytest.mark.parametrize("text", list(BAD))
def test_predictions_that_cannot_be_meant_are_refused(text, tmp_path, annotations):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(UserError, match=BAD[text]):
        list(read_answers(tmp_path, annotations))


def test_folders_without_usable_predictions_are_refused(tmp_path, annotations, answers):
    with pytest.raises(UserError, match="no file or folder"):
        list(read_answers(tmp_path / "nowhere", annotations))
    with pytest.raises(UserError, match="contains no predictions"):
        list(read_answers(tmp_path, annotations))
    answers.write_csv(tmp_path / "m.csv")
    answers.with_columns(model=pl.lit("m")).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(UserError, match="'m' is in two files"):
        list(read_answers(tmp_path, annotations))
    (tmp_path / "other.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UserError, match="is not a readable Parquet file"):
        list(read_answers(tmp_path, annotations))


def test_annotations_that_are_not_there_name_the_line_that_installs_them(tmp_path, monkeypatch, world):
    with pytest.raises(UserError, match="pip install 'unswayed"):
        load_annotations(folder=tmp_path)
    with pytest.raises(UserError, match="no annotations folder"):
        load_annotations(folder=tmp_path / "nowhere")
    with pytest.raises(UserError, match="did you mean 'top'"):
        load_annotations("tops", folder=world)
    with pytest.raises(UserError, match="no partition"):
        load_annotations("top", "test", folder=world)
    monkeypatch.setitem(sys.modules, "imagenet_x", None)
    with pytest.raises(UserError, match=r"unswayed\[imagenetx\]"):
        load_annotations()


def test_changed_annotation_files_are_read_anew_and_prototypes_are_left_out(tmp_path):
    folder = write_annotations(tmp_path / "x", images=40)
    before = load_annotations("top", folder=folder)
    assert (len(before), len(load_annotations("top", folder=folder, keep_prototypes=True))) == (37, 40)
    path = folder / "imagenet_x_val_top_factor.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-5]) + "\n")
    assert len(load_annotations("top", folder=folder)) == 32
    path.write_text("{]")
    with pytest.raises(UserError, match="factor.jsonl, row 1 is not readable JSON"):
        load_annotations("top", folder=folder)
