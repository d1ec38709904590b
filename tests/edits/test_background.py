from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import refused
from drawn_scenes import ALONE, SAMPLE, SAMPLE_IDS, sample_scene
from unswayed.edits import make_edit, parse_edit
from unswayed.edits.background import GENERATED, KINDS
from unswayed.edits.composition import (
    Composition,
    Drawing,
    Guidance,
    Impossible,
    Original,
    Picture,
    Pool,
    WithoutObject,
)
from unswayed.errors import BadPicture, UserError
from unswayed.scene import Scene


def applied(edit: object, pool: Pool = SAMPLE, seed: int = 0) -> Composition:
    return edit.apply(Composition.of(sample_scene("dog")), np.random.default_rng(seed), pool)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "guidance"),
    [
        ("inversion", None),
        ("simple", Guidance("complexity", -20.0)),
        ("complex", Guidance("complexity", 20.0)),
        ("adversarial", Guidance("adversarial", 20.0)),
    ],
)
def test_generated_backgrounds_start_from_the_photograph_and_need_a_network(kind: str, guidance: Guidance) -> None:
    composition = applied(make_edit("background", kind=kind))
    assert composition.background == Original()
    assert composition.start == 0.5
    assert composition.guidance == guidance
    assert kind in str(composition.needs_network)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (*GENERATED, "picture", "words")])
def test_replaced_backgrounds_need_no_network(kind: str) -> None:
    composition = applied(make_edit("background", kind=kind))
    assert composition.needs_network is None
    assert composition.guidance is None
    assert isinstance(composition.background, WithoutObject if kind == "random" else Drawing)
    assert composition.start == (0.5 if kind == "random" else 0.25)


def test_random_draws_every_other_scene_and_never_its_own() -> None:
    drawn = {applied(make_edit("background"), seed=seed).requested["from"] for seed in range(300)}
    assert drawn == set(SAMPLE_IDS) - {"dog"}


def test_random_passes_over_scenes_that_cannot_be_read() -> None:
    def load(scene_id: str) -> Scene:
        if scene_id != "cat":
            raise BadPicture(f"{scene_id} is truncated")
        return sample_scene(scene_id)

    for seed in range(20):
        assert applied(make_edit("background"), Pool(SAMPLE_IDS, load), seed).background == WithoutObject("cat")


def test_random_without_another_scene_is_impossible() -> None:
    with pytest.raises(Impossible, match="needs another scene"):
        applied(make_edit("background"), ALONE)


def test_adversarial_without_a_label_is_impossible() -> None:
    scene = sample_scene("dog")
    unlabelled = Composition.of(Scene(scene.id, scene.image, scene.mask, None))
    with pytest.raises(Impossible, match="true label"):
        make_edit("background", kind="adversarial").apply(unlabelled, np.random.default_rng(0), SAMPLE)


def test_text_is_a_kind_a_strength_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "sky.png"
    file.write_bytes(b"any")
    assert parse_edit("background", "simple") == parse_edit("background", "-20")
    assert parse_edit("background", "35").kind == "complex"
    assert parse_edit("background", "0").kind == "inversion"
    assert parse_edit("background", "5", kind="adversarial").strength == 5
    assert applied(parse_edit("background", str(file))).background == Picture(str(file))
    with refused(given=r"there is no background 'beach'", allowed=r"inversion, simple"):
        parse_edit("background", "beach")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kind": "simple", "strength": 20}, "a strength below 0"),
        ({"kind": "complex", "strength": -3}, "a strength above 0"),
        ({"kind": "random", "strength": 3}, "takes no strength"),
        ({"kind": "complex", "strength": 900}, "-200 to 200"),
        ({"kind": "picture"}, "kind picture and a file"),
        ({"kind": "leopart"}, "did you mean 'leopard'"),
        ({"kind": "random", "start": 2}, "0 to 1"),
        ({"knd": "random"}, "did you mean 'kind'"),
    ],
)
def test_contradictions_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_edit("background", **parameters)
