"""A gate passes only what it can show: not a model with suspicious labels, nor one with nothing to lose, nor a handful
of common photographs."""

import json
from xml.etree import ElementTree

import polars as pl
import pytest
from test_curves import SIZES
from test_one_benchmark import world

from command_line import run_cli
from prediction_worlds import benchmark, folder, frame
from unswayed.analyses.drops.compare import compare
from unswayed.analyses.drops.curves import thresholds
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.analyses.drops.gate import check
from unswayed.errors import UnswayedWarning, UserError
from unswayed.evaluation.reading import read_predictions

SUSPICION = "m: accuracy on 64 originals is 0.0% (chance is 10.0%); suspected: the label order. Its outputs are shifted"


def answers(n, originals, edited):
    """n photographs, of which so many are right on the original and, of these, so many after the edit."""
    rows = frame({"original": [1] * originals + [0] * (n - originals), "size-0.05": [1] * edited + [0] * (n - edited)})
    return rows.with_columns(predicted=pl.col("label") + (~pl.col("correct")).cast(pl.Int64), probability=0.9)


@pytest.fixture
def suspected(tmp_path):
    return folder(tmp_path / "p", {"m": answers(400, 400, 396)}, {"m": {"suspicion": SUSPICION}})


@pytest.mark.parametrize(
    "rules", [{"max_drop": {"size-0.05": 20}}, {"max_drop": {"average": 20}}, {"min_accuracy": {"original": 50}}]
)
def test_no_check_of_a_suspected_model_passes(suspected, rules):
    found = check(suspected, **rules)
    assert found.verdict == "not measured"
    (row,) = found.checks.rows(named=True)
    assert SUSPICION in row["reason"]
    assert row["value"] is not None


def test_the_suspicion_is_the_reason_where_nothing_can_be_lost_either(tmp_path):
    card = {"suspicion": SUSPICION, "originals": {"chance": 0.1}}
    there = folder(tmp_path / "p", {"m": answers(400, 0, 0)}, {"m": card})
    assert check(there, max_drop={"size-0.05": 20}).checks["reason"].to_list() == [f"not measured: {SUSPICION}"]
    alone = folder(tmp_path / "q", {"m": answers(400, 4, 4)}, {"m": card | {"suspicion": None}})
    assert "1.0 %, no more than chance (10.0 %)" in check(alone, max_drop={"size-0.05": 20}).checks["reason"][0]


def test_a_suspected_model_still_fails_and_a_suspected_baseline_shows_nothing(suspected, tmp_path):
    assert check(suspected, max_drop={"size-0.05": -5}).verdict == "fail"
    good = folder(tmp_path / "good", {"m": answers(400, 400, 396)}, {"m": {"weights_sha256": "other"}})
    found = check(good, baseline=suspected, margin=5)
    assert found.verdict == "not measured"
    assert "the baseline cannot be compared with" in found.checks["reason"][0]
    assert check(suspected, baseline=good, margin=5).verdict == "not measured"


def test_every_command_repeats_the_suspicion(suspected, tmp_path):
    folder(suspected, {"good": answers(400, 390, 300)})
    with pytest.warns(UnswayedWarning, match="suspected: the label order"):
        dropped_accuracy(suspected)
    with pytest.warns(UnswayedWarning, match="suspected: the label order"):
        compare(suspected, "good", "m")
    for arguments in (["analyze", suspected], ["compare", suspected], ["compare", suspected, "m", "good"]):
        done = run_cli(*arguments)
        assert done.exit_code == 0
        assert f"Suspicious: {SUSPICION}." in done.stderr.splitlines()
        assert "suspected: the label order" in " ".join(done.stdout.split())
    headings = [line for line in run_cli("analyze", suspected).stdout.splitlines() if line.startswith(("m", "good"))]
    assert headings == ["good", "m (suspicious, see the note below)"]
    assert "suspected" not in run_cli("analyze", suspected, "-m", "good").output
    done = run_cli("check", suspected, "-m", "m", "--max-drop", "size-0.05=20", "--format", "markdown")
    assert done.exit_code == 3
    assert "suspected: the label order" in done.stdout
    page = tmp_path / "report.html"
    done = run_cli("report", suspected, "-o", page, "--heat-maps", "0", "--resamples", "50")
    assert done.exit_code == 0, done.output
    assert f"Suspicious: {SUSPICION}" in " ".join(done.stderr.split())
    assert "suspected: the label order" in page.read_text()


def test_a_remark_about_the_benchmark_is_one_note_and_no_suspicion(tmp_path):
    cards = {name: {"remarks": ["2 of 400 masks were made automatically"]} for name in ("one", "two")}
    there = folder(tmp_path / "p", {"one": answers(400, 400, 396), "two": answers(400, 390, 300)}, cards)
    note = "Note: 2 of 400 masks were made automatically."
    with pytest.warns(UnswayedWarning) as warned:
        compare(there, "one", "two")
    assert [str(one.message) for one in warned] == [note]
    for arguments in (
        ["analyze", there],
        ["analyze", there, "--wide"],
        ["compare", there],
        ["compare", there, "one", "two"],
    ):
        done = run_cli(*arguments)
        assert (done.stderr.count(note), " ".join(done.stdout.split()).count(note)) == (1, 1), done.output
        assert "uspicious" not in done.output
    page = tmp_path / "report.html"
    done = run_cli("report", there, "-o", page, "--heat-maps", "0", "--resamples", "50")
    assert page.read_text().count(note) == 1 and "Suspicious" not in page.read_text() + done.output


def test_a_fraction_instead_of_points_is_pointed_out(tmp_path):
    there = folder(tmp_path / "p", {"m": answers(400, 400, 280)})
    done = run_cli("check", there, "--max-drop", "size-0.05=0.4")
    assert done.exit_code == 1
    assert "for 40 points, write size-0.05=40" in " ".join(done.output.split())
    assert "write" not in run_cli("check", there, "--max-drop", "size-0.05=40").output


@pytest.mark.parametrize("right", [0, 40, 80])
def test_a_model_with_nothing_to_lose_passes_no_limit_of_drop(right):
    found = check(answers(400, right, right), max_drop={"size-0.05": 20})
    assert found.verdict == "not measured"
    assert f"the accuracy on the originals is {right / 4:.1f} %" in found.checks["reason"][0]
    assert "a drop of more than 20 points cannot be seen" in found.checks["reason"][0]


def test_what_guessing_gives_cannot_be_lost(tmp_path):
    """With two classes, 65 % is 15 points above chance: a model that only guesses after the edit has lost all."""
    cards = {"m": {"originals": {"n": 400, "accuracy": 0.65, "chance": 0.5}}}
    there = folder(tmp_path / "p", {"m": answers(400, 260, 258)}, cards)
    found = check(there, max_drop={"size-0.05": 20})
    assert found.verdict == "not measured"
    assert "65.0 %, 15.0 points above chance" in found.checks["reason"][0]
    assert check(there, max_drop={"size-0.05": 10}).verdict == "pass"


def test_a_drop_against_the_baseline_needs_an_accuracy_to_lose():
    lost, old = answers(400, 8, 8), answers(400, 390, 385)
    assert check(lost, baseline=old, margin=5, measure="drop").verdict == "not measured"
    assert check(answers(400, 390, 386), baseline=old, margin=5, measure="drop").verdict == "pass"


def test_a_model_that_drops_less_is_not_praised_when_it_is_less_accurate():
    both = pl.concat([answers(400, 4, 4).with_columns(model=pl.lit("lost")), answers(400, 390, 300)])
    words = dict(compare(both, "lost", "m").select("edit", "verdict").rows())
    assert words["size-0.05"] == "first drops less, but second is more accurate"


def test_one_common_photograph_of_sixteen_decides_nothing(tmp_path):
    """The weights and the answers are the same, and yet fifteen of sixteen photographs fell away."""
    new, old = world(tmp_path / "new", photographs=16), world(tmp_path / "old", photographs=16)
    path = old / "m.parquet"
    moved = pl.col("source_id") + pl.when(pl.col("source_id") == "image-0000").then(pl.lit("")).otherwise(pl.lit("-x"))
    pl.read_parquet(path).with_columns(source_id=moved).write_parquet(path)
    card = json.loads((old / "m.json").read_text())
    card["benchmark"]["identity"]["sha256"] = "another"
    (old / "m.json").write_text(json.dumps(card))
    found = check(new, baseline=old, margin=5, common=True)
    assert found.verdict == "cannot tell"
    assert found.checks["n"].unique().to_list() == [1]
    assert (found.checks["high"] - found.checks["low"]).min() > 100
    assert "1 of 16 and 1 of 16 photographs are common" in found.checks["reason"][0]
    files = tmp_path / "c.json", tmp_path / "c.xml"
    options = ["--baseline", old, "--margin", "5", "--common", "--json", files[0], "--junit", files[1]]
    said = "1 of 16 photographs and 2 of 32 pictures of m in"
    for style in ("table", "markdown"):
        done = run_cli("check", new, *options, "--format", style)
        assert done.exit_code == 3, done.output
        assert " ".join(done.stdout.split()).count(said) == 2
    common = json.loads(files[0].read_text())["common"]
    assert [(one["photographs"], one["pictures"]) for one in common] == [(1, 2)]
    assert list(common[0]["of"].values()) == [{"photographs": 16, "pictures": 32}] * 2
    suite = ElementTree.parse(files[1]).getroot()
    assert said in suite.find("properties/property").get("value")
    assert all("1 of 16 and 1 of 16" in case.findtext("system-out") for case in suite.iter("testcase"))
    done = run_cli("compare", new, "m", "m", "--other", old, "--common")
    assert " ".join(done.stdout.split()).count(said) == 2


def test_analyze_says_how_much_is_common(tmp_path):
    world(tmp_path / "p", model="a", photographs=12)
    there = world(tmp_path / "p", model="b", photographs=20)
    done = run_cli("analyze", there, "--common")
    assert "12 of 20 photographs and 24 of 40 pictures of b" in done.stderr
    found = check(there, max_drop={"size-0.05": 40}, common=True)
    assert "12 of 20 photographs" in found.remarks[0]


def test_a_complete_common_part_with_the_same_weights_passes(tmp_path):
    new, old = world(tmp_path / "new", photographs=16), world(tmp_path / "old", photographs=16)
    assert check(new, baseline=old, common=True).verdict == "pass"


def test_equal_sums_of_other_answers_are_not_the_same_predictions(tmp_path):
    one = frame({"original": [1] * 40, "size-0.05": [1, 0] * 20})
    two = frame({"original": [1] * 40, "size-0.05": [0, 1] * 20})
    new, old = (folder(tmp_path / name, {"m": rows}) for name, rows in (("new", one), ("old", two)))
    assert check(new, baseline=old).verdict == "cannot tell"


def test_nothing_to_check_is_not_a_pass():
    originals = frame({"original": [1] * 300})
    assert check(originals, baseline=originals, margin=5, measure="drop").verdict == "not measured"


@pytest.mark.parametrize(
    ("n", "percent", "expected"), [(1, 80, "cannot tell"), (8, 80, "cannot tell"), (60, 80, "pass")]
)
def test_a_few_photographs_that_are_always_right_do_not_show_a_threshold(n, percent, expected):
    right = frame({"original": [1] * n} | {f"size-{level:g}": [1] * n for level in SIZES})
    found = check(right, min_threshold={"size": (SIZES[2], 80)}, resamples=100)
    assert found.verdict == expected
    (row,) = found.checks.rows(named=True)
    assert all(SIZES[0] <= row[name] <= SIZES[-1] for name in ("value", "low", "high"))
    assert "kept at every level of the sweep" in row["reason"]
    row = thresholds(right, accuracy=[80], resamples=100).row(0, named=True)
    assert row["met"] == "at every level"
    # An accuracy of exactly 100 % cannot be shown by any sample.
    assert check(right, min_threshold={"size": (SIZES[2], 100)}, resamples=100).verdict == "cannot tell"


def test_levels_are_printed_with_enough_digits(tmp_path):
    sweep = {f"size-{level:g}": [1] * 200 if level > 0.04 else [0] * 200 for level in SIZES}
    there = folder(tmp_path / "p", {"m": frame({"original": [1] * 200} | sweep)})
    done = run_cli("check", there, "--min-threshold", "size=0.0425@80", "--resamples", "50")
    assert "0.0425" in done.stdout


def test_the_average_is_not_less_certain_than_each_edit_where_nothing_changed():
    same = frame({"original": [1] * 20} | {name: [1] * 20 for name in ("size-0.05", "size-0.1", "position")})
    table = dropped_accuracy(same, resamples=50).drop_nulls("drop")
    width = dict(zip(table["edit"], table["high"] - table["low"], strict=True))
    assert width["average"] <= width["position"] + 1e-9


def test_too_few_levels_are_counted(tmp_path):
    sweep = {f"size-{level}": [1] * 20 for level in (0.1, 0.2, 0.4)}
    there = folder(tmp_path / "p", {"m": frame({"original": [1] * 20, "position": [1] * 20} | sweep)})
    said = " ".join(run_cli("analyze", there, "--table", "fits").stdout.split())
    assert "no sweep of at least five levels" in said
    assert "levels found: size has 3 levels (0.1, 0.2, 0.4)." in said
    assert "size" in run_cli("analyze", there, "--table", "thresholds", "--resamples", "20").stdout
    with pytest.raises(UserError, match="found: size has 3 levels"):
        check(there, min_threshold={"position": (0.1, 80)})


def test_an_unlabeled_picture_is_told_with_what_helps():
    rows = answers(8, 8, 8).with_columns(correct=pl.when(pl.col("source_id") != "image-0003").then(pl.col("correct")))
    with pytest.raises(UserError, match="2 pictures of m have no label, such as those of image-0003") as refused:
        dropped_accuracy(rows)
    assert "label in every row" in str(refused.value)


DOUBTED = {"benchmark": {"masks": {"automatic": 400, "of": 400, "median_confidence": 0.6, "below_limit": 120}}}


def test_a_frame_is_judged_as_its_folder(tmp_path):
    """Before, `check(read_predictions(…))` passed what `check FOLDER` called not measured."""
    cards = {
        "suspicious": {"suspicion": SUSPICION},
        "guessing": {"originals": {"chance": 0.6}},
        "unsure masks": DOUBTED,
        "good": {"originals": {"chance": 0.1}},
    }
    models = dict.fromkeys(cards, answers(400, 280, 276))
    there = folder(tmp_path / "p", models, cards)
    rules = {"max_drop": {"size-0.05": 20}, "min_accuracy": {"original": 50}, "resamples": 50}
    by_folder, by_frame = check(there, **rules), check(read_predictions(there), **rules)
    columns = ["model", "edit", "measure", "verdict", "low", "high", "reason"]
    assert by_frame.checks.select(columns).equals(by_folder.checks.select(columns))
    verdicts = by_folder.checks.filter(measure="drop").select("model", "verdict").rows()
    assert dict(verdicts) == {
        "suspicious": "not measured", "guessing": "not measured", "unsure masks": "cannot tell", "good": "pass",
    }  # fmt: skip


def test_unsure_masks_widen_the_interval_by_their_share(tmp_path):
    """Before, fewer than half of them were a note, whatever they could hide."""
    there = folder(tmp_path / "p", {"m": answers(400, 400, 396)}, {"m": DOUBTED})
    sure = folder(tmp_path / "q", {"m": answers(400, 400, 396)})
    (before,), (found,) = (check(place, max_drop={"size-0.05": 20}).checks.rows(named=True) for place in (sure, there))
    assert (before["verdict"], found["verdict"]) == ("pass", "cannot tell")
    assert found["high"] == pytest.approx(before["high"] + 30 * 0.99)
    assert found["low"] == pytest.approx(before["low"] - 30 * 0.01)
    assert "30% of the masks are automatic and unsure" in found["reason"] and "unswayed review" in found["reason"]
    assert found["more"] is None, "further photographs would not help"
    shown = run_cli("check", there, "--max-drop", "size-0.05=20", code=3).stdout
    assert shown.startswith("unswayed check: cannot tell; mended masks would decide\n")
    assert "automatic masks that are unsure widen the intervals by their share" in " ".join(shown.split())
    assert check(there, max_drop={"size-0.05": 40}).verdict == "pass", "even if all doubted pictures were lost"
    assert check(there, min_accuracy={"original": 90}).verdict == "pass", "the originals need no mask"
    assert check(there, min_accuracy={"size-0.05": 90}).verdict == "cannot tell"


def test_unsure_masks_leave_a_threshold_undecided(tmp_path):
    shares = {"original": 1.0} | {f"size-{size:g}": 0.9 for size in SIZES}
    world = frame({edit: [1] * int(400 * share) + [0] * (400 - int(400 * share)) for edit, share in shares.items()})
    for cards, verdict in (({}, "pass"), ({"m": DOUBTED}, "cannot tell")):
        there = folder(tmp_path / verdict, {"m": world}, cards)
        assert check(there, min_threshold={"size": (SIZES[2], 80.0)}, resamples=50).verdict == verdict


def test_a_skipped_edit_says_why_and_what_to_run(tmp_path):
    """Before: "these predictions do not contain it"."""
    edits = {"original": {}, "size-0.05": {}, "background-simple": {}}
    reason = "needs a diffusion network: background simple guides a diffusion network"
    bench = benchmark(
        tmp_path / "bench", edits, 400,
        status=lambda _, edit: "skipped" if edit == "background-simple" else "ok",
        reason=lambda _, edit: reason if edit == "background-simple" else None,
    )  # fmt: skip
    there = folder(tmp_path / "p", {"m": answers(400, 400, 396)}, {"m": {"benchmark": {"path": str(bench)}}})
    found = check(there, max_drop={"size-0.05": 20, "background-*": 10})
    assert found.verdict == "not measured"
    row = found.checks.filter(edit="background-simple").row(0, named=True)
    assert reason in row["reason"] and "400 of 400 were skipped" in row["reason"]
    assert "unswayed build … --renderer diffusion" in row["reason"]
    shown = run_cli("check", there, "--max-drop", "background-*=10", code=3).stdout
    assert "--renderer diffusion" in " ".join(shown.split())
