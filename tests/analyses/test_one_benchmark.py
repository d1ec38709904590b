"""Answers to different benchmarks are never compared as if they were answers to one."""

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prediction_worlds import folder, frame
from unswayed.analyses.drops.compare import compare
from unswayed.analyses.drops.gate import check
from unswayed.analyses.tables import analyze
from unswayed.errors import UserError
from unswayed.evaluation.model_cards import Picture, identity_of

N = 300


def world(path, *, model="m", seed=0, frame_name="object", size=256, edits=("size-0.05",), photographs=N, file="a"):
    """A predictions folder of a benchmark with these settings; every answer is right, so that nothing could fail."""
    answers = frame({edit: [1] * photographs for edit in ("original", *edits)})
    # The original does not depend on the seed; everything else is another file under another seed.
    picture = (
        pl.when(pl.col("edit") == "original").then(pl.lit(f"{file}-{frame_name}-{size}"))
        .otherwise(pl.lit(f"{file}-{frame_name}-{size}-{seed}"))
    )  # fmt: skip
    answers = answers.with_columns(picture=picture)
    rows = [
        Picture(row["sample_id"], row["source_id"], "x.png", row["edit"], 0, row["label"], "x", picture=row["picture"])
        for row in answers.iter_rows(named=True)
    ]
    listed = [{"name": name, "parameters": {"edit": name}} for name in ("original", *edits)]
    card = {"kind": "build", "frame": frame_name, "size": size, "seed": seed, "recipe": {"edits": listed}}
    identity = identity_of(card, {"name": "imagenet-1k"}, rows)
    return folder(path, {model: answers}, {model: {"benchmark": {"identity": identity}}})


def hash_of(path, model="m"):
    return json.loads((path / f"{model}.json").read_text())["benchmark"]["identity"]["sha256"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"seed": 7}, "seed: 7 for the first, 0 for the second"),
        ({"frame_name": "squash"}, 'frame: "squash" for the first'),
        ({"size": 128}, "size: 128 for the first, 256"),
        ({"edits": ("size-0.05", "position")}, "edits: position only for the first"),
        ({"photographs": 200}, "photographs: 200 for the first, 300 for the second, 200 of them in both"),
        ({"file": "b"}, "the same settings and names, but other files"),
    ],
)
def test_another_benchmark_is_refused_with_what_differs(tmp_path, other, said):
    new, old = world(tmp_path / "new", **other), world(tmp_path / "old")
    with pytest.raises(UserError, match="different benchmarks") as refused:
        check(new, baseline=old, margin=5)
    assert said in str(refused.value)
    with pytest.raises(UserError, match="different benchmarks"):
        compare(new, "m", "m", other=old)


def test_the_same_benchmark_passes_wherever_it_lies(tmp_path):
    assert check(world(tmp_path / "new"), baseline=world(tmp_path / "old"), margin=5).verdict == "pass"


def test_the_common_part_is_the_same_pictures(tmp_path):
    """Under another seed only the originals are the same files, so the edit of the baseline is not measured."""
    new, old = world(tmp_path / "new", seed=7), world(tmp_path / "old")
    found = check(new, baseline=old, margin=5, common=True)
    assert dict(found.checks.select("edit", "verdict").rows()) == {"original": "pass", "size-0.05": "not measured"}
    assert found.verdict == "not measured" and not found.passed
    table = compare(new, "m", "m", other=old, common=True)
    assert table["edit"].to_list() == ["original"]


def test_a_grown_benchmark_is_compared_on_what_was_there_before(tmp_path):
    grown = world(tmp_path / "grown", edits=("size-0.05", "position"), photographs=N + 100)
    found = check(grown, baseline=world(tmp_path / "old"), margin=5, common=True)
    assert found.verdict == "pass"
    assert found.checks["n"].unique().to_list() == [N]


def test_a_missing_edit_is_never_a_pass(tmp_path):
    new = world(tmp_path / "new")
    old = world(tmp_path / "old", edits=("size-0.05", "position"))
    found = check(new, baseline=old, margin=5, common=True)
    (row,) = found.checks.filter(edit="position").rows(named=True)
    assert row["verdict"] == found.verdict == "not measured"
    assert "the baseline has predictions for it" in row["reason"]


def test_an_edit_that_one_model_lacks_is_not_measured(tmp_path):
    both = frame({"original": [1] * N, "size-0.05": [1] * N, "position": [1] * N})
    one = both.filter(pl.col("edit") != "position")
    there = folder(tmp_path / "p", {"full": both, "part": one})
    found = check(there, max_drop={"position": 10})
    assert dict(found.checks.select("model", "verdict").rows()) == {"full": "pass", "part": "not measured"}
    with pytest.raises(UserError, match="did you mean 'position'"):
        check(there, max_drop={"positon": 10})


def test_a_model_that_the_baseline_lacks_is_not_measured(tmp_path):
    answers = frame({"original": [1] * N, "size-0.05": [1] * N})
    new = folder(tmp_path / "new", {"a": answers, "b": answers})
    found = check(new, baseline=folder(tmp_path / "old", {"a": answers}), margin=5)
    assert found.verdict == "not measured"
    assert found.checks.filter(model="b")["reason"].to_list() == ["not measured: the baseline lacks this model"]


def test_analyze_never_mixes_two_benchmarks(tmp_path):
    world(tmp_path / "p", model="a")
    there = world(tmp_path / "p", model="b", seed=7, edits=("size-0.05", "position"))
    with pytest.raises(UserError, match="a and b were evaluated on different benchmarks") as refused:
        analyze(there)
    assert "seed: 0 for the first, 7 for the second" in str(refused.value)
    assert analyze(there, models=["a"])["model"].unique().to_list() == ["a"]
    assert set(analyze(there, common=True)["edit"]) == {"original"}


def test_frames_that_show_other_pictures_are_refused(tmp_path):
    answers = frame({"original": [1] * 9, "size-0.05": [1] * 9})
    one, two = (answers.with_columns(picture=pl.lit(name), model=pl.lit(name)) for name in ("x", "y"))
    with pytest.raises(UserError, match="different pictures: 18 differ"):
        compare(one, "x", "y", other=two)


SETTINGS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2),
        "frame_name": st.sampled_from(["object", "squash"]),
        "size": st.sampled_from([128, 256]),
        "edits": st.sampled_from([("size-0.05",), ("position",), ("size-0.05", "position")]),
        "photographs": st.sampled_from([1, 20, 40]),
        "file": st.sampled_from(["a", "b"]),
    }
)
# Every rule is as lenient as it can be, so that only the benchmark can keep a check from passing.
RULES = st.fixed_dictionaries(
    {
        "margin": st.sampled_from([0.0, 5.0, 100.0]),
        "measure": st.sampled_from(["accuracy", "drop"]),
        "max_drop": st.sampled_from([{}, {"average": 99.0}, {"*": 99.0}]),
        "min_accuracy": st.sampled_from([{}, {"original": 2.0}]),
        "level": st.sampled_from([0.5, 0.95]),
        "models": st.sampled_from([(), ("m",)]),
    }
)
# Which settings the baseline has in common with the candidate: all of them in about half of the examples.
KEPT = st.one_of(
    st.just(None), st.sets(st.sampled_from(["seed", "frame_name", "size", "edits", "photographs", "file"]))
)


def checked(candidate, baseline, rules, in_a_file, **options):
    """The check as Python calls it, or with the baseline, margin and limits in a TOML file."""
    if not in_a_file:
        return check(candidate, baseline=baseline, resamples=50, **rules, **options)
    config = candidate.parent / "gate.toml"
    tables = {name.replace("_", "-"): rules[name] for name in ("max_drop", "min_accuracy") if rules[name]}
    lines = [
        f"[{name}]\n" + "".join(f'"{key}" = {value}\n' for key, value in of.items()) for name, of in tables.items()
    ]
    lines.append(f'[baseline]\npath = "{baseline}"\nmargin = {rules["margin"]}\nmeasure = "{rules["measure"]}"\n')
    config.write_text("".join(lines))
    return check(candidate, config=config, models=rules["models"], level=rules["level"], resamples=50, **options)


@settings(max_examples=60, deadline=None)
@given(new=SETTINGS, other=SETTINGS, kept=KEPT, rules=RULES, in_a_file=st.booleans(), same_weights=st.booleans())
def test_no_settings_let_a_check_pass_on_another_benchmark(
    tmp_path_factory, new, other, kept, rules, in_a_file, same_weights
):
    """Whatever the settings and rules, predictions with another benchmark hash than the baseline's never pass.

    All answers are right and all weights may be the same, so that nothing else could stop the check. With --common a
    check passes only if every edit of the baseline was compared, and only on pictures that both have.
    """
    old = {name: new[name] if kept is None or name in kept else other[name] for name in new}
    root = tmp_path_factory.mktemp("worlds")
    candidate, baseline = world(root / "new", **new), world(root / "old", **old)
    if not same_weights:
        change_card(baseline, weights_sha256="another")
    same = hash_of(candidate) == hash_of(baseline)
    assert same == (new == old)
    if same:
        found = checked(candidate, baseline, rules, in_a_file)
        assert found.passed or not same_weights or rules["max_drop"]
        assert found.verdict != "fail"
        return
    with pytest.raises(UserError, match="different benchmarks"):
        checked(candidate, baseline, rules, in_a_file)
    alike = all(new[name] == old[name] for name in ("frame_name", "size", "file"))
    if not alike:
        with pytest.raises(UserError, match="no picture in common"):
            checked(candidate, baseline, rules, in_a_file, common=True)
        return
    found = checked(candidate, baseline, rules, in_a_file, common=True)
    compared = found.checks.filter(pl.col("measure").is_in(["accuracy lost", "drop gained"]) & (pl.col("n") > 0))
    both = min(new["photographs"], old["photographs"])
    assert compared["n"].unique().to_list() in ([both], [])
    assert {one.photographs for one in found.overlaps} == {both}
    if found.passed:
        assert set(old["edits"]) <= set(new["edits"]) and new["seed"] == old["seed"]
        assert compared["high"].max() <= rules["margin"]


def change_card(path, **entries):
    file = path / "m.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))
