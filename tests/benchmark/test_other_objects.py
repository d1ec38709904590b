"""What is known about every object after an edit: boxes and masks equal to those in the picture's own pixels."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unswayed
from object_world import COLORS, NAMES, write_objects
from unswayed.benchmark.folder import Benchmark
from unswayed.errors import UserError
from unswayed.sources import open_source
from unswayed.sources.coco import box_of, objects_text, read_objects, run_length_mask

RECIPE = "original,size-0.05,position,size-full,direction,background-random,reinsertion,occlusion-0.4"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    folder = tmp_path_factory.mktemp("others")
    file = write_objects(folder / "photographs", count=6, wide=256, high=256)
    unswayed.build(f"coco:{file}", folder / "bench", recipe=RECIPE, renderer="paste", workers=1, quality="off")
    return Benchmark(folder / "bench")


def rows_of(bench: Benchmark, *edits: str) -> list[dict[str, object]]:
    rows = [row for row in bench.manifest.to_pylist() if row["edit"] in edits and row["status"] == "ok"]
    assert rows
    return rows


def colored(bench: Benchmark, row: dict[str, object], label: int) -> np.ndarray:
    """The pixels of a picture that have exactly the color of a class."""
    picture = np.asarray(Image.open(bench.root / str(row["path"])))
    return (picture == COLORS[NAMES[label]]).all(axis=2)


def test_every_written_mask_is_the_alpha_of_its_picture(bench: Benchmark) -> None:
    """The photographs are gray, so each pixel's share of the object follows from its saturation."""
    occluded = 0
    for row in rows_of(bench, "original", "position", "size-0.05", "direction", "reinsertion", "occlusion-0.4"):
        label, beside = int(str(row["label"])), {int(str(row["label"]))}
        if row["edit"] == "occlusion-0.4":
            beside.add(int(str(read_objects(row["objects"], "row")[-1].label)))  # type: ignore[arg-type]
            if len(beside) == 1:  # an occluder of the same color
                continue
            occluded += 1
        picture = np.asarray(Image.open(bench.root / str(row["path"]))).astype(float)
        mask = np.asarray(Image.open(bench.root / str(row["mask_path"])))
        color = np.array(COLORS[NAMES[label]], float)
        apart = [channel for channel in range(3) if channel not in beside][0]
        share = (picture[..., label] - picture[..., apart]) / (color[label] - color[apart])
        free = np.ones_like(mask, bool)
        for left, top, right, bottom in ((8, 10, 52, 40), (196, 216, 246, 248)):
            free[top - 4 : bottom + 4, left - 4 : right + 4] = False
        decided = free & (np.abs(share - 0.5) > 0.06)
        assert ((share > 0.5) == (mask > 127))[decided].all(), row["sample_id"]
        assert decided[free].mean() > 0.98
        assert row["pixel_rate"] == pytest.approx((mask > 127).mean())
    assert occluded >= 2


def test_the_others_stay_where_they_are_to_the_pixel(bench: Benchmark) -> None:
    for row in rows_of(bench, "original", "position", "size-0.05", "reinsertion", "occlusion-0.4"):
        others = read_objects(row["objects"], "row")  # type: ignore[arg-type]
        crowd = np.zeros((256, 256), bool)
        crowd[216:248, 196:246] = True
        if row["edit"] == "occlusion-0.4":
            *others, occluder = others
            hiding = run_length_mask(occluder.mask, 256, 256) > 0
            assert colored(bench, row, int(str(occluder.label)))[hiding].mean() > 0.8, "its rim is softer"
            crowd |= hiding
        for other in others:
            assert other.label is not None and other.label != row["label"]
            mask = run_length_mask(other.mask, 256, 256) > 0
            assert other.box == box_of(mask)
            visible = colored(bench, row, other.label) & ~crowd
            assert (mask & ~crowd == visible).all(), row["sample_id"]
        if row["edit"] == "original":
            assert [other.box for other in others] == [(8.0, 10.0, 52.0, 40.0)]


def test_a_background_of_another_photograph_brings_its_objects(bench: Benchmark) -> None:
    brought = 0
    for row in rows_of(bench, "background-random"):
        for other in read_objects(row["objects"], "row"):  # type: ignore[arg-type]
            mask = run_length_mask(other.mask, 256, 256) > 0
            brought += 1
            assert colored(bench, row, int(str(other.label)))[mask].all()
    assert brought >= 3


def test_a_crop_stretches_and_cuts_the_others(tmp_path: Path) -> None:
    """A photograph cropped to its object, with another one half behind the window's edge."""
    image = np.full((256, 256, 3), 120, np.uint8)
    image[64:192, 64:192] = COLORS["apple"]
    image[100:140, 150:240] = COLORS["leaf"]
    Image.fromarray(image).save(tmp_path / "one.png")

    def outlined(left: int, top: int, right: int, bottom: int) -> list[list[int]]:
        return [[left, top, right, top, right, bottom, left, bottom]]

    apple = outlined(64, 64, 192, 192)
    annotations = [
        {"id": 1, "image_id": 1, "category_id": 1, "area": 16000, "segmentation": apple},
        {"id": 2, "image_id": 1, "category_id": 2, "area": 900, "segmentation": outlined(150, 100, 240, 140)},
    ]
    content = {
        "images": [{"id": 1, "file_name": "one.png", "height": 256, "width": 256}],
        "annotations": annotations,
        "categories": [{"id": index + 1, "name": name} for index, name in enumerate(NAMES)],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    source = f"coco:{tmp_path / 'instances.json'}"
    unswayed.build(source, tmp_path / "b", recipe="size-full", renderer="paste", workers=1, quality="off")
    [row] = rows_of(Benchmark(tmp_path / "b"), "size-full")
    [other] = read_objects(row["objects"], "row")  # type: ignore[arg-type]
    # The window is the apple's box, 64 to 192, stretched to twice its size.
    assert np.abs(np.array(other.box) - [172, 72, 256, 152]).max() <= 1


def test_objects_of_a_source_above_a_size(tmp_path: Path) -> None:
    file = write_objects(tmp_path, count=4)
    every, large = (open_source(f"coco:{file}?objects=all&least={least}") for least in ("0", "0.04"))
    assert (len(every), len(large)) == (8, 4)
    assert every.remarks == ("4 crowds of several objects under one outline are left out",)
    assert [len(scene.others) for scene in every] == [1] * 8
    scene = large[0]
    assert scene.others[0][0] != scene.label and scene.others[0][1].shape == scene.mask.shape
    with pytest.raises(UserError, match="least"):
        open_source(f"coco:{file}?least=2")


def test_hidden_objects_are_left_out_and_damaged_records_are_refused() -> None:
    nothing, corner = np.zeros((4, 4), bool), np.eye(4, dtype=bool)
    text = objects_text([(0, nothing), (None, corner)])
    [other] = read_objects(text, "row")
    assert (other.label, other.box) == (None, (0.0, 0.0, 4.0, 4.0))
    assert (run_length_mask(other.mask, 4, 4) > 0).tolist() == corner.tolist()
    assert objects_text([(0, nothing)]) is None and read_objects(None, "row") == ()
    for damaged in ("[{}]", "[1]", "3", '[{"label": 0, "box": [1, 2], "mask": ""}]'):
        with pytest.raises(UserError, match="other objects"):
            read_objects(damaged, "row 7")


WEATHERS = ("fog", "rain", "snow", "night", "shadow", "sun")
WEATHER = """
name = "weather"
edits = ["original", {edits}]
[[item]]
name = "moved"
chain = [{{ edit = "size", rate = 0.08 }}, {{ edit = "position", x = 0.3, y = 0.7 }},
         {{ edit = "fog", severity = 4, where = "background" }}]
[[item]]
name = "relit"
chain = [{{ edit = "background", kind = "random" }}, {{ edit = "relight" }}]
"""


@pytest.fixture(scope="module")
def two_worlds(tmp_path_factory: pytest.TempPathFactory) -> list[Benchmark]:
    """The same pictures of photographs that differ in the color of their object alone, which shows where it is."""
    folder, made = tmp_path_factory.mktemp("weather"), []
    kinds = itertools.product(WEATHERS, ("object", "background", "both"))
    edits = [f"{name}(where={where})=4" for name, where in kinds]
    edits += ["lighting(where=both)=1", "blur(where=object)=3", "color(hue=120)", "size-full"]
    edits += ["size-0.05", "position", "direction-small", "reinsertion", "background-checker"]
    (folder / "weather.toml").write_text(WEATHER.format(edits=json.dumps(edits)[1:-1]))
    for world in ("one", "two"):
        file = write_objects(folder / world, count=2, wide=256, high=256)
        if world == "two":
            for number, path in enumerate(sorted((folder / world).glob("*.png"))):
                pixels, color = np.array(Image.open(path)), COLORS[NAMES[number % 3]]
                pixels[(pixels == color).all(2)] = 255 - np.array(color)
                Image.fromarray(pixels).save(path)
        options = {"recipe": str(folder / "weather.toml"), "renderer": "paste", "workers": 1, "quality": "off"}
        unswayed.build(f"coco:{file}", folder / f"bench-{world}", **options)
        made.append(Benchmark(folder / f"bench-{world}"))
    return made


def test_masks_and_boxes_are_those_of_the_pixels_after_every_kind_of_edit(two_worlds: list[Benchmark]) -> None:
    rows = [[row for row in world.manifest.to_pylist() if row["mask_path"]] for world in two_worlds]
    originals = {row["source_id"]: row for row in rows[0] if row["edit"] == "original"}
    for row, twin in zip(*rows, strict=True):
        places = [(world.root, each) for world, each in zip(two_worlds, (row, twin), strict=True)]
        one, two = (np.asarray(Image.open(root / each["path"])).astype(int) for root, each in places)
        mask, same = (np.asarray(Image.open(root / each["mask_path"])) for root, each in places)
        assert (mask == same).all() and row["pixel_rate"] == pytest.approx((mask > 127).mean())
        differs = (one != two).any(2)
        assert differs[mask > 127].all() and not differs[mask == 0].any(), row["sample_id"]
        for other in read_objects(row["objects"], "row"):
            visible = run_length_mask(other.mask, 256, 256) > 0
            assert other.box == box_of(visible) and not (visible & (mask > 127)).any(), row["sample_id"]
        if row["edit"].split("-")[0] in (*WEATHERS, "lighting", "blur", "color"):
            assert row["objects"] == originals[row["source_id"]]["objects"]
