"""The report as a file: what it says, what it escapes, what it leaves beside itself, what it refuses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow.parquet as parquet
import pytest
from markupsafe import Markup

from command_line import run_cli
from report_world import CLASSES, HOSTILE, make_benchmark, make_predictions
from unswayed.analyses.flips import find_flips
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts
from unswayed.evaluation.heat import explain_pairs
from unswayed.files.whole import read_json, write_json
from unswayed.scene import LOOK_BELOW
from unswayed.views.report import ReportSettings, gallery
from unswayed.views.report.findings import Findings
from unswayed.views.report.gallery import flips_of_every_model, page_data, pictures_of
from unswayed.views.report.page import benchmark_facts, write_report
from unswayed.views.report.pictures import Album
from unswayed.views.report.section import drawing
from unswayed.views.report.verdict import verdict
from unswayed.views.text import interval, joined, points, render


def test_markup_escapes_everything_but_markup() -> None:
    assert render("sections.html", "facts", named={"<i>": '"x"'}) == "<dl><dt>&lt;i&gt;</dt><dd>&#34;x&#34;</dd></dl>"
    assert joined("a<", Markup("<b>c</b>"), None) == "a&lt;<b>c</b>"
    assert joined(joined("<")) == "&lt;"


def test_numbers_in_words() -> None:
    assert points(-0.04) == "0.0"
    assert points(12.345) == "12.3"
    assert interval(None, 1.0) == "–"
    assert Facts().describe("size-0.08") == "object at 8 % of the picture"
    assert Facts().describe("made-up") == ""


def test_sections_stand_in_the_promised_order(page: str) -> None:
    found = re.findall(r'<section id="(\w+)"', page)
    assert found == [
        "verdict",
        "edits",
        "drops",
        "flips",
        "models",
        "explorer",
        "answers",
        "groups",
        "accuracy",
        "curves",
        "made",
    ]


def test_nothing_hostile_becomes_markup(page: str) -> None:
    assert HOSTILE not in page
    assert page.count("<script") == 2
    assert page.count('<script type="application/json" id="data">') == 1
    markup = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.S)
    assert "onerror=window" not in re.sub(r"&#34;&gt;&lt;img src=x onerror=window\.hacked=2&gt;", "", markup)


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    addresses = re.findall(r'(?:src|href)="([^"#]*)', page)
    assert all(one == "" or one.startswith("data:") for one in addresses)
    assert "url(http" not in page


def test_every_number_of_the_table_is_that_of_the_analysis(world: Path, page: str) -> None:
    drops = Findings(world / "predictions", ReportSettings()).drops
    for row in drops.filter(pl.col("kind") == "edit").iter_rows(named=True):
        cells = (f"{row['n']:,}", points(100 * row["accuracy"]), points(row["drop"]), interval(row["low"], row["high"]))
        cells += (points(row["net_drop"]), interval(row["net_low"], row["net_high"]))
        pattern = rf'<tr data-model="{row["model"]}" data-edit="{re.escape(row["edit"])}">.*?</tr>'
        line = re.search(pattern, page, flags=re.S)
        assert line is not None
        assert all(cell in line.group() for cell in cells)


def test_white_box_control_and_crop_are_said(world: Path, page: str) -> None:
    found = Findings(world / "predictions", ReportSettings())
    table = page[page.index('<table id="drops-table"') :].partition("</table>")[0]
    rows = re.findall(r'<tr data-model="(.*?)" data-edit="(.*?)">(.*?)</tr>', table, flags=re.S)
    marks = {
        (model, edit): re.search(rf'<td title="{re.escape(edit)}">[^<]+(?:<small> (.*?)</small>)?</td>', row)[1]
        if edit not in ("original", "average")
        else re.search(rf"<td>{edit}(?:<small> (.*?)</small>)?</td>", row)[1]
        for model, edit, row in rows
    }
    shown = found.drops.filter(pl.col("kind") != "source")
    expected = {
        (row["model"], row["edit"]): "white-box"
        if row["white_box"]
        else {"control": "control", "average": f"of {row['edits']} edits"}.get(row["kind"])
        for row in shown.iter_rows(named=True)
    }
    assert marks == expected
    assert sorted(model for (model, _), mark in marks.items() if mark == "white-box") == ["plain"]
    assert {edit for (_, edit), mark in marks.items() if mark == "control"} == {"inversion", "reinsertion"}
    counts = found.flips.counts
    assert f"Objects cut off: in {counts['cut'].sum()} of {counts['seen'].sum()} edited pictures" in page


def test_the_commands_and_the_hashes_are_there(world: Path, page: str) -> None:
    assert "unswayed build folder:made-up" in page
    assert "unswayed evaluate" in page
    assert "0" * 64 in page


def test_assets_hold_every_figure_three_times_and_every_table(world: Path, page: str) -> None:
    names = {path.name for path in (world / "assets").iterdir()}
    for figure in ("drops", "drops-narrow", "curve-size"):
        assert {f"{figure}.png", f"{figure}.svg", f"{figure}.pdf"} <= names
    assert {"drops.csv", "averages.csv", "curves.csv", "fits.csv", "groups.csv", "flips.csv", "answers.csv"} <= names
    assert (
        pl.read_csv(world / "assets" / "drops.csv").height
        == Findings(world / "predictions", ReportSettings()).drops.height
    )


def test_every_guide_of_several_is_named_with_its_weights() -> None:
    members = [{"name": "lite:1", "weights_sha256": "a1"}, {"name": "lite:2", "weights_sha256": "b2"}]
    guide = {"name": "lite:1,lite:2", "weights_sha256": None, "members": members}
    findings: Any = SimpleNamespace(facts=SimpleNamespace(benchmark={"renderer": {"guide": guide}}, root="bench"))
    assert benchmark_facts(findings)["Guide of adversarial edits"] == "lite:1 a1 lite:2 b2"


def test_automatic_masks_are_reported_in_how_it_was_made(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 4, CLASSES)
    predictions = make_predictions(tmp_path / "predictions", bench, ["good"], CLASSES)
    card = read_json(bench / "benchmark.json")
    pages = {}
    for number in (3, 0):
        masks = {
            "automatic": number,
            "of": 4,
            "median_confidence": 0.71 if number else None,
            "below_limit": number // 3,
        }
        write_json(bench / "benchmark.json", {**card, "masks": masks})
        write_report(predictions, tmp_path / "report.html", resamples=50, heat_maps=0)
        pages[number] = (tmp_path / "report.html").read_text(encoding="utf-8")
    sure = f"a median confidence of 0.71, 1 below {LOOK_BELOW:g}"
    words = f"3 of 4 masks were made automatically, with {sure}; masks-worst.jpg"
    assert pages[3].count(words) == 1
    assert "made automatically" not in pages[0]
    assert "None of the 4 masks is recorded as automatic" in pages[0]


def test_the_same_predictions_give_the_same_bytes(world: Path, page: str) -> None:
    write_report(world / "predictions", world / "report.html", assets=world / "assets", flips=8, heat_maps=0)
    assert (world / "report.html").read_text() == page


def test_the_flips_of_every_cell_have_pictures_before_other_photographs(world: Path, monkeypatch: Any) -> None:
    """A pressed cell showed cards without pictures, because the room was given to what other cells show."""
    findings = Findings(world / "predictions", ReportSettings())
    data = page_data(findings)
    monkeypatch.setattr(gallery, "_IN_PLACE", 1)
    every = pictures_of(findings, data)
    flips = findings.answers.filter(pl.col("correct").not_() & (pl.col("edit") != "original"))
    right = findings.answers.filter(pl.col("correct") & (pl.col("edit") == "original"))
    shown = (
        flips.join(right, on=["model", "source_id"], how="semi")
        .group_by("model", "edit")
        .agg(pl.col("source_id").min())
    )
    names = [name for name, _ in data["photographs"]]
    wanted = {names.index(name) for name in shown["source_id"].cast(pl.String)}
    assert 2 <= len(wanted) < len(every)
    monkeypatch.setattr(gallery, "_BUDGET", sum(len(every[number]) for number in wanted))
    assert set(pictures_of(findings, data)) == wanted


def test_the_verdict_names_attributes_losses_the_worst_edit_and_n(world: Path) -> None:
    line, losses, hurts, sure, ranked = verdict(Findings(world / "predictions", ReportSettings()))
    assert all(attribute in line for attribute in ("size", "background")), "every attribute has a finding"
    assert "40 photographs can show large effects only" in line
    assert "40 photographs" in losses
    assert hurts.startswith("What hurts most: object size 5 % costs ")
    assert re.search(r"\d+ of \d+ (net |raw )?drops (is|are) beyond chance", sure)
    assert "n = 40 is small" in ranked


def test_a_large_n_is_not_called_small(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 600, ["a", "b"], pictures=0)
    make_predictions(tmp_path / "predictions", bench, ["one", "two"], ["a", "b"])
    said = " ".join(verdict(Findings(tmp_path / "predictions", ReportSettings())))
    assert "small" not in said
    assert "large effects only" not in said
    assert re.search(r"\d+ of 8 net drops are beyond chance", said)


def test_each_file_of_predictions_is_read_at_most_twice(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, *arguments: Any, **options: Any) -> Any:
            opened.update(str(one) for one in (source if isinstance(source, list) else [source]))
            return function(source, *arguments, **options)

        return call

    # Tables are read by `ParquetFile`; what else is opened is only the schema.
    monkeypatch.setattr(parquet, "ParquetFile", counted(parquet.ParquetFile))
    for name in ("read_parquet", "scan_parquet"):
        monkeypatch.setattr(pl, name, counted(getattr(pl, name)))
    Findings(world / "predictions", ReportSettings(resamples=20))
    files = [str(path) for path in (world / "predictions").glob("*.parquet")]
    assert len(files) > 1
    assert all(1 <= opened[path] <= 2 for path in files), opened


def test_flips_are_right_before_and_wrong_after(world: Path) -> None:
    rows = pl.concat([pl.read_parquet(path) for path in (world / "predictions").glob("*.parquet")])
    right = {(r["model"], r["sample_id"]): r["correct"] for r in rows.iter_rows(named=True)}
    found = find_flips(world / "predictions", limit=30, draw="even")
    assert len(found.shown) == 30
    for flip in found.shown:
        assert right[flip.model, f"{flip.source_id}/original/0"]
        assert not right[flip.model, flip.sample_id]
    expected = sum(
        right[model, f"{one.split('/')[0]}/original/0"] and not answer
        for (model, one), answer in right.items()
        if "/original/" not in one
    )
    assert found.total == expected
    assert {flip.edit for flip in found.shown} >= {"size-0.05", "background-random", "size-0.1"}


def test_the_same_pictures_are_shown_under_every_model(world: Path) -> None:
    findings = Findings(world / "predictions", ReportSettings(flips=8))
    together = flips_of_every_model(findings)
    assert together and all([view.model for view in views] == findings.models for views in together)
    rows = pl.concat([pl.read_parquet(path) for path in (world / "predictions").glob("*.parquet")])
    for view in (view for views in together for view in views):
        for edit, label, share in (
            ("original", view.before, view.before_probability),
            (view.edit, view.after, view.after_probability),
        ):
            (row,) = rows.filter(model=view.model, source_id=view.source_id, edit=edit, run=0).iter_rows(named=True)
            assert (row["predicted"], row["probability"]) == (label, share)
    # Two models: the pictures that one of them still answers correctly come first.
    right = [sum(view.after == view.label for view in views) for views in together]
    assert right[0] == 1 and right == sorted(right, reverse=True)


def test_pictures_outside_the_benchmark_are_never_shown(tmp_path: Path) -> None:

    bench = make_benchmark(tmp_path / "bench", 2, ["a", "b"])
    manifest = pl.read_parquet(bench / "manifest.parquet")
    good = manifest["path"][0]
    (tmp_path / "secret.png").write_bytes((bench / good).read_bytes())
    for path in ("../secret.png", str(tmp_path / "secret.png")):
        moved = manifest.with_columns(path=pl.lit(path))
        assert Album(bench, moved).picture("scene00000/original/0") is None
    assert Album(bench, manifest).picture("scene00000/original/0") is not None


def test_without_a_benchmark_the_report_says_so(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 8, ["a", "b"], pictures=0)
    make_predictions(tmp_path / "predictions", bench, ["one"], ["a", "b"])
    (bench / "manifest.parquet").unlink()
    write_report(tmp_path / "predictions", tmp_path / "report.html", heat_maps=0)
    page = (tmp_path / "report.html").read_text()
    assert "use --benchmark BENCH" in page


def test_predictions_without_edits_get_a_report(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 8, ["a", "b"], edits=("original",))
    make_predictions(tmp_path / "predictions", bench, ["one"], ["a", "b"])
    written = write_report(tmp_path / "predictions", tmp_path / "report.html", heat_maps=0)
    assert "there is no drop" in written.verdict[0]


def test_sensitivity_and_checks_beside_the_predictions_are_shown(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 8, ["a", "b"])
    make_predictions(tmp_path / "predictions", bench, ["one"], ["a", "b"])
    (tmp_path / "sensitivity").mkdir()
    levels = [30.0, 60.0, None]
    pl.DataFrame({
        "model": ["one"] * 3, "norm": ["linf"] * 3, "level": levels, "n": [8] * 3,
        "accuracy_foreground": [0.5] * 3, "accuracy_background": [0.75] * 3,
        "rfs": [0.3] * 3, "rfs_low": [-0.1] * 3, "rfs_high": [0.6] * 3,
    }).write_csv(tmp_path / "sensitivity" / "rfs.csv")  # fmt: skip
    (tmp_path / "distribution").mkdir()
    pl.DataFrame({"edit": ["size-0.05"], "fid": [12.5]}).write_csv(tmp_path / "distribution" / "fid.csv")
    write_report(tmp_path / "predictions", tmp_path / "report.html", heat_maps=0)
    page = (tmp_path / "report.html").read_text()
    assert '<section id="sensitivity"' in page
    assert '<section id="distribution"' in page
    assert "12.5" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"benchmark": "nowhere"}, "nowhere is not a benchmark"),
        ({"sensitivity": "nowhere"}, "there is no folder nowhere"),
        ({"flips": -1}, "flips is -1"),
    ],
)
def test_mistakes_are_explained(world: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_report(world / "predictions", world / "other.html", heat_maps=0, **options)  # type: ignore[arg-type]
    assert not (world / "other.html").exists()


def test_a_folder_without_predictions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains no predictions"):
        write_report(tmp_path, tmp_path / "report.html")


def test_models_that_cannot_be_opened_have_no_heat_maps_and_a_note(world: Path) -> None:
    write_report(world / "predictions", world / "heat.html", flips=4, heat_maps=4, explain=explain_pairs)
    assert "No heat maps for plain" in (world / "heat.html").read_text()


def test_the_factor_profile_of_validation_predictions_is_shown(world: Path, tmp_path: Path) -> None:
    pytest.importorskip("imagenet_x", reason="needs the package imagenet-x: pip install 'unswayed[imagenetx]'")
    from unswayed.sources.imagenet_x import load_annotations

    annotations = load_annotations("top", "val")
    right = annotations.labels[:5000].astype(int)
    pl.DataFrame(
        {
            "file_name": [f"{key}.JPEG" for key in annotations.keys[:5000]],
            "predicted_class": [(int(label) + (place % 3 == 0)) % 1000 for place, label in enumerate(right)],
            "predicted_probability": [0.5] * 5000,
        }
    ).write_csv(tmp_path / "some-model.csv")
    write_report(world / "predictions", tmp_path / "report.html", factors=tmp_path, flips=0, heat_maps=0, resamples=50)
    page = (tmp_path / "report.html").read_text()
    assert '<section id="factors"' in page
    assert "some-model" in page


def test_a_sweep_through_zero_is_one_curve_from_left_to_right() -> None:
    from unswayed.views.report.figures_drops import curve_figure

    rows = [("below 0", 1.0), ("below 0", 2.0), ("below 0", 0.0), ("above 0", 0.0), ("above 0", 1.0), ("above 0", 2.0)]
    curves = pl.DataFrame(
        [
            {"model": "one", "attribute": "lighting", "side": side, "level": level, "n": 9, "accuracy": 0.5,
             "low": 0.3, "high": 0.7} for side, level in rows
        ]
    )  # fmt: skip
    found: Any = SimpleNamespace(series={"one": 0}, accuracies={})
    with drawing("test"):
        line = curve_figure(curves, "lighting", found).axes[0].lines[0]
    assert list(line.get_xdata()) == [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_the_command_prints_where_the_report_is(world: Path, tmp_path: Path) -> None:
    import json

    arguments = ["report", str(world / "predictions"), "-o", str(tmp_path / "r.html"), "--heat-maps", "0", "--json"]
    result = run_cli(*arguments)
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert record["bytes"] == (tmp_path / "r.html").stat().st_size
    assert len(record["verdict"]) == 5
