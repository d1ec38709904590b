"""Fog, rain, snow, night, shadow and sun: what each severity changes, where, and that it is the same every time."""

from __future__ import annotations

import functools

import cv2
import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors

import unswayed
from drawn_scenes import SAMPLE, SAMPLE_IDS, sample_scene
from unswayed.analyses.drops.curves import corruption_errors
from unswayed.benchmark import Benchmark, BuildSettings, build
from unswayed.edits import all_edits, make_edit
from unswayed.edits.composition import Composition, Impossible, Pool
from unswayed.edits.geometry import resized
from unswayed.edits.layers import Layers, composite, realize
from unswayed.edits.mixture import KINDS, draw
from unswayed.edits.random_edit import edited_by_others
from unswayed.edits.recipes import open_recipe
from unswayed.edits.weather import Air, Weather, weathered, weathered_batch
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts
from unswayed.repair.settings import weights_of
from unswayed.scene import Scene
from unswayed.transforms import BatchEdit, EditMixture, RandomEdit

SIDE = 128
WEATHERS = tuple(name for name, edit in all_edits().items() if issubclass(edit, Weather))
weathers = pytest.mark.parametrize("name", WEATHERS)


class Own:
    """The photographs' own backgrounds, and gray for every other."""

    size = SIDE

    def resolve(self, reference: object, composition: Composition) -> np.ndarray:
        return resized(composition.image, SIDE)


@functools.cache
def scene(name: str = "dog") -> Scene:
    return sample_scene(name).resized((SIDE, SIDE))


def layers(name: str, photograph: Scene | None = None, seed: int = 0, **parameters: object) -> Layers:
    edit = make_edit(name, **parameters)
    composition = edit.apply(
        Composition.of(photograph or scene()), np.random.default_rng(seed), Pool((), sample_scene, SIDE)
    )
    return realize(composition, Own(), 0)


def picture(name: str, photograph: Scene | None = None, seed: int = 0, **parameters: object) -> np.ndarray:
    made = layers(name, photograph, seed, **parameters)
    return composite(made.object, made.alpha, made.background)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The mean CIE ΔE of two pictures."""
    first, second = (cv2.cvtColor(p.astype(np.float32) / 255, cv2.COLOR_RGB2Lab) for p in (one, other))
    return float(np.linalg.norm(first - second, axis=2).mean())


def test_there_are_six_and_the_command_lists_them_with_the_recipe() -> None:
    assert WEATHERS == ("fog", "rain", "snow", "night", "shadow", "sun")
    recipe = open_recipe("weather")
    assert len(recipe.items) == 37 and recipe.items[0].name == "original"
    assert [item.level for item in recipe.items if item.attribute == "rain-both"] == [0, 1, 2, 3, 4, 5]
    assert {item.control for item in recipe.items} == {None}


@weathers
@pytest.mark.parametrize("where", ["object", "background", "both"])
def test_severity_0_is_the_photograph_itself(name: str, where: str) -> None:
    assert np.array_equal(picture(name, severity=0, where=where), resized(scene().image, SIDE))


@weathers
def test_the_same_seed_makes_the_same_picture(name: str) -> None:
    first = picture(name, severity=4)
    assert np.array_equal(picture(name, seed=9, severity=4), first), "the pattern does not depend on the plan's seed"
    assert make_edit(name, pattern="random").random and not make_edit(name).random
    other = picture(name, severity=4, pattern=1)
    drawn, again = (picture(name, seed=9, severity=4, pattern="random") for _ in range(2))
    assert np.array_equal(drawn, again)
    assert not np.array_equal(other, first) and not np.array_equal(drawn, first)


@weathers
def test_each_step_of_severity_changes_the_sample_equally_far(name: str) -> None:
    """The calibration of benchmarks/weather_severity.py, on a part of its photographs and at half its size."""
    photographs = [scene(each) for each in SAMPLE_IDS]
    measured = [
        np.mean([difference(picture(name, each, severity=severity), each.image) for each in photographs])
        for severity in range(6)
    ]
    steps = np.diff(measured)
    assert measured[0] == 0 and (steps > 0).all()
    assert np.abs(steps / steps.mean() - 1).max() < 0.15, measured
    between = np.mean([difference(picture(name, each, severity=2.5), each.image) for each in photographs])
    assert measured[2] < between < measured[3]


@weathers
def test_weather_on_one_layer_leaves_the_other_bit_for_bit(name: str) -> None:
    before = resized(scene().image, SIDE)
    made = layers(name, severity=5, where="background")
    solid, empty = made.alpha == 1, made.alpha == 0
    assert solid.sum() > 500 and empty.sum() > 500
    behind = picture(name, severity=5, where="background")
    assert np.array_equal(behind[solid], before[solid]) and difference(behind, before) > 1
    front = picture(name, severity=5, where="object")
    assert np.array_equal(front[empty], before[empty]) and difference(front, before) > 1
    both = picture(name, severity=5)
    assert np.array_equal(both[solid], front[solid]) and np.array_equal(both[empty], behind[empty])


@weathers
@pytest.mark.parametrize(
    ("parameters", "given"),
    [({"severity": 5.1}, "severity is 5.1"), ({"severity": -1}, "severity is -1"), ({"where": "sky"}, "sky")],
)
def test_what_is_out_of_range_is_refused(name: str, parameters: dict[str, object], given: str) -> None:
    with pytest.raises(UserError, match=given) as refused:
        make_edit(name, **parameters)
    assert refused.value.run == "unswayed edits"


@weathers
@pytest.mark.parametrize("severity", [0.0, 0.4, 2.0, 3.7, 5.0])
def test_numpy_and_torch_make_the_same_picture(name: str, severity: float) -> None:
    edit = make_edit(name, severity=severity)
    photographs = [scene(each) for each in SAMPLE_IDS[::5]]
    seeds = [edit.seed(each.id) for each in photographs]
    expected = []
    for each, seed in zip(photographs, seeds, strict=True):
        image, alpha = each.image, each.mask
        behind, front = (
            weathered(image, weight, edit, seed, layer, each.id)[0]
            for layer, weight in (("background", 1 - alpha), ("object", alpha))
        )
        expected.append(composite(front, alpha, behind).astype(np.float32))
    images = torch.from_numpy(np.stack([each.image for each in photographs])).permute(0, 3, 1, 2) / 255
    masks = torch.from_numpy(np.stack([each.mask for each in photographs]))[:, None]
    made = weathered_batch(edit, images, masks, np.full(len(seeds), severity), np.array(seeds))
    apart = np.abs((made * 255).round().permute(0, 2, 3, 1).numpy() - np.stack(expected))
    assert apart.max() <= 2 and apart.mean() < 0.05


def test_a_batch_has_a_severity_and_a_pattern_for_each_picture() -> None:
    edit = make_edit("rain")
    images = torch.full((3, 3, 96, 64), 0.3)
    masks = torch.zeros(3, 1, 96, 64)
    masks[:2, :, 30:60, 20:40] = 1
    made = weathered_batch(edit, images, masks, np.array([4.0, 4.0, 4.0]), np.array([1, 2, 1]))
    assert not torch.equal(made[0], made[1]), "another seed is another pattern"
    assert torch.equal(made[2], images[2]), "a picture without an object stays as it is"
    still = weathered_batch(edit, images, masks, np.array([0.0, 4.0, 4.0]), np.array([1, 2, 1]))
    assert torch.equal(still[0], images[0]) and torch.equal(still[1], made[1])


def test_noise_is_spread_evenly_and_differs_by_seed_and_salt() -> None:
    air = Air.over(np.ones((2, 1, 200, 200), np.float32), False, np.array([1, 2]), np)
    drawn = air.drawn(3, air.whole(200 * air.y), air.whole(200 * air.x))
    assert drawn.shape == (2, 1, 200, 200) and drawn.dtype == np.float32 and 0 <= drawn.min() <= drawn.max() < 1
    assert np.histogram(drawn, 10, (0, 1))[0] == pytest.approx(np.full(10, 8000), rel=0.05)
    flat = drawn.reshape(2, -1)
    others = [flat[1], np.roll(drawn[0, 0], 1, 0).ravel(), np.roll(drawn[0, 0], 1, 1).ravel()]
    assert all(abs(np.corrcoef(flat[0], other)[0, 1]) < 0.02 for other in others)


def test_fog_hides_what_is_far_and_keeps_the_horizon() -> None:
    image, mask = np.full((SIDE, SIDE, 3), 20, np.uint8), np.zeros((SIDE, SIDE), np.float32)
    mask[60:90, 50:70] = 1
    photograph = Scene("dark", image, mask)
    foggy = picture("fog", photograph, severity=3, horizon=0.5)[..., 0].astype(float)
    rows = foggy[:, :40].mean(axis=1)
    assert rows[SIDE // 2 :: 16].tolist() == sorted(rows[SIDE // 2 :: 16], reverse=True), "nearer ground is clearer"
    assert rows[:64].mean() > rows[-16:].mean() + 30
    stands = foggy[60:90, 50:70].mean()
    assert stands == pytest.approx(rows[86:92].mean(), rel=0.25), "the object is as far away as the ground it stands on"


def test_fog_follows_a_given_depth_map(tmp_path) -> None:
    image, mask = np.full((SIDE, SIDE, 3), 20, np.uint8), np.zeros((SIDE, SIDE), np.float32)
    mask[60:90, 50:70] = 1
    depth = np.zeros((64, 64), np.uint8)
    depth[:, 32:] = 255
    Image.fromarray(depth).save(tmp_path / "dark.png")
    photograph = Scene("dark", image, mask)
    foggy = picture("fog", photograph, severity=4, depth=str(tmp_path / "{id}.png"))
    assert np.array_equal(foggy[:, :45][mask[:, :45] == 0], image[:, :45][mask[:, :45] == 0]), "no fog where it is near"
    assert foggy[:, 90:].min() > 100
    inside = foggy[62:88, 52:68]
    assert 20 < inside.mean() < foggy[:, 90:].mean() and inside.std() < 15, "an object is at one distance"
    edit = make_edit("fog", depth=str(tmp_path / "{id}.png"))
    with pytest.raises(Impossible, match=r"no depth map .*other\.png"):
        edit.apply(Composition("other", image, mask), np.random.default_rng(0), SAMPLE)
    values = edit.apply(Composition.of(photograph), np.random.default_rng(0), SAMPLE).requested
    assert values["fog"] == 3.0 and len(values["depth_sha256"]) == 64


def test_rain_falls_to_the_side_that_is_given() -> None:
    gray = Scene("gray", np.full((SIDE, SIDE, 3), 60, np.uint8), scene().mask)

    def slope(slant: float) -> float:
        streaks = picture("rain", gray, severity=3, slant=slant)[..., 1].astype(np.float32)
        across, down = cv2.Sobel(streaks, cv2.CV_32F, 1, 0), cv2.Sobel(streaks, cv2.CV_32F, 0, 1)
        return float((across * down).mean())

    assert slope(30) * slope(-30) < 0
    assert abs(slope(0)) < 0.2 * abs(slope(30))


def test_the_sun_is_where_it_is_given_and_behind_the_object() -> None:
    for side in (0.2, 0.8):
        light = picture("sun", severity=4, where="background", side=side).mean(axis=2)[: SIDE // 4].mean(axis=0)
        assert abs(np.argmax(np.convolve(light, np.ones(9), "same")) / SIDE - side) < 0.08


def mixed(*names: str, **more: object) -> EditMixture:
    return EditMixture(weights=dict.fromkeys(names, 1.0), probability=1.0, most=1, **more)


@weathers
def test_random_edit_and_batch_edit_make_the_same_weather(name: str) -> None:
    mixture = mixed(name, ranges={name: (2, 4)})
    draws = draw(1, mixture, np.random.default_rng(4))
    assert draws.kinds[0].tolist() == [False] * len(KINDS) + [True]
    image, mask = scene().image, (scene().mask > 0.5).astype(np.float32)
    alone, shown = edited_by_others(image, mask, draws, mixture, None)
    assert np.array_equal(shown, mask) and difference(alone, image) > 2
    pictures = torch.from_numpy(image).permute(2, 0, 1)[None]
    batch, visible = BatchEdit(mixture)(pictures, torch.from_numpy(mask)[None], draws=draws)
    assert batch.dtype == torch.uint8 and torch.equal(visible, torch.from_numpy(mask)[None])
    assert np.abs(batch[0].permute(1, 2, 0).numpy().astype(int) - alone).max() <= 2


def test_weather_is_drawn_to_train_with_only_if_it_is_named() -> None:
    assert not set(WEATHERS) & set(EditMixture().weights)
    torch.manual_seed(0)
    image = tv_tensors.Image(torch.from_numpy(scene().image).permute(2, 0, 1).contiguous())
    mask = tv_tensors.Mask(torch.from_numpy(scene().mask > 0.5))
    transform = RandomEdit(mixed(*WEATHERS))
    made = [transform(image, mask) for _ in range(6)]
    assert all((moved != mask).float().mean() < 0.01 and not torch.equal(edited, image) for edited, moved in made)
    assert len({edited.numpy().tobytes() for edited, _ in made}) == 6
    masks = torch.full((2, 1, 96, 96), 255, dtype=torch.uint8)
    masks[..., :40] = 0
    both, shown = BatchEdit(mixed("snow"))(torch.full((2, 3, 96, 96), 0.2), masks)
    assert both.dtype == torch.float32 and not torch.equal(both[0], both[1]) and torch.equal(shown, masks)
    with pytest.raises(UserError, match="range of fog"):
        mixed("fog", ranges={"fog": (1, 7)})
    with pytest.raises(UserError, match="relight"):
        mixed("relight")


def test_repair_trains_with_the_weather_that_was_measured() -> None:
    weights = weights_of({"fog-both-3": 20.0, "rain-both-5": 5.0, "size-0.05": 10.0})
    assert (weights["fog"], weights["rain"], weights["size"], weights["blur"]) == (1.0, 0.25, 0.5, 0.1)
    assert "snow" not in weights
    assert weights_of({"size-0.05": 10.0}).keys() == set(KINDS)


def test_a_build_makes_every_severity_and_the_control_is_the_original(tmp_path) -> None:
    recipe = tmp_path / "some.toml"
    recipe.write_text('edits = ["snow=0,1,2,3,4,5", "night(where=background)=0,4", "relight=1"]\n')
    build("sample", tmp_path / "b", BuildSettings(recipe=str(recipe), renderer="paste", limit=1, size=SIDE))
    pictures = {row.edit: (np.asarray(image), row) for image, _, row in Benchmark(tmp_path / "b")}
    original = pictures["original"][0]
    for control in ("snow-0", "night-background-0"):
        assert np.array_equal(pictures[control][0], original)
        assert pictures[control][1].sha256 == pictures["original"][1].sha256, "the control has the original's own bytes"
    steps = [difference(pictures[f"snow-{severity}"][0], original) for severity in range(6)]
    assert steps == sorted(steps)
    assert np.abs(pictures["relight-1"][0].astype(int) - original).max() <= 1, "its own background is its own light"
    rows = pl.DataFrame(
        [{"model": "m", "source_id": "bison", "edit": edit, "run": 0, "correct": True} for edit in pictures]
    )
    facts = Facts(manifest=Benchmark(tmp_path / "b").to_polars())
    assert facts.describe("night-background-4") == "night of severity 4 on the background"
    with pytest.raises(UserError, match="not of ImageNet-C"):
        corruption_errors(rows, facts=facts)


def test_a_bright_dog_becomes_dark_in_a_dark_street_and_keeps_its_color(tmp_path) -> None:
    street = np.full((200, 200, 3), (10, 16, 40), np.uint8)
    Image.fromarray(street).save(tmp_path / "street.png")
    background = {"kind": "picture", "picture": str(tmp_path / "street.png"), "start": 0}
    dog = unswayed.open_source("sample")["dog"]
    shining, relit, half = (
        unswayed.edit(dog, background=background, renderer="paste", **more)
        for more in ({}, {"relight": 1}, {"relight": 0.5})
    )
    inside = np.asarray(shining.mask) == 255
    lights = [np.asarray(made.image)[inside].mean() for made in (shining, half, relit)]
    assert lights[0] > 1.3 * lights[1] > 1.3 * lights[2]
    before, after, outside = np.asarray(shining.image), np.asarray(relit.image), np.asarray(relit.mask) == 0
    assert np.array_equal(after[outside], before[outside])
    red, _, blue = after[inside].mean(axis=0) / before[inside].mean(axis=0)
    assert blue > 1.15 * red, "the light of a blue street is blue"


def test_relight_follows_the_weather_before_it_and_not_the_one_after_it() -> None:
    photograph, rng, pool = Composition.of(scene()), np.random.default_rng(0), Pool((), sample_scene, SIDE)

    def light(*edits: tuple[str, dict[str, object]]) -> float:
        composition = photograph
        for name, parameters in edits:
            composition = make_edit(name, **parameters).apply(composition, rng, pool)
        made = realize(composition, Own(), 0)
        return float(made.object[made.alpha == 1].mean())

    night, relight = ("night", {"severity": 4, "where": "background"}), ("relight", {})
    assert light(night, relight) < 0.6 * light()
    assert light(relight, night) == pytest.approx(light(), abs=1)
