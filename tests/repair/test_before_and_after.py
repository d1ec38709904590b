"""The table of before and after and its verdict, from arrays of answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.evaluation.facts import Facts, averaged_edits
from unswayed.repair.measuring import Answers, before_and_after, folder_rows, verdict


def table(**models: Answers) -> list[dict]:
    edits = [edit for edit in models["repaired"].right if edit != "original"]
    return before_and_after(models, averaged_edits(edits, Facts()))


def answers(original: list[int], edited: list[int]) -> Answers:
    ids = tuple(str(number) for number in range(len(original)))
    right = {"original": np.array(original, float), "size-0.05": np.array(edited, float)}
    return Answers(ids, right, {name: np.full(len(ids), 0.5) for name in right})


def test_the_interval_of_a_drop_that_does_not_change_is_wide_for_few_photographs():
    same = answers([1, 1], [1, 0])
    rows = table(control=same, repaired=same)
    drops = [row for row in rows if row["measure"] == "drop"]
    assert len(drops) == 2 and all(row["low"] < -50 and row["high"] > 50 for row in drops)


def test_the_average_drop_is_the_mean_of_the_edits_as_in_analyze():
    # Two edits of ten photographs; `direction` exists for two of them only.
    right = {"original": np.ones(10), "size-0.05": np.array([0.0] * 6 + [1.0] * 4), "inversion": np.zeros(10)}
    right["direction"] = np.array([0.0, 0.0] + [np.nan] * 8)
    control = Answers(tuple(map(str, range(10))), right, {name: one * 0 + 0.5 for name, one in right.items()})
    better = replace(control, right={**right, "direction": np.array([1.0, 0.0] + [np.nan] * 8)})
    rows = table(control=control, repaired=better)
    average = next(row for row in rows if row["measure"] == "drop" and row["pictures"] == "average")
    assert np.isclose(average["control"], (60 + 100) / 2) and np.isclose(average["repaired"], (60 + 50) / 2)
    assert np.isclose(average["difference"], -25) and average["n"] == 10
    frame = pl.DataFrame(
        [
            {"model": "m", "source_id": str(number), "edit": edit, "run": 0, "correct": bool(one)}
            for edit, values in right.items()
            for number, one in enumerate(values)
            if not np.isnan(one)
        ]
    )
    assert np.isclose(dropped_accuracy(frame).filter(edit="average")["drop"].item(), average["control"])


def test_the_difference_in_calibration_has_an_interval_over_photographs():
    rng = np.random.default_rng(0)
    right = {"original": (rng.random(400) < 0.7).astype(float)}
    ids = tuple(map(str, range(400)))
    sure, fair = (Answers(ids, right, {"original": one}) for one in (np.full(400, 0.95), rng.uniform(0.6, 0.8, 400)))
    known = 100 * abs(0.95 - right["original"].mean())
    for rows in (
        table(control=sure, repaired=fair),
        folder_rows("images:x", {"control": sure, "repaired": fair}),
    ):
        row = next(row for row in rows if row["measure"] == "calibration error")
        assert np.isclose(row["control"], known) and row["low"] < row["difference"] < row["high"] < 0
        assert np.isclose(row["difference"], row["repaired"] - row["control"])
    same = table(control=sure, repaired=sure)[-1]
    assert same["low"] == same["difference"] == same["high"] == 0
    few = table(control=answers([1] * 6, [0] * 6), repaired=answers([1] * 6, [1] * 6))[-1]
    assert few["low"] is None and few["high"] is None and few["n"] == 6


def test_the_verdict_follows_from_the_interval_and_the_originals():
    many = [1] * 200
    control = answers(many, [0] * 150 + [1] * 50)
    better = table(control=control, repaired=answers(many, [0] * 50 + [1] * 150))
    drop = next(row for row in better if row["measure"] == "drop" and row["pictures"] == "average")
    assert (drop["control"], drop["repaired"], drop["difference"]) == (75.0, 25.0, -50.0)
    assert drop["low"] < -50 < drop["high"] < 0 and verdict(better)[0] == "better"
    same = table(control=control, repaired=control)
    assert verdict(same)[0] == "cannot tell"
    costly = table(control=control, repaired=answers([0] * 10 + [1] * 190, [0] * 50 + [1] * 150))
    assert verdict(costly)[0] == "worse"
    slight = table(control=control, repaired=answers([0] * 5 + [1] * 195, [0] * 50 + [1] * 150))
    assert verdict(slight)[0] == "cannot tell", "2.5 points are lost, but it could be less than 2"
    few = table(control=answers([1] * 6, [0] * 6), repaired=answers([1] * 6, [1] * 6))
    assert verdict(few)[0] == "cannot tell"
    assert verdict(table(control=answers(many, [1] * 200), repaired=control))[0] == "worse"


def test_a_model_that_is_worse_than_before_is_never_called_better():
    many = [1] * 79
    before, wrecked = answers(many, [1] * 62 + [0] * 17), answers([1] * 71 + [0] * 8, [1] * 35 + [0] * 44)
    repaired = answers([1] * 76 + [0] * 3, [1] * 58 + [0] * 21)  # 100 -> 96.2, and the drop 21.5 -> 22.8
    rows = table(before=before, control=wrecked, repaired=repaired)
    drop = next(row for row in rows if row["measure"] == "drop" and row["pictures"] == "average")
    assert drop["high"] < 0, "surely better than the control, which the fine-tune has wrecked"
    judged, reason = verdict(rows)
    assert judged == "cannot tell" and "originals is below that before (-3.8 points" in reason
    grown = answers(many, [1] * 60 + [0] * 19)
    assert verdict(table(before=before, control=wrecked, repaired=grown))[0] == "cannot tell"
    lost = answers(many, [1] * 30 + [0] * 49)
    judged, reason = verdict(table(before=before, control=answers(many, [0] * 79), repaired=lost))
    assert judged == "worse" and "has grown from 21.5 to 62.0 points" in reason


def test_better_is_never_said_of_a_model_that_is_worse_than_before_whatever_the_answers():
    """Of 300 random repairs, many beat a control that the fine-tune wrecked and are worse than the model before."""
    rng = np.random.default_rng(0)
    said, hidden = 0, 0
    for count in rng.integers(20, 400, 300):
        shares = rng.uniform(0.8, 1, 3), rng.uniform(0.2, 1, 3)
        arms = [
            answers(*((rng.random(count) < share).astype(int) for share in arm)) for arm in zip(*shares, strict=True)
        ]
        rows = table(**dict(zip(("before", "control", "repaired"), arms, strict=True)))
        plain, drop = rows[0], next(row for row in rows if row["pictures"] == "average")
        worse = plain["change_high"] < 0 or drop["change_low"] > 0
        hidden += worse and drop["high"] < 0 and plain["low"] > -2
        if verdict(rows)[0] == "better":
            said += 1
            assert not worse and drop["change"] <= 0 and plain["change"] >= -2, rows
    assert said > 10 and hidden > 0


def test_a_sure_loss_within_the_tolerance_is_not_called_better():
    before, control = (
        answers([1] * 2000, [0] * 1000 + [1] * 1000),
        answers([1] * 1980 + [0] * 20, [0] * 1000 + [1] * 1000),
    )
    repaired = answers([0] * 20 + [1] * 1980, [0] * 500 + [1] * 1500)
    judged, reason = verdict(table(before=before, control=control, repaired=repaired))
    assert judged == "cannot tell" and "-1.0 points" in reason


def test_better_needs_a_test_that_agrees_with_the_interval():
    drops = [0] * 5 + [1] * 15
    rows = table(control=answers([1] * 20, drops), repaired=answers([1] * 20, [1] * 20))
    average = next(row for row in rows if row["measure"] == "drop" and row["pictures"] == "average")
    assert average["p_value"] == 0.0625 and verdict(rows)[0] == "cannot tell"
