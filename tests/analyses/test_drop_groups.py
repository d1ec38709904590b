"""Dropped accuracy by class, superclass, column and group of models; published figures beside it."""

import itertools
import json

import numpy as np
import polars as pl
import pytest

from prediction_worlds import benchmark, folder, frame, random_answers, row
from unswayed.analyses.drops.drop import dropped_accuracy, published_model, with_published
from unswayed.analyses.drops.groups import dropped_accuracy_of_groups, imagenet_superclasses
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts, read_facts


def test_by_class_equals_the_table_of_that_class_alone():
    shares = {"original": 0.9, "inversion": 0.85, "reinsertion": 0.8, "background-simple": (0.7, 3), "size-0.05": 0.5}
    predictions = frame(random_answers(8, 240, shares))
    table = dropped_accuracy(predictions, by="class", facts=Facts(classes=("ant", "bee", "cat")))
    assert set(table["class"]) == {"ant", "bee", "cat"}
    for label, name in enumerate(("ant", "bee", "cat")):
        alone = dropped_accuracy(predictions.filter(label=label))
        for edit in ("inversion", "background-simple", "size-0.05", "average"):
            found, expected = row(table, edit=edit, **{"class": name}), row(alone, edit=edit)
            for column in ("n", "accuracy", "drop", "net_drop", "p_value", "low", "high", "net_low", "net_p_value"):
                if expected[column] is None or (edit == "average" and "p_value" in column):
                    assert found[column] is None, (edit, column)
                else:
                    assert found[column] == pytest.approx(expected[column], rel=1e-6), (edit, column)


def test_by_class_a_control_of_the_benchmarks_own_is_a_control():
    shares = {"original": 0.9, "recompressed": 0.85, "inversion": 0.85, "size-0.05": 0.5}
    facts = Facts(order=("recompressed", "size-0.05"), controls={"size-0.05": "recompressed"})
    predictions = frame(random_answers(8, 60, shares))
    for table in (dropped_accuracy(predictions, by="class", facts=facts), dropped_accuracy(predictions, facts=facts)):
        kinds = dict(table.filter(pl.col("edit") != "original").select("edit", "kind").unique().rows())
        assert kinds == {
            "recompressed": "control", "inversion": "control", "size-0.05": "edit", "average": "average"
        }  # fmt: skip


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
    with pytest.raises(UserError, match="only for ImageNet's classes"):
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


def test_the_p_value_of_models_with_unequal_runs_counts_all_sign_flips():
    """The mean of a share of two runs and one of three is a multiple of 1/12, not of 1/5."""
    rng = np.random.default_rng(2)
    n, changes = 11, []
    for _ in range(5):
        answers = {
            name: {
                "original": (rng.random(n) < 0.9).astype(int),
                "size-0.05": [(rng.random(n) < 0.6).astype(int) for _ in range(runs)],
            }
            for name, runs in (("a", 2), ("b", 3))
        }
        table = dropped_accuracy_of_groups(pl.concat([frame(one, model=name) for name, one in answers.items()]))
        drops = [np.array(one["original"]) - np.mean(one["size-0.05"], axis=0) for one in answers.values()]
        mean = np.mean(drops, axis=0)
        flips = np.array(list(itertools.product([1, -1], repeat=n))) @ mean
        expected = (np.abs(flips) >= abs(mean.sum()) - 1e-9).mean()
        found = row(table, edit="size-0.05")
        assert found["runs"] == 5
        changes.append(found["p_value"] - expected)
    assert changes == pytest.approx([0] * 5, abs=1e-9)


def test_spaces_around_the_cells_of_groups_do_not_count(tmp_path):
    predictions = folder(tmp_path / "p", {name: frame({"original": [1, 1], "size-0.1": [1, 0]}) for name in "ab"})
    csv = tmp_path / "groups.csv"
    csv.write_text("model, architecture , training\na , conv, robust\nb,\tconv ,  \n\n , ,\n")
    table = dropped_accuracy_of_groups(predictions, csv).filter(edit="size-0.1")
    assert dict(table.select("model", "models").rows()) == {
        "all models": 2,
        "architecture: conv": 2,
        "training: robust": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,training\na,robust\nz,plain\n", "there is no model 'z'"),
        ("name,training\na,robust\n", "the groups have the columns name, training"),
        ("model\na\n", "model and at least one more"),
        ("model,training\na,robust\n ,plain\n", "1 rows of the groups name no model"),
        ("model,training, training\na,robust,plain\n", "has two columns named training"),
        ("model,training\na,robust\na,plain\n", "name a more than once"),
    ],
)
def test_wrong_groups_are_refused(tmp_path, text, message):
    predictions = folder(tmp_path / "p", {"a": frame({"original": [1, 1], "size-0.1": [1, 0]})})
    (tmp_path / "groups.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        dropped_accuracy_of_groups(predictions, tmp_path / "groups.csv")
    with pytest.raises(UserError, match="nowhere.csv does not exist"):
        dropped_accuracy_of_groups(predictions, tmp_path / "nowhere.csv")


def test_published_figures_stand_beside_the_official_sets_only(tmp_path):
    folders = ("20_smooth", "20_hard", "random_bg", "full", "01", "008", "005", "rp", "rd")
    bench = benchmark(tmp_path / "bench", {"original": {}, "size-0.05": {}}, 30)
    answers = {"original": [1] * 30, "size-0.05": [1] * 20 + [0] * 10}
    card = {"benchmark": {"path": str(bench)}}
    predictions = folder(tmp_path / "p", {"timm:resnet50.tv_in1k": frame(answers)}, {"timm:resnet50.tv_in1k": card})
    assert not read_facts(predictions).official
    official = {"kind": "import", "recipe": {"edits": [{"name": n, "parameters": {"folder": n}} for n in folders]}}
    before = json.loads((bench / "benchmark.json").read_text())
    (bench / "benchmark.json").write_text(json.dumps({**before, **official}))
    assert read_facts(predictions).official
    table = with_published(dropped_accuracy(predictions), read_facts(predictions).cards)
    assert row(table, edit="original")["published"] == 92.69
    assert row(table, edit="size-0.05")["published"] == 21.26
    assert row(table, edit="size-0.05")["published_model"] == "ResNet-50"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("torchvision:resnet50/IMAGENET1K_V1", "ResNet-50"),
        ("timm:wide_resnet50_2.tv_in1k", None),
        ("timm:resnest50d.in1k", "ResNeSt-50"),
        ("timm:resnet50.tv_in1k", "ResNet-50"),
        ("timm:resnet50", None),
        ("timm:resnet50.a1_in1k", None),
        ("timm:resnet50?checkpoint=augmix.pth.tar", None),
        ("timm:resnet50.tv_in1k?global_pool=max", None),
        ("timm:resnet50.tv_in1k+tencrop", None),
        ("torchvision:resnet50/IMAGENET1K_V2", None),
        ("timm:vit_base_patch16_clip_224.openai_ft_in1k", None),
        ("timm:vit_base_patch16_224.augreg_in21k_ft_in1k", None),
        ("lite:0", None),
    ],
)
def test_only_the_very_models_of_the_paper_are_known(model, name):
    found = published_model(model)
    assert (found.name if found else None) == name


def test_an_alias_is_known_by_what_it_stands_for():
    table = pl.DataFrame({"model": ["timm:resnet50.tv_in1k", "mine"], "edit": ["original", "original"]})
    cards = {"timm:resnet50.tv_in1k": {"spec": "python:robust.py:build"}, "mine": {"spec": "timm:resnet50.tv_in1k"}}
    assert with_published(table, cards)["published"].to_list() == [None, 92.69]
