"""The smallest change that changes a prediction: between what held and what did not, in words that claim no more."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from PIL import Image

from unswayed.edits import in_order, make_edit
from unswayed.edits.edit import Range
from unswayed.errors import UserError
from unswayed.evaluation.fragility import (
    HALVED,
    SCANNED,
    change_strip,
    directions,
    find_smallest,
    fragility,
    fragility_profile,
    gif,
    predictor,
    subject_of,
)
from unswayed.models.opening import open_model
from unswayed.rendering.photograph import Request
from unswayed.sources import open_source
from unswayed.views.app.films import swept_film


@pytest.fixture(scope="module")
def model():
    return predictor(open_model("lite:0"))


def subject(name: str, **settings):
    return subject_of(Request((), renderer="paste", **settings), open_source("sample")[name])


@pytest.fixture(scope="module")
def smaller(model):
    return find_smallest(subject("koala"), model, directions()["object smaller"])


@pytest.mark.parametrize("name", directions())
def test_every_direction_stays_in_its_declared_range_and_moves_outwards(name):
    direction = directions()[name]
    assert isinstance(direction.range, Range)
    neutral = direction.neutral(0.3)
    levels = direction.levels(neutral, SCANNED)
    assert len(levels) == SCANNED
    assert all(direction.range.low <= level <= direction.range.high for level in levels)
    shares = [direction.share(level, neutral) for level in levels]
    assert shares == pytest.approx([place / SCANNED for place in range(1, SCANNED + 1)], abs=0.01)


def test_the_turn_lies_between_a_level_that_held_and_one_that_did_not(smaller):
    answers = {still.level: still.name for still in smaller.strip.stills}
    assert smaller.strip.before.name == "koala"
    assert answers[smaller.turn.level] == smaller.turn.name != "koala"
    assert answers[smaller.held] == "koala"
    assert smaller.turn.level < smaller.held
    assert smaller.held / smaller.turn.level < 1.1
    assert smaller.tried <= SCANNED + HALVED
    assert smaller.turn.image.shape == (256, 256, 3)
    assert 0 < smaller.share < 1
    assert "may also change at smaller levels that were not tried" in smaller.sentence


def test_an_answer_that_holds_is_not_called_safe(model):
    steps: list[int] = []
    found = find_smallest(
        subject("polar_bear"),
        model,
        directions()["object's hue turned"],
        progress=lambda done, _: steps.append(done),
    )
    assert found.turn is None
    assert found.share is None
    assert "may still change it" in found.sentence
    assert steps == list(range(1, SCANNED + 1))


def test_what_removal_alone_does_is_not_put_down_to_the_attribute(smaller):
    assert smaller.control is None
    assert "alone is not the cause" not in smaller.sentence
    turned = replace(smaller, control="indri")
    assert "already changes it to “indri”, so this attribute alone is not the cause" in turned.sentence


def test_levels_that_cannot_be_made_are_said(model):
    found = find_smallest(subject("jaguar"), model, directions()["object larger"])
    assert found.tried == 0
    assert found.sentence.startswith("No level was possible: the edit is not possible for jaguar")


@pytest.mark.parametrize(("name", "rate"), [("object smaller", 0.005), ("object larger", 1.0)])
def test_an_object_beyond_the_end_of_a_change_is_not_changed_the_other_way(name, rate, model):
    base = replace(subject("koala"), rate=rate)
    found = find_smallest(base, model, directions()[name])
    assert (found.tried, found.turn) == (0, None)
    covers = f"the object covers {100 * rate:g} % of the picture and “{name}” ends at"
    assert found.short.startswith(f"not possible: {covers}")
    assert found.sentence.startswith("No level was possible: the object covers")
    strip = change_strip(base, model, directions()[name], count=3)
    assert len(strip.stills) == 1 and strip.impossible is not None
    film = swept_film(strip, model.name)
    assert "No level was possible: the object covers" in film and "another one at" not in film


def test_the_other_edits_stay_and_keep_their_order(model):
    seen = []
    base = subject("koala")
    watched = replace(base, make=lambda chain: (seen.append(chain), base.make(chain))[1])
    chain = (make_edit("lighting", stops=-1.0), make_edit("size", rate=0.1))
    assert [edit.name for edit in in_order(chain)] == ["size", "lighting"]
    strip = change_strip(watched, model, directions()["object darker"], chain, count=2)
    assert [[edit.name for edit in one] for one in seen] == [["size"], ["size", "lighting"], ["size", "lighting"]]
    assert [one[1].stops for one in seen[1:]] == [-2.5, -5.0]
    assert [still.level for still in strip.stills] == [0.0, -2.5, -5.0]
    # What is kept is the prediction for the chain, not the one for the photograph.
    assert strip.before.kept == strip.before.probability
    assert strip.before.image is not base.make(())


def test_a_profile_has_every_change_and_model_and_makes_shared_pictures_once():
    models = [predictor(open_model(name)) for name in ("lite:0", "lite:1")]
    base, made = subject("koala"), []
    counted = replace(base, make=lambda chain: (made.append(chain), base.make(chain))[1])
    chosen = [directions()[name] for name in ("object blurred", "object darker")]
    found = list(fragility_profile(counted, models, chosen))
    assert [(one.direction.name, one.model) for one in found] == [
        (name, model) for name in ("object blurred", "object darker") for model in ("lite:0", "lite:1")
    ]
    assert len(made) < sum(one.tried + 1 for one in found)
    assert len(set(made[1:])) >= len(made) - 2  # only the photograph is made once for each change
    alone = find_smallest(base, models[1], chosen[0])
    assert found[1].turn.level == alone.turn.level


def test_fragility_in_python_names_changes_and_refuses_unknown_ones():
    scene = open_source("sample")["koala"]
    done: list[tuple[int, int]] = []
    [found] = fragility(scene, changes=["object blurred"], progress=lambda *counts: done.append(counts))
    assert (found.model, found.strip.before.name, done) == ("lite:0", "koala", [(1, 1)])
    with pytest.raises(UserError, match="object small"):
        fragility(scene, changes=["object small"])


def test_a_gif_has_one_frame_per_picture_and_shows_the_pictures(smaller):
    with Image.open(io.BytesIO(gif(smaller.strip))) as film:
        assert film.n_frames == len(smaller.strip.stills)
        assert film.info["loop"] == 0
        for place, still in enumerate(smaller.strip.stills):
            film.seek(place)
            shown = film.convert("RGB").crop((0, 0, 256, 256)).resize((8, 8))
            real = Image.fromarray(still.image).resize((8, 8))
            off = [abs(a - b) for a, b in zip(shown.tobytes(), real.tobytes(), strict=True)]
            assert sum(off) / len(off) < 6, place
