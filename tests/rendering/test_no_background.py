"""Objects that leave no background: what would need one is skipped with its reason, and nobody borrows from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unswayed.benchmark import BuildSettings, build
from unswayed.benchmark.rows import read_rows
from unswayed.edits.composition import Composition, Pool
from unswayed.edits.layers import realize
from unswayed.edits.recipes import open_recipe
from unswayed.errors import UserError
from unswayed.rendering.layers import Backgrounds
from unswayed.rendering.photograph import Request, chain_of, compose
from unswayed.rendering.removal import open_removal
from unswayed.scene import Scene
from unswayed.sources import open_source

SIDE = 256
MARGINS = {"full": 0, "tight": 8, "roomy": 60, "wide": 80, "small": 100}


def scene(name: str) -> Scene:
    """A red square with that margin of noise around it."""
    margin, rng = MARGINS[name], np.random.default_rng(len(name))
    image = rng.integers(90, 160, (SIDE, SIDE, 3), np.uint8)
    mask = np.zeros((SIDE, SIDE), np.float32)
    mask[margin : SIDE - margin, margin : SIDE - margin] = 1
    image[mask > 0] = (200, 30, 30)
    return Scene(name, image, mask, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("margins")
    for name in MARGINS:
        one = scene(name)
        for kind, picture in (("images", one.image), ("masks", (one.mask * 255).astype(np.uint8))):
            (root / kind).mkdir(exist_ok=True)
            Image.fromarray(picture).save(root / kind / f"{name}.png")
    return root


BACKGROUNDS = Backgrounds(Pool(tuple(MARGINS), scene), open_removal())
WITHOUT = ("inversion", "background-simple", "background-complex", "background-adversarial", "background=checker")


@pytest.mark.parametrize("edit", [*WITHOUT, "background-random", "blur=4", "reinsertion", "size-0.05", "position"])
def test_an_object_that_fills_the_picture_has_no_background_to_change(edit: str) -> None:
    item = open_recipe(edit).items[-1]
    composition = item.compose(scene("full"), np.random.default_rng(0), BACKGROUNDS.pool)
    with pytest.raises(Exception, match=r"no background to change|cannot be removed") as refused:
        realize(composition, BACKGROUNDS, 0)
    assert type(refused.value).__name__ == "Impossible"


@pytest.mark.parametrize("edit", ["original", "lighting=1", "lighting(where=both)=1", "color=40", "occlusion=0.3"])
def test_what_needs_no_background_is_made_of_it_all_the_same(edit: str) -> None:
    item = open_recipe(edit).items[-1]
    composition = item.compose(scene("full"), np.random.default_rng(0), Pool(("roomy",), scene))
    assert realize(composition, BACKGROUNDS, 0).alpha.min() == 1


def test_an_object_that_grows_over_the_whole_picture_is_fine() -> None:
    item = open_recipe("size=largest").items[-1]
    layers = realize(item.compose(scene("wide"), np.random.default_rng(0), BACKGROUNDS.pool), BACKGROUNDS, 0)
    assert (layers.alpha > 0.5).mean() > 0.999


def test_a_thin_margin_still_has_its_own_background_regenerated() -> None:
    item = open_recipe("inversion").items[-1]
    composition = item.compose(scene("tight"), np.random.default_rng(0), BACKGROUNDS.pool)
    assert np.array_equal(realize(composition, BACKGROUNDS, 0).background, scene("tight").image)


def test_a_build_skips_them_and_nobody_borrows_from_them(folder: Path, tmp_path: Path) -> None:
    recipe = "original,background-random,size-0.05,position"
    built = build(f"folder:{folder}", tmp_path / "bench", BuildSettings(recipe=recipe, renderer="paste", runs=6))
    rows = {name: read_rows(built.root, name) for name in open_source(f"folder:{folder}").ids}
    for name in ("full", "tight"):
        # The position edit of the recipe shrinks the object first.
        moved = [row for row in rows[name] if row.edit in ("size-0.05", "position")]
        assert {row.status for row in moved} == {"skipped"}
        assert all("the object cannot be removed" in str(row.reason) for row in moved)
    lenders = {row.values["from"] for its in rows.values() for row in its if "from" in row.values}
    assert lenders == {"roomy", "wide", "small"}
    assert not any(row.status == "failed" for its in rows.values() for row in its)
    controls = ("inversion", "reinsertion")  # which a paste does not make
    others = [row for name in ("roomy", "wide", "small") for row in rows[name] if row.edit not in controls]
    assert {row.status for row in others} == {"ok"}
    assert {row.status for row in rows["tight"] if row.edit == "background-random"} == {"ok"}
    assert {row.status for row in rows["full"] if row.edit == "background-random"} == {"skipped"}


def test_the_draw_among_scenes_that_lend_is_what_it_was(folder: Path, tmp_path: Path) -> None:
    """The first of the same permutation that has a background, so that ordinary benchmarks keep their pictures."""
    built = build(
        f"folder:{folder}",
        tmp_path / "bench",
        BuildSettings(recipe="original,background-random", renderer="paste", runs=4),
    )
    ids = open_source(f"folder:{folder}").ids
    for row in (row for row in read_rows(built.root, "wide") if row.edit == "background-random"):
        others = [one for one in ids if one != "wide"]
        order = [others[place] for place in np.random.default_rng(row.seed).permutation(len(others))]
        assert row.values["from"] == next(one for one in order if one not in ("full", "tight"))


def test_one_photograph_is_refused_in_words(folder: Path) -> None:
    request = Request(chain=chain_of({"size": "0.05"}), renderer="paste")
    with pytest.raises(UserError, match="full: the mask is all white.*and size needs a background"):
        compose(request, scene("full"))
    random = Request(chain=chain_of({"background": "random"}), renderer="paste", pool=f"folder:{folder}")
    borrowed = {compose(Request(**{**vars(random), "seed": n}), scene("roomy"))[0].requested["from"] for n in range(8)}
    assert borrowed and not borrowed & {"full", "tight"}


def test_a_composition_of_its_own_scene_is_not_asked_to_lend() -> None:
    layers = realize(Composition.of(scene("full")), BACKGROUNDS, 0)
    assert np.array_equal(layers.background, scene("full").image)
