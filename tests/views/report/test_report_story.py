"""What the page tells: net drops first, the blame for each flip, what is missing, colors, names and framing."""

from __future__ import annotations

import base64
import re
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command_line import refusal, run_cli
from report_world import make_benchmark, make_predictions
from unswayed.analyses.flips import find_flips
from unswayed.analyses.statistics import certain_rows
from unswayed.analyses.statistics.paired import holm
from unswayed.files.whole import sha256
from unswayed.views.report import ReportSettings
from unswayed.views.report.extras import sensitivity_section
from unswayed.views.report.findings import Findings
from unswayed.views.report.page import write_report
from unswayed.views.report.section import COLORS, drawing
from unswayed.views.report.sections import groups_section
from unswayed.views.report.verdict import first_screen, hurts_most, ranking, verdict


def test_the_net_drop_comes_first_everywhere(tmp_path: Path) -> None:
    """The raw averages order two models one way, the net ones the other: cards, matrix and verdict follow the net."""
    n = 400
    rates = {
        "harmless": {"original": 1.0, "reinsertion": 0.7, "size-0.05": 0.69},  # its rendering costs 30 points
        "fragile": {"original": 1.0, "reinsertion": 1.0, "size-0.05": 0.8},
    }
    frames = []
    for model, edits in rates.items():
        for edit, rate in edits.items():
            frames += [
                {"model": model, "source_id": f"s{number:03}", "edit": edit, "run": 0, "label": 0,
                 "predicted": int(number >= rate * n), "probability": 0.9, "true_probability": 0.9,
                 "correct": number < rate * n} for number in range(n)
            ]  # fmt: skip
    folder = tmp_path / "predictions"
    folder.mkdir()
    for model in rates:
        rows = pl.DataFrame([row for row in frames if row["model"] == model])
        rows.write_parquet(folder / f"{model}.parquet")
    found = Findings(folder, ReportSettings())
    raw = dict(found.drops.filter(edit="average").select("model", "drop").iter_rows())
    assert raw["harmless"] > raw["fragile"]
    assert found.models == ["harmless", "fragile"]
    assert verdict(found)[1].startswith("On average harmless loses 1.0")
    assert ranking(found).answer == "Yes: harmless is steadiest"  # type: ignore[union-attr]
    page = str(first_screen(found))
    assert re.findall(r'<td class="number"><b>([\d.]+)</b>', page) == ["1.0", "20.0"]
    assert re.findall(r"raw drop ([\d.]+)", page) == ["31.0", "20.0"]
    assert len(set(re.findall(r'class="raw-mark" style="left: ([\d.]+)%', page))) == 2
    assert "what rendering alone costs is subtracted. Gray mark: raw drop" in page


def test_the_reason_why_a_control_is_missing_is_said(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 4, ["a", "b"], ("original", "inversion", "background-random"))
    folder = make_predictions(tmp_path / "predictions", bench, ["m"], ["a", "b"])
    rows, control = pl.read_parquet(bench / "manifest.parquet"), pl.col("edit") == "inversion"
    reason = pl.lit("needs a diffusion network: it regenerates the background")
    rows.with_columns(
        status=pl.when(control).then(pl.lit("skipped")).otherwise("status"), reason=pl.when(control).then(reason)
    ).write_parquet(bench / "manifest.parquet")
    path = folder / "model00.parquet"
    pl.read_parquet(path).filter(~control).write_parquet(path)
    said = verdict(Findings(folder, ReportSettings()))[1]
    reason = "random background has no control here (needs a diffusion network)"
    assert f"what rendering alone costs is included, because {reason}" in said
    write_report(folder, tmp_path / "report.html", heat_maps=0)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "subtracts it where there is a control, but not in its average." in page


@pytest.mark.parametrize(
    ("worst", "next_worst", "said"),
    [
        (0.6, 0.8, ("(+20.0 points, ", ", is sure too.")),
        (0.79, 0.8, ("(+1.0 points, ", ", is not sure.")),
    ],
)
def test_the_worst_edit_is_compared_with_the_next(
    tmp_path: Path, worst: float, next_worst: float, said: tuple[str, str]
) -> None:
    """Both edits hit different photographs, so that a small difference between them may be chance."""
    n, rates = 200, {"original": 1.0, "size-0.1": next_worst, "size-0.05": worst}
    rows = [
        {"model": "m", "source_id": f"s{number:03}", "edit": edit, "run": 0, "label": 0,
         "predicted": int((n - 1 - number if edit == "size-0.1" else number) >= rate * n), "probability": 0.9,
         "true_probability": 0.9, "correct": (n - 1 - number if edit == "size-0.1" else number) < rate * n}
        for edit, rate in rates.items() for number in range(n)
    ]  # fmt: skip
    (tmp_path / "p").mkdir()
    pl.DataFrame(rows).write_parquet(tmp_path / "p" / "m.parquet")
    found = Findings(tmp_path / "p", ReportSettings())
    sure = hurts_most(found)[1]
    assert sure.answer == "Yes"
    assert "the next, object size 10 % " in sure.reason
    assert all(part in sure.reason for part in said)
    lead = found.lead
    assert lead is not None and lead["n"] == n
    deviation = 100 * np.std(
        [row["correct"] - other["correct"] for row, other in zip(rows[n : 2 * n], rows[2 * n :], strict=True)]
    )
    assert (lead["high"] - lead["low"]) / 2 == pytest.approx(1.96 * deviation / n**0.5, rel=0.15)


def test_a_flip_names_its_blame(world: Path) -> None:
    rows = pl.concat([pl.read_parquet(path) for path in (world / "predictions").glob("*.parquet")])
    right = {(r["model"], r["sample_id"]): r["correct"] for r in rows.iter_rows(named=True)}
    found = Findings(world / "predictions", ReportSettings(flips=40, draw="worst"))
    lost, gained = ([flip for flip in found.flips.shown if flip.gained is kind] for kind in (False, True))
    assert lost and gained
    for flip in lost:
        assert flip.control_correct == right[flip.model, f"{flip.source_id}/{flip.control}/0"]
    assert all(right[flip.model, flip.sample_id] for flip in gained)
    assert lost[0] == found.worst_flip
    assert found.worst_flip.edit == found.edits[0] and found.worst_flip.control_correct
    assert [flip.lost for flip in lost[1:]] == sorted((flip.lost for flip in lost[1:]), reverse=True)
    for some in (lost[1:], gained):
        assert max(Counter(flip.source_id for flip in some).values()) <= 2
    counts = found.flips.counts
    every = find_flips(world / "predictions", limit=10_000, facts=found.facts).shown
    blamed = sum(flip.control is not None and not right[flip.model, str(flip.control_id)] for flip in every)
    assert int(counts["control_wrong"].sum()) == blamed > 0


def test_missing_pictures_are_missing_and_not_impossible(tmp_path: Path) -> None:
    """The report claimed of every absent file that the edit could not be made for the scene."""
    bench = make_benchmark(tmp_path / "bench", 8, ["a", "b"])
    make_predictions(tmp_path / "predictions", bench, ["one"], ["a", "b"])
    manifest = pl.read_parquet(bench / "manifest.parquet")
    skipped = pl.col("sample_id") == "scene00000/size-0.05/0"
    manifest = manifest.with_columns(
        status=pl.when(skipped).then(pl.lit("skipped")).otherwise("status"),
        path=pl.when(skipped).then(None).otherwise("path"),
        reason=pl.when(skipped).then(pl.lit("the object is larger")).otherwise("reason"),
    )
    manifest.write_parquet(bench / "manifest.parquet")
    (bench / "images" / "size-0.1" / "scene00001.png").unlink()
    write_report(tmp_path / "predictions", tmp_path / "some.html", heat_maps=0)
    some = (tmp_path / "some.html").read_text()
    assert some.count(">not possible<") == 1
    assert some.count(">missing<") == 1
    assert f"1 picture of {bench} could not be read and is not shown, first images/size-0.1/scene00001.png" in some
    for path in (bench / "images").rglob("*.png"):
        path.unlink()
    write_report(tmp_path / "predictions", tmp_path / "none.html", heat_maps=0)
    none = (tmp_path / "none.html").read_text()
    assert ">not possible<" not in none
    assert "has their list, but not the files" in none


def test_pictures_that_changed_since_the_evaluation_are_not_shown(tmp_path: Path) -> None:
    """The report showed whatever is now under the name of a picture as the picture that was classified."""
    bench = make_benchmark(tmp_path / "bench", 8, ["a", "b"])
    make_predictions(tmp_path / "predictions", bench, ["one"], ["a", "b"])
    manifest = pl.read_parquet(bench / "manifest.parquet")
    hashes = [sha256(bench / path) for path in manifest["path"]]
    manifest.with_columns(sha256=pl.Series(hashes)).write_parquet(bench / "manifest.parquet")
    assert write_report(tmp_path / "predictions", tmp_path / "before.html", heat_maps=0).notes == []
    changed, missing = "images/size-0.1/scene00001.png", "images/size-0.1/scene00002.png"
    (bench / changed).write_bytes((bench / "images/original/scene00003.png").read_bytes())
    (bench / missing).unlink()
    written = write_report(tmp_path / "predictions", tmp_path / "after.html", heat_maps=0)
    assert written.notes == [
        f"1 picture of {bench} changed since the evaluation and is not shown, first {changed}",
        f"1 picture of {bench} could not be read and is not shown, first {missing}",
    ]
    page = (tmp_path / "after.html").read_text()
    assert [page.count(f"Note: {one}.") for one in written.notes] == [1, 1]
    assert (page.count(">changed<"), page.count(">missing<")) == (1, 1)


def test_impossible_edits_are_one_line_each(world: Path, tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 12, ["a", "b"], pictures=0)
    make_predictions(tmp_path / "predictions", bench, ["one"], ["a", "b"])
    manifest = pl.read_parquet(bench / "manifest.parquet")
    large = (pl.col("edit") == "size-0.05") & (pl.col("source_id") < "scene00005")
    broken = pl.col("source_id") == "scene00011"
    manifest.with_columns(
        status=pl.when(broken).then(pl.lit("failed")).when(large).then(pl.lit("skipped")).otherwise("status"),
        reason=pl.when(broken).then(pl.lit("bad mask")).when(large).then(pl.format("the object fills {}", "source_id")),
    ).write_parquet(bench / "manifest.parquet")
    write_report(tmp_path / "predictions", tmp_path / "report.html", heat_maps=0)
    table = (tmp_path / "report.html").read_text().split('id="left-out-table"')[1].split("</table>")[0]
    assert re.findall(r'scope="row">([^<]+)<', table) == ["every edit", "size-0.05"]
    assert "the most frequent of 5 reasons" in table


def test_models_have_one_color_in_every_section(world: Path, tmp_path: Path) -> None:
    """The sections colored models by their own order, so that a model changed its color within one report."""
    folder = tmp_path / "sensitivity"
    folder.mkdir()
    order = [
        *reversed(Findings(world / "predictions", ReportSettings()).models),
        "another",
    ]  # not the order of the report
    pl.DataFrame([
        {"model": model, "norm": "linf", "level": level, "n": 8, "accuracy_foreground": 0.5,
         "accuracy_background": 0.75, "rfs": 0.3, "rfs_low": -0.1, "rfs_high": 0.6}
        for model in order for level in (30.0, 60.0)
    ]).write_csv(folder / "rfs.csv")  # fmt: skip
    found = Findings(world / "predictions", ReportSettings())
    with drawing("test"):
        figure = sensitivity_section(folder, found).figures["sensitivity"]
        handles, labels = figure.axes[1].get_legend_handles_labels()
    colors = {label: handle[0].get_color() if isinstance(handle, tuple) else handle.get_color()
              for label, handle in zip(labels, handles, strict=True)}  # fmt: skip
    assert {model: colors[model] for model in found.models} == {
        model: COLORS[place] for model, place in found.series.items()
    }
    assert colors["another"] not in [COLORS[place] for place in found.series.values()]


def test_short_names_are_shown_and_full_names_stay_with_them(world: Path, tmp_path: Path) -> None:

    arguments = ["report", str(world / "predictions"), "-o", str(tmp_path / "r.html"), "--heat-maps", "0"]
    result = run_cli(*arguments, "--name", "plain=Ours <1>")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "r.html").read_text()
    assert 'title="plain"' in page
    assert "Ours &lt;1&gt;" in page
    assert "--name" in page.split('id="made"')[1]
    assert "white-box" in page, "the guide stays the guide under its short name"
    for wrong, words in (
        ("nobody=x", "no model to name 'nobody'"),
        ("plain=worse", "two models"),
        ("plain", "MODEL=NAME"),
    ):
        refusal(run_cli(*arguments, "--name", wrong), words)


def test_a_path_is_shown_by_its_shortest_unique_end(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 6, ["a", "b"], pictures=0)
    models = ["python:/home/ann/steady/model.py:build", "python:/home/ann/shaky/model.py:build", "onnx:/x/net.onnx"]
    make_predictions(tmp_path / "predictions", bench, models, ["a", "b"])
    found = Findings(tmp_path / "predictions", ReportSettings(resamples=20))
    assert sorted(found.models) == ["net.onnx", "shaky/model.py:build", "steady/model.py:build"]
    assert sorted(map(found.spec, found.models)) == sorted(models), "the full names are shown on hover"


def test_flips_are_drawn_evenly_over_models_and_edits(tmp_path: Path) -> None:
    """Nearly all cards came from the model that was most confident."""
    bench = make_benchmark(tmp_path / "bench", 40, ["a", "b"], pictures=0)
    folder = make_predictions(tmp_path / "predictions", bench, ["loud", "quiet"], ["a", "b"])
    for path in folder.glob("*.parquet"):
        rows = pl.read_parquet(path)
        sure, unsure = (0.99, 0.01) if rows["model"][0] == "loud" else (0.4, 0.3)
        rows.with_columns(true_probability=pl.when("correct").then(sure).otherwise(unsure)).write_parquet(path)
    found = Findings(folder, ReportSettings(flips=16, resamples=20))
    lost = [flip for flip in found.flips.shown if not flip.gained]
    assert lost[0] == found.worst_flip
    counts = Counter(flip.model for flip in lost[1:])
    assert abs(counts["loud"] - counts["quiet"]) <= 2
    assert not any(found.kinds[flip.edit] == "control" for flip in lost)


def test_certainty_has_one_voice_on_the_first_screen(world: Path) -> None:
    found = Findings(world / "predictions", ReportSettings())
    page = str(first_screen(found))
    cells = re.findall(r'data-model="(\w+)" data-edit="([\w.-]+)"[^>]*?class="([\w -]+)"', page)
    certain = {(row["model"], row["edit"]): row["certain"] for row in found.drops.iter_rows(named=True)}
    assert len(cells) > 10
    assert {(model, edit): "hatched" not in marks for model, edit, marks in cells} == {
        (model, edit): certain[model, edit] for model, edit, _ in cells
    }
    assert len({marks for _, _, marks in cells}) > 1


def test_groups_are_hatched_by_the_same_rule(world: Path) -> None:
    """Before, a cell was hatched by its interval alone, without a correction for the number of cells."""
    found = Findings(world / "predictions", ReportSettings())
    section = groups_section(found)
    assert section is not None
    cells = re.findall(r'class="cell ([\w -]+)"[^>]*title="([^"]+)"', str(section.body))
    certain = found.groups.select(certain_rows()).to_series()
    assert len(cells) == found.groups.height > 5 and "Holm" in str(section.body)
    assert sum("hatched" not in marks for marks, _ in cells) == certain.sum()
    assert found.groups["p_holm"].to_numpy() == pytest.approx(holm(found.groups["p_value"].to_numpy()))


def test_details_that_readers_stumbled_over(world: Path, page: str) -> None:
    assert "`" not in re.sub(r"<(script|style|svg|pre).*?</\1>", "", page, flags=re.S), "code is marked, not quoted"
    made = page.split('id="made"')[1]
    assert len(re.findall(r"unswayed 0\.\d+\.\d+", made)) <= 2, "versions are listed once, and in the footer"
    assert "at no level</td>" not in page
    assert "dashed: accuracy on the originals" in page.split('id="curves"')[1]


def test_every_table_of_the_page_can_be_saved_as_csv(page: str, world: Path) -> None:
    files = dict(re.findall(r'<a download="([\w-]+\.csv)" href="data:text/csv;base64,([^"]+)"', page))
    assert {"drops.csv", "answers.csv", "mistakes.csv", "groups.csv", "averages.csv", "flips.csv"} <= set(files)
    drops = pl.read_csv(base64.b64decode(files["drops.csv"]))
    assert drops.height == Findings(world / "predictions", ReportSettings()).drops.height


def test_the_cost_of_framing_is_paired(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 60, ["a", "b"], edits=("source", "original", "size-0.05"), pictures=0)
    make_predictions(tmp_path / "predictions", bench, ["one"], ["a", "b"])
    found = Findings(tmp_path / "predictions", ReportSettings()).framing.row(0, named=True)
    assert found["n"] == 60
    assert found["drop"] == pytest.approx(100 * (found["source"] - found["original"]))
    assert found["low"] < found["drop"] < found["high"]
