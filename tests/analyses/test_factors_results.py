"""Published result tables: the tree of files, types of models, augmentation sweeps, and what is refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from factor_worlds import RESULT_SUMMARIES as SUMMARIES
from factor_worlds import write_model_types, write_result_tree, write_table
from unswayed.analyses.factors import Study, make_table
from unswayed.analyses.factors.answers import read_results, result_files
from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """(folder that contains `results`, annotations folder of a package with model types)."""
    root = tmp_path_factory.mktemp("published")
    write_result_tree(root / "results")
    (root / "package" / "annotations").mkdir(parents=True)
    write_model_types(root / "package")
    return root, root / "package" / "annotations"


def test_the_tree_is_read_by_set_and_ratios_follow_the_published_formula(tree):
    root, _ = tree
    table = make_table(Study(root, sets="base"))
    assert table["set"].unique().to_list() == ["base"]
    assert table.filter(pl.col("model") == "DINO")["factor"].to_list() == [*FACTORS, *SUMMARIES]
    row = pl.read_csv(root / "results/val/top_factor/base/class/accuracies_per_factor.csv").row(0, named=True)
    found = dict(table.filter(pl.col("model") == "DINO").select("factor", "error_ratio").iter_rows())
    assert found["pose"] == pytest.approx((1 - row["pose"]) / (1 - row["average"]), abs=1e-12)
    assert found["average"] == 1
    assert make_table(Study(root, right="real"))["model"].unique().sort().to_list() == ["DINO", "human"]
    by_metaclass = make_table(Study(root, by="metaclass"))
    assert by_metaclass["metaclass"].unique(maintain_order=True).to_list() == ["dog", "bird"]


def test_the_papers_types_take_only_self_supervised_models_from_the_other_sets(tree):
    root, package = tree
    table = make_table(Study(root, groups="published", folder=package), "model-types")
    models = dict(table.filter(pl.col("factor") == "pose").select("group", "models").iter_rows())
    # net0 is in two sets and counts once; the models of low accuracy are not among the paper's types.
    assert models == {"Supervised on ImageNet-1K": 2, "Supervised on more data": 2, "Self-supervised": 3}
    errors = make_table(Study(root))
    values = [
        errors.filter((pl.col("factor") == "pose") & (pl.col("model") == name) & (pl.col("set") == where))
        for name, where in (("MoCo", "modelvshuman"), ("PIRL", "modelvshuman"), ("DINO", "base"))
    ]
    ratios = [value["error_ratio"][0] for value in values]
    row = table.filter((pl.col("factor") == "pose") & (pl.col("group") == "Self-supervised")).row(0, named=True)
    assert row["error_ratio"] == pytest.approx(np.mean(ratios), abs=1e-12)
    assert row["spread"] == pytest.approx(np.std(ratios, ddof=1), abs=1e-12)


def test_strengths_come_from_the_names_and_rare_strengths_are_left_out(tree):
    root, _ = tree
    table = make_table(Study(root), "spill-over")
    crop = table.filter((pl.col("augmentation") == "crop") & (pl.col("factor") == "pose")).row(0, named=True)
    assert crop["models"] == 15
    assert {crop["best_strength"], crop["worst_strength"]} <= {0.0, 40.0, 80.0}
    values = make_table(Study(root), "strengths").filter(
        (pl.col("augmentation") == "crop") & (pl.col("factor") == "pose")
    )
    expected = stats.spearmanr(values["strength"], values["error_ratio"]).statistic
    assert crop["correlation"] == pytest.approx(expected, abs=1e-12)
    assert (
        len(make_table(Study(root, models_per_strength=1), "strengths"))
        == len(make_table(Study(root), "strengths")) + 16
    )
    with pytest.raises(UserError, match="no strength has 50 or more models"):
        make_table(Study(root, models_per_strength=50), "spill-over")


def test_augmentations_are_compared_at_their_strongest(tree):
    root, _ = tree
    table = make_table(Study(root, groups="augmentations"), "model-types")
    models = dict(table.filter(pl.col("factor") == "pose").select("group", "models").iter_rows())
    assert models == {
        "crop": 5, "color jitter": 5, "color jitter and crop": 2, "color jitter by class, and crop": 2
    }  # fmt: skip


def test_a_folder_of_tables_and_one_file_are_read_too(tmp_path):
    write_table(tmp_path / "mine.csv", ["a", "b"])
    assert list(result_files(tmp_path)) == list(result_files(tmp_path / "mine.csv")) == ["mine"]
    table = make_table(Study(tmp_path), "accuracy")
    assert table.columns == ["set", "model", "average", "factor", "accuracy", "error_ratio"]
    assert len(table) == 32
    (tmp_path / "groups.csv").write_text("model,kind\na,x\nb,y\n")
    grouped = make_table(Study(tmp_path / "mine.csv", groups=tmp_path / "groups.csv"), "accuracy")
    assert grouped["group"].unique(maintain_order=True).to_list() == ["x", "y"]
    with pytest.raises(UserError, match=r"mine\.csv, and groups\.csv"):
        make_table(Study(tmp_path))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.with_columns(weather=0.5), "weather, which are not factors"),
        (lambda t: t.with_columns(pose=70.0), "column 'pose', row 2 is 70"),
        (lambda t: t.with_columns(pose=pl.lit("good")), "column 'pose', row 2: invalid value 'good'"),
        (lambda t: t.drop("average"), "no column `average`"),
        (lambda t: pl.concat([t, t]), "'a' more than once"),
        (lambda t: t.with_columns(metaclass=pl.lit("dog")), "--by metaclass"),
    ],
)
def test_wrong_result_tables_are_refused_with_the_reason(tmp_path, change, reason):
    change(write_table(tmp_path / "t.csv", ["a"])).write_csv(tmp_path / "t.csv")
    with pytest.raises(UserError, match=reason):
        read_results(result_files(tmp_path / "t.csv"))


def test_empty_cells_stay_empty_and_tables_of_images_are_refused(tree, tmp_path):
    table = write_table(tmp_path / "t.csv", ["a"]).with_columns(pose=pl.lit(None, pl.Float64))
    table.write_csv(tmp_path / "t.csv")
    assert make_table(Study(tmp_path))["accuracy"].null_count() == 1
    root, package = tree
    for study, name, reason in (
        (Study(root), "calibration", "needs the prediction for each image"),
        (Study(root, which="multi"), "errors", "val/multi_factor"),
        (Study(root, right="real-standard"), "errors", "no --right real-standard"),
        (Study(root, sets="bases"), "errors", "did you mean 'base'"),
        (Study(root, sets="base"), "spill-over", "no augmentation sweep"),
        (Study(root, sets="crop", groups="published", folder=package), "model-types", "name none of the models"),
        (Study(), "errors", "needs predictions or result tables"),
    ):
        with pytest.raises(UserError, match=reason):
            make_table(study, name)
