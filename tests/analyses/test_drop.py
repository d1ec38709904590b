"""Dropped accuracy: right numbers, whatever the order of the rows; wrong input refused."""

import json

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from prediction_worlds import benchmark, folder, frame, random_answers
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests

import unfazed
from unfazed.analyses.drop import dropped_accuracy
from unfazed.analyses.facts import Facts, read_facts
from unfazed.analyses.groups import imagenet_superclasses
from unfazed.analyses.model_groups import dropped_accuracy_of_groups
from unfazed.analyses.published import reported, with_published
from unfazed.errors import UserError

PAPER = [
    *("background-simple", "background-complex", "background-adversarial", "background-random"),
    *("size-full", "size-0.1", "size-0.08", "size-0.05", "position", "direction"),
]


def row(table, **where):
    found = table.filter(**where)
    assert found.height == 1
    return found.row(0, named=True)


def test_a_small_table_by_hand():
    answers = {
        "original": [1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
        "inversion": [1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
        "background-simple": [0, 0, 0, 1, 1, 1, 1, 0, 1, 0],
    }
    found = row(unfazed.dropped_accuracy(frame(answers)), edit="background-simple")
    assert found["n"] == 10
    assert found["accuracy"] == pytest.approx(0.5)
    assert found["original_accuracy"] == pytest.approx(0.8)
    assert found["drop"] == pytest.approx(30)
    assert found["net_drop"] == pytest.approx(20)
    assert found["control"] == "inversion"
    # Four photographs lost, one gained.
    assert found["p_value"] == pytest.approx(stats.binomtest(4, 5).pvalue)
    assert found["low"] < 30 < found["high"]
    assert found["interval"] == "score"
    original = row(unfazed.dropped_accuracy(frame(answers)), edit="original")
    assert original["accuracy"] == pytest.approx(0.8)
    assert original["drop"] is None


def test_p_values_equal_statsmodels_over_the_table():
    shares = {"original": 0.9, "size-0.05": 0.7, "size-0.1": 0.85, "position": 0.6}
    predictions = pl.concat([frame(random_answers(seed, 150, shares), model=f"m{seed}") for seed in range(3)])
    table = dropped_accuracy(predictions).drop_nulls("p_value")
    wide = predictions.pivot("edit", index=["model", "source_id"], values="correct")
    expected = []
    for found in table.iter_rows(named=True):
        one = wide.filter(model=found["model"])
        before, after = one["original"].to_numpy(), one[found["edit"]].to_numpy()
        cells = [[(before & after).sum(), (before & ~after).sum()], [(~before & after).sum(), (~before & ~after).sum()]]
        expected.append(statsmodels_mcnemar(cells, exact=True).pvalue)
    np.testing.assert_allclose(table["p_value"], expected, rtol=1e-9)
    np.testing.assert_allclose(table["p_holm"], multipletests(expected, method="holm")[1], rtol=1e-9)


def test_several_runs_count_once_a_photograph():
    answers = random_answers(0, 120, {"original": 0.9, "background-random": (0.84, 5)})
    found = row(dropped_accuracy(frame(answers)), edit="background-random")
    means = np.mean(answers["background-random"], axis=0)
    difference = np.array(answers["original"]) - means
    assert found["n"] == 120
    assert found["runs"] == 5
    assert found["drop"] == pytest.approx(100 * difference.mean())
    # Five runs are no five hundred photographs: the interval is that of 120 differences.
    student = stats.t.ppf(0.975, 119) * difference.std(ddof=1) / np.sqrt(120)
    assert (found["high"] - found["low"]) / 200 == pytest.approx(student, rel=0.12)
    normal = 2 * stats.norm.sf(abs(difference.sum()) / np.sqrt((difference**2).sum()))
    assert 1e-4 < normal < 0.5
    assert found["p_value"] == pytest.approx(normal, rel=0.2, abs=0.005)


def test_shuffled_rows_and_other_models_change_nothing():
    shares = {"original": 0.92, "inversion": (0.9, 3), "background-simple": (0.8, 3), "size-0.05": 0.6}
    predictions = frame(random_answers(1, 200, shares))
    other = frame(random_answers(2, 260, shares), model="other")
    table = dropped_accuracy(predictions)
    shuffled = dropped_accuracy(pl.concat([other, predictions]).sample(fraction=1, shuffle=True, seed=3))
    mine = shuffled.filter(model="m")
    assert_frame_equal(table.drop("p_holm"), mine.drop("p_holm"))


def test_all_models_and_edits_share_their_resamples():
    """Two models with the same answers have the same interval, and a model and its copy differ by exactly nothing."""
    answers = random_answers(4, 400, {"original": 0.9, "size-0.05": 0.6, "size-0.1": 0.6})
    answers["size-0.1"] = answers["size-0.05"]
    table = dropped_accuracy(pl.concat([frame(answers), frame(answers, model="copy")])).filter(kind="edit")
    assert table["interval"].unique().to_list() == ["bootstrap"]
    assert table["low"].n_unique() == table["high"].n_unique() == 1


def test_bootstrap_interval_equals_a_plain_one():
    answers = random_answers(5, 500, {"original": 0.9, "size-0.05": 0.6})
    found = row(dropped_accuracy(frame(answers)), edit="size-0.05")
    difference = np.array(answers["original"]) - np.array(answers["size-0.05"])
    rng = np.random.default_rng(0)
    plain = [difference[rng.integers(0, 500, 500)].mean() for _ in range(4000)]
    low, high = np.quantile(plain, [0.025, 0.975])
    assert found["interval"] == "bootstrap"
    assert found["low"] == pytest.approx(100 * low, abs=0.6)
    assert found["high"] == pytest.approx(100 * high, abs=0.6)


def test_nothing_flipped_is_not_shown_as_certain():
    table = dropped_accuracy(frame({"original": [1] * 30, "size-0.1": [1] * 30}))
    found = row(table, edit="size-0.1")
    assert found["drop"] == 0
    assert found["low"] < -5
    assert found["high"] > 5
    assert found["p_value"] == 1


def test_the_papers_average_is_over_its_ten_edits():
    shares = dict.fromkeys(["original", "inversion", "reinsertion", "occlusion-0.2", *PAPER], 0.8)
    shares |= {"original": 0.95, "size-0.05": 0.4, "occlusion-0.2": 0.1, "inversion": 0.2}
    table = dropped_accuracy(frame(random_answers(6, 150, shares)))
    found = row(table, edit="average")
    drops = [row(table, edit=edit)["drop"] for edit in PAPER]
    assert found["edits"] == 10
    assert found["drop"] == pytest.approx(np.mean(drops))
    assert found["low"] < found["drop"] < found["high"]
    nets = [row(table, edit=edit)["net_drop"] for edit in PAPER]
    assert found["net_drop"] == pytest.approx(np.mean(nets))


def test_the_average_takes_the_direction_after_size_where_both_are_there():
    shares = dict.fromkeys(["original", *PAPER, "direction-small"], 0.8) | {"direction": 0.2}
    table = dropped_accuracy(frame(random_answers(6, 60, shares)))
    drops = [row(table, edit=edit)["drop"] for edit in [*PAPER[:-1], "direction-small"]]
    assert row(table, edit="average")["drop"] == pytest.approx(np.mean(drops))


def test_white_box_models_are_marked_and_left_out_of_averages(tmp_path):
    shares = {"original": 0.9, "background-adversarial": 0.5, "background-simple": 0.8}
    models = {name: frame(random_answers(seed, 80, shares)) for seed, name in enumerate(["a", "b", "guide"])}
    predictions = folder(tmp_path / "p", models, {"guide": {"white_box": True}})
    table = dropped_accuracy(predictions)
    assert table.filter("white_box").select("model", "edit").rows() == [("guide", "background-adversarial")]
    average = row(table, model="guide", edit="average")
    assert average["edits"] == 1
    assert average["drop"] == pytest.approx(row(table, model="guide", edit="background-simple")["drop"])
    means = dropped_accuracy_of_groups(predictions)
    assert means["models"].unique().to_list() == [2]
    for edit in ("background-adversarial", "background-simple"):
        own = [row(table, model=name, edit=edit)["drop"] for name in "ab"]
        assert row(means, edit=edit)["drop"] == pytest.approx(np.mean(own))


def test_the_manifest_says_controls_order_and_guide(tmp_path):
    edits = {
        "original": {},
        "warp": {},
        "zoom": {"control": "warp"},
        "attack": {"control": "warp", "guide": "lite:0"},
    }
    bench = benchmark(tmp_path / "bench", edits, 40)
    shares = dict(zip(edits, (0.9, 0.85, 0.6, 0.5), strict=True))
    card = {"white_box": True, "benchmark": {"path": str(bench)}}
    predictions = folder(tmp_path / "p", {"lite:0": frame(random_answers(0, 40, shares))}, {"lite:0": card})
    table = dropped_accuracy(predictions)
    assert table["edit"].to_list() == ["original", "warp", "zoom", "attack", "average"]
    assert table["kind"].to_list() == ["original", "control", "edit", "edit", "average"]
    zoom, warp = row(table, edit="zoom"), row(table, edit="warp")
    assert zoom["net_drop"] == pytest.approx(zoom["drop"] - warp["drop"])
    assert row(table, edit="attack")["white_box"]
    assert row(table, edit="average")["drop"] == pytest.approx(zoom["drop"])


def test_the_photograph_as_found_is_outside_the_drops():
    answers = {"source": [1] * 10, "original": [1] * 8 + [0] * 2, "size-0.1": [1] * 5 + [0] * 5}
    table = dropped_accuracy(frame(answers))
    found = row(table, edit="source")
    assert found["accuracy"] == 1
    assert found["drop"] is None
    assert found["p_value"] is None
    assert row(table, edit="size-0.1")["drop"] == pytest.approx(30)
    assert row(table, edit="average")["edits"] == 1


def test_missing_pictures_leave_their_photographs_out_of_that_edit_only():
    answers = {"original": [1, 1, 1, 1, 0, 0], "size-0.1": [1, None, 0, 0, None, 1], "position": [0, 1, 1, 1, 0, 0]}
    table = dropped_accuracy(frame(answers))
    found = row(table, edit="size-0.1")
    assert found["n"] == 4
    assert found["original_accuracy"] == pytest.approx(0.75)
    assert found["drop"] == pytest.approx(25)
    assert row(table, edit="position")["n"] == 6
    drops = [row(table, edit=edit)["drop"] for edit in ("size-0.1", "position")]
    assert row(table, edit="average")["drop"] == pytest.approx(np.mean(drops))


def test_a_missing_original_leaves_the_photograph_out():
    table = dropped_accuracy(frame({"original": [1, 1, None, 0], "size-0.1": [0, 1, 1, 1]}))
    assert row(table, edit="size-0.1")["n"] == 3


def test_models_with_different_edits_have_different_rows():
    one = frame({"original": [1, 1], "size-0.1": [0, 1]}, model="one")
    two = frame({"original": [1, 1], "position": [0, 1]}, model="two")
    table = dropped_accuracy(pl.concat([one, two]))
    assert set(table.filter(kind="edit").select("model", "edit").rows()) == {("one", "size-0.1"), ("two", "position")}


def test_duplicated_rows_are_refused():
    predictions = frame({"original": [1, 1, 0], "size-0.1": [1, 0, 0]})
    with pytest.raises(UserError, match=r"1 pictures of m occur more than once, as image-0002, edit original, run 0"):
        dropped_accuracy(pl.concat([predictions, predictions.filter(sample_id="image-0002/original/0")]))


def test_a_model_in_two_files_is_refused(tmp_path):
    predictions = frame({"original": [1, 1, 0], "size-0.1": [1, 0, 0]})
    folder(tmp_path, {"a": predictions})
    predictions.with_columns(model=pl.lit("a")).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(UserError, match="the model a is in a.parquet and in b.parquet"):
        dropped_accuracy(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda frame: frame.drop("correct"), "lacks the column correct"),
        (lambda frame: frame.drop("run", "edit"), "lacks the columns edit, run"),
        (lambda frame: frame.clear(), "is empty"),
        (lambda frame: frame.filter(pl.col("edit") != "original"), "have no edit 'original'"),
        (lambda frame: frame.with_columns(correct=pl.lit(None, pl.Boolean)), "6 rows of m have no correct"),
        (lambda frame: frame.with_columns(model=pl.lit(None, pl.String)), "6 rows name no model"),
    ],
)
def test_unusable_predictions_are_refused(spoil, message):
    with pytest.raises(UserError, match=message):
        dropped_accuracy(spoil(frame({"original": [1, 1, 0], "size-0.1": [1, 0, 0]})))


def test_folders_without_predictions_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        dropped_accuracy(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no predictions"):
        dropped_accuracy(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no Parquet at all")
    with pytest.raises(UserError, match="a.parquet is not readable Parquet"):
        dropped_accuracy(tmp_path)


def test_a_file_that_lacks_columns_is_named(tmp_path):
    frame({"original": [1]}).drop("correct").write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet lacks the column correct"):
        dropped_accuracy(tmp_path)


def test_unknown_names_come_with_the_nearest():
    predictions = frame({"original": [1, 1], "size-0.1": [1, 0]})
    for given, nearest in (
        ({"models": ["n"]}, "there is no model 'n'"),
        ({"edits": ["size-0.2"]}, "did you mean 'size-0.1'"),
        ({"by": "clas"}, "did you mean 'class'"),
        ({"interval": "bootstrp"}, "did you mean 'bootstrap'"),
    ):
        with pytest.raises(UserError, match=nearest):
            dropped_accuracy(predictions, **given)
    with pytest.raises(UserError, match="the level of the intervals is 95"):
        dropped_accuracy(predictions, level=95)


def test_by_class_equals_the_table_of_that_class_alone():
    shares = {"original": 0.9, "inversion": 0.85, "reinsertion": 0.8, "background-simple": (0.7, 3), "size-0.05": 0.5}
    predictions = frame(random_answers(8, 240, shares))
    table = dropped_accuracy(predictions, by="class", facts=Facts(classes=("ant", "bee", "cat")))
    assert set(table["class"]) == {"ant", "bee", "cat"}
    for label, name in enumerate(("ant", "bee", "cat")):
        alone = dropped_accuracy(predictions.filter(label=label))
        for edit in ("inversion", "background-simple", "size-0.05", "average"):
            found, expected = row(table, edit=edit, **{"class": name}), row(alone, edit=edit)
            for column in ("n", "accuracy", "drop", "net_drop", "p_value", "low", "high", "net_low"):
                if expected[column] is None:
                    assert found[column] is None, (edit, column)
                else:
                    assert found[column] == pytest.approx(expected[column], rel=1e-6), (edit, column)


def test_by_class_lists_the_worst_first_and_shrinks_small_classes():
    rng = np.random.default_rng(0)
    big = {"original": [1] * 300, "size-0.05": (rng.random(300) > 0.2).astype(int)}
    big["size-0.05"][:3] = 0
    label = lambda index: 0 if index < 3 else 1 + index % 2 if index % 10 else 3  # noqa: E731
    predictions = frame(big, label=label)
    hard = (pl.col("label") == 2) & (pl.col("edit") == "size-0.05") & (pl.col("source_id").hash(1) % 3 > 0)
    predictions = predictions.with_columns(correct=pl.when(hard).then(False).otherwise("correct"))
    table = dropped_accuracy(predictions, by="class", edits=["size-0.05"])
    assert table["shrunk_drop"].is_sorted(descending=True)
    small = row(table, **{"class": "0"})
    assert small["n"] == 3
    assert small["drop"] == 100
    assert small["shrunk_drop"] < 85
    large = row(table, **{"class": "2"})
    assert large["shrunk_drop"] == pytest.approx(large["drop"], abs=3)


def test_by_superclass_joins_classes():
    labels = [151, 207, 281, 282, 388, 22]
    predictions = frame({"original": [1] * 6, "size-0.1": [0, 1, 0, 0, 1, 1]}, label=lambda index: labels[index])
    table = dropped_accuracy(predictions, by="superclass", edits=["size-0.1"])
    found = dict(table.select("superclass", "drop").rows())
    assert found == {"dog": pytest.approx(50), "cat": pytest.approx(100), "panda": 0, "bird": 0}
    assert len(imagenet_superclasses()) == 1000


def test_by_superclass_is_refused_for_classes_of_ones_own():
    with pytest.raises(UserError, match="for ImageNet's classes only"):
        dropped_accuracy(
            frame({"original": [1], "size-0.1": [1]}), by="superclass", facts=Facts(classes=("cup", "plate"))
        )


def test_by_any_column_of_the_manifest(tmp_path):
    edits = {"original": {}, "size-0.1": {}}
    bench = benchmark(
        tmp_path / "bench",
        edits,
        60,
        border_contact=lambda index, edit: float(index % 2) if edit != "original" else None,
        pixel_rate=lambda index, edit: index / 60,
    )
    answers = {"original": [1] * 60, "size-0.1": [index % 2 for index in range(60)]}
    predictions = folder(tmp_path / "p", {"a": frame(answers)}, {"a": {"benchmark": {"path": str(bench)}}})
    table = dropped_accuracy(predictions, by="border_contact")
    assert dict(table.select("border_contact", "drop").rows()) == {"0.0": 100, "1.0": 0}
    quarters = dropped_accuracy(predictions, by="pixel_rate")
    assert quarters.height == 4
    assert quarters["n"].sum() == 60
    assert all(" to " in value for value in quarters["pixel_rate"])


def test_by_a_column_of_the_predictions():
    predictions = frame({"original": [1] * 8, "size-0.1": [0, 0, 1, 1, 1, 1, 1, 1]})
    early = pl.col("source_id") < "image-0004"
    predictions = predictions.with_columns(weather=pl.when(early).then(pl.lit("rain")).otherwise(pl.lit("sun")))
    table = dropped_accuracy(predictions, by="weather")
    assert dict(table.select("weather", "drop").rows()) == {"rain": 50, "sun": 0}


def test_groups_of_models(tmp_path):
    shares = {"original": 0.9, "size-0.1": 0.7}
    models = {name: frame(random_answers(seed, 150, shares)) for seed, name in enumerate("abc")}
    predictions = folder(tmp_path / "p", models)
    csv = tmp_path / "groups.csv"
    csv.write_text("model,training,architecture\na,robust,conv\nb,plain,conv\nc,plain,attention\n")
    table = dropped_accuracy_of_groups(predictions, csv)
    own = dropped_accuracy(predictions)
    assert dict(table.filter(edit="size-0.1").select("model", "models").rows()) == {
        "all models": 3,
        "training: robust": 1,
        "training: plain": 2,
        "architecture: conv": 2,
        "architecture: attention": 1,
    }
    mean = np.mean([row(own, model=name, edit="size-0.1")["drop"] for name in "bc"])
    plain = row(table, model="training: plain", edit="size-0.1")
    assert plain["drop"] == pytest.approx(mean)
    # A group of one is that model; two models together are surer than one.
    robust, alone = row(table, model="training: robust", edit="size-0.1"), row(own, model="a", edit="size-0.1")
    assert (robust["low"], robust["high"]) == pytest.approx((alone["low"], alone["high"]))
    assert plain["high"] - plain["low"] < alone["high"] - alone["low"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,training\na,robust\nz,plain\n", "there is no model 'z'"),
        ("name,training\na,robust\n", "the groups have the columns name, training"),
        ("model\na\n", "model and at least one more"),
        ("model,training\na,robust\na,plain\n", "name a more than once"),
    ],
)
def test_wrong_groups_are_refused(tmp_path, text, message):
    predictions = folder(tmp_path / "p", {"a": frame({"original": [1, 1], "size-0.1": [1, 0]})})
    (tmp_path / "groups.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        dropped_accuracy_of_groups(predictions, tmp_path / "groups.csv")
    with pytest.raises(UserError, match="not a readable CSV"):
        dropped_accuracy_of_groups(predictions, tmp_path / "nowhere.csv")


def test_published_figures_stand_beside_the_official_sets_only(tmp_path):
    folders = ("20_smooth", "20_hard", "random_bg", "full", "01", "008", "005", "rp", "rd")
    bench = benchmark(tmp_path / "bench", {"original": {}, "size-0.05": {}}, 30)
    answers = {"original": [1] * 30, "size-0.05": [1] * 20 + [0] * 10}
    card = {"benchmark": {"path": str(bench)}}
    predictions = folder(tmp_path / "p", {"timm:resnet50.tv_in1k": frame(answers)}, {"timm:resnet50.tv_in1k": card})
    assert not read_facts(predictions).official
    official = {"kind": "import", "recipe": {"edits": [{"name": n, "parameters": {"folder": n}} for n in folders]}}
    (bench / "benchmark.json").write_text(json.dumps(official))
    assert read_facts(predictions).official
    table = with_published(dropped_accuracy(predictions))
    assert row(table, edit="original")["published"] == 92.69
    assert row(table, edit="size-0.05")["published"] == 21.26
    assert row(table, edit="size-0.05")["published_model"] == "ResNet-50"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("torchvision:resnet50/IMAGENET1K_V1", "ResNet-50"),
        ("timm:wide_resnet50_2.tv_in1k", None),
        ("timm:resnest50d.in1k", "ResNeSt-50"),
        ("timm:swin_small_patch4_window7_224.ms_in1k", "Swin-S"),
        ("timm:vit_base_patch16_224.mae", "ViT-B, MAE"),
        ("timm:vit_base_patch16_224.augreg_in21k_ft_in1k", "ViT-B"),
        ("lite:0", None),
    ],
)
def test_models_of_the_paper_are_known_by_architecture(model, name):
    found = reported(model)
    assert (found.name if found else None) == name
