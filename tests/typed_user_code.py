"""What a user may write with every public name; `test_typing.py` checks its types, nothing runs it."""

from __future__ import annotations

import warnings
from pathlib import Path

import polars
import torch
from PIL import Image

import unswayed


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.zeros(3, image.height, image.width)


def edit_one(photograph: Image.Image, mask: Path) -> tuple[float | str, Image.Image, int]:
    small = unswayed.edit(photograph, mask, size=0.05, background="random", position=(0, 1), fog=0.5, seed=3)
    unswayed.edit("dog.jpg", (10, 20, 300, 280), lighting={"stops": -2, "where": "both"}, renderer="paste")
    paths: tuple[Path, Path, Path] = small.save("small.png")
    empty: Image.Image = unswayed.remove_object(photograph, mask)
    empty.save(paths[0])
    small.mask.save("mask.png")
    shares: list[float | None] = [one.share for one in unswayed.fragility(photograph, mask, models=["lite:0"])]
    assert shares
    drawn: dict[str, float | str] = small.values
    return small.parameters["size"]["rate"] or drawn["from"], small.image, small.seed


def scenes() -> list[float]:
    source = unswayed.open_source("sample", limit=2)
    scene: unswayed.Scene = unswayed.frame(source["dog"])
    space: unswayed.LabelSpace = source.labels
    unswayed.edit(scene, size=0.05)
    name: str = space.classes[scene.label or 0]
    return [scene.pixel_rate, float(len(name))]


def dataset(folder: Path) -> None:
    pictures: unswayed.Benchmark = unswayed.Benchmark(folder)
    image, label, row = pictures.edit("size-0.05")[0]
    size: tuple[int, int] = image.size
    known: int | None = label
    edit: str = row.edit
    rows: polars.DataFrame = pictures.to_polars()
    names: tuple[str, ...] = pictures.edits
    print(size, known, edit, rows.height, names, len(pictures))
    tensors = unswayed.Benchmark(folder, transform=to_tensor)
    tensor: torch.Tensor = tensors[0][0]
    batch, labels, others = unswayed.Benchmark.collate([tensors[0]])
    print(tensor.ndim, batch.ndim, labels.ndim, others[0].source_id)


def measure(model: torch.nn.Module, folder: Path) -> str:
    own = unswayed.Classifier(
        model, unswayed.Transform(resize=256, crop=224), unswayed.LabelSpace("two", ("cat", "dog"))
    )
    lite: unswayed.Classifier = unswayed.open_model("lite:0", device="cpu")
    logits: torch.Tensor = lite.logits(torch.zeros(1, 3, lite.transform.crop, lite.transform.crop))
    settings = unswayed.BuildSettings(recipe="imagenet-e", renderer="paste", seed=1)
    built: Path = unswayed.build("sample", folder, settings).root
    own_crop = unswayed.EvaluateSettings(transform="own", batch_size=64)
    predictions: polars.DataFrame = unswayed.evaluate(built, [own, "lite:2"], "predictions", own_crop)
    again: polars.DataFrame = unswayed.read_predictions("predictions", ["lite:2"])
    drops: polars.DataFrame = unswayed.dropped_accuracy(predictions, by="class")
    compared: polars.DataFrame = unswayed.compare("predictions", "own", "lite:2")
    found = unswayed.check(predictions, max_drop={"size-0.05": 20}, min_accuracy={"original": 75})
    warnings.simplefilter("error", unswayed.UnswayedWarning)
    if not found.passed:
        print(found.checks.height, drops.height, compared.height, again.height, logits.ndim)
    try:
        written = unswayed.report("predictions", Path("report.html"), heat_maps=4)
    except unswayed.UserError as error:
        return error.given
    return f"{unswayed.__version__} {found.verdict} {written.path} {written.verdict[0]} {written.drops.height}"


def exchange(folder: Path) -> str:
    exported = unswayed.export(folder, "datasets", "published")
    again: Path = unswayed.import_benchmark(exported.place, "again").root
    unswayed.import_benchmark("release", "bench", unswayed.ImportSettings(copy=True), progress=print)
    same = unswayed.same_model("predictions", "lite:0", "onnx:lite0.onnx")
    sound: bool = unswayed.verify(again).passed
    free: bool | None = unswayed.licenses(again).redistributable
    return f"{again} {exported.pictures} {same.answer} {same.sentence} {same.table.height} {sound} {free}"


def lists() -> list[str]:
    return [*unswayed.list_models("lite:*"), *unswayed.list_edits(), *unswayed.list_sources()]


def keywords(folder: Path) -> list[int]:
    built: Path = unswayed.build("sample", folder, recipe="size-0.05", renderer="paste", steps=None, limit=2).root
    predictions: polars.DataFrame = unswayed.evaluate(built, "lite:0", "predictions", transform="own", limit=1)
    drops: polars.DataFrame = unswayed.analyze("predictions", table="drops", by="class", resamples=50)
    same: polars.DataFrame = unswayed.analyze("predictions", unswayed.AnalyzeSettings(models=["lite:0"]))
    unswayed.compare("predictions", "a", "b", unswayed.CompareSettings(measure="net"))
    strict = unswayed.GateSettings(max_drop={"size-0.05": 20})
    found = unswayed.check(predictions, strict)
    table: polars.DataFrame = unswayed.plan(None, drop=[5.0]).table
    unswayed.plan("predictions", unswayed.PlanSettings(photographs=[100]))
    ratios: polars.DataFrame = unswayed.factors("predictions", which="multi", by="metaclass")
    unswayed.factors(None, unswayed.FactorSettings(table="distribution"))
    made = unswayed.masks("photos", "masks", segmenter="grabcut", box=(0, 0, 10, 10))
    unswayed.masks("photos", "masks", unswayed.MaskSettings(workers=1))
    unswayed.report("predictions", "report.html", unswayed.ReportSettings(heat_maps=0, title="Ours"))
    return [drops.height, same.height, table.height, ratios.height, len(made), found.checks.height]


def studies(folder: Path) -> list[str]:
    tables: dict[str, polars.DataFrame] = unswayed.sensitivity("sample", ["lite:0"], folder, saliency="layercam").tables
    unswayed.sensitivity("sample", ["lite:0"], folder, unswayed.SensitivitySettings(seeds=2))
    verdicts = unswayed.distribution("bench", ["lite:0"], folder, fid=False).tables["verdicts"]
    unswayed.distribution("bench", ["lite:0"], folder, unswayed.DistributionSettings(limit=2))
    head: Path = unswayed.fit_head("sample", "lite:0", folder, epochs=1).folder
    unswayed.fit_head("sample", "lite:0", folder, unswayed.HeadSettings(limit=3))
    repaired = unswayed.repair("sample", "lite:0", folder, unswayed.RepairSettings(epochs=1), new_head=True)
    skipped: dict[str, str] = unswayed.enhance("bench", "lite:0", folder).skipped
    report: Path = unswayed.demo(folder, scenes=1).report
    unswayed.demo(folder, unswayed.DemoSettings(seed=1))
    unswayed.enhance("bench", "lite:0", folder, unswayed.EnhanceSettings(others=["lite:1"]))
    unswayed.export("bench", "fiftyone", "birds", unswayed.ExportSettings(overwrite=True))
    return [*tables, *skipped, str(verdicts.height), str(head), repaired.verdict, str(report)]
