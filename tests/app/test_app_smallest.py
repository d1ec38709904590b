"""The smallest change that turns an answer: found between what held and what did not, in words that claim no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unfazed.app.photographs import open_sample
from unfazed.app.smallest import HALVED, SCANNED, directions, find_smallest, scan_levels
from unfazed.app.studio import Studio
from unfazed.edits import in_order, make_edit
from unfazed.edits.parameters import Range
from unfazed.errors import UserError


@pytest.fixture(scope="module")
def studio():
    return Studio(["lite:0"])


@pytest.mark.parametrize("name", directions())
def test_every_direction_stays_in_its_declared_range_and_moves_outwards(name):
    direction = directions()[name]
    assert isinstance(direction.range, Range)
    neutral = 0.3 if direction.change.neutral is None else direction.change.neutral
    levels = scan_levels(direction, neutral)
    assert len(levels) == SCANNED
    assert all(direction.range.low <= level <= direction.range.high for level in levels)
    distances = [abs(level - neutral) for level in levels]
    assert distances == sorted(distances)
    assert distances[0] > 0


def test_the_turn_lies_between_a_level_that_held_and_one_that_did_not(studio):
    steps: list[int] = []
    found = find_smallest(
        studio,
        "lite:0",
        open_sample("koala"),
        directions()["object smaller"],
        progress=lambda done, _: steps.append(done),
    )
    answers = dict(found.tried)
    assert found.before == "koala"
    assert answers[found.level] == found.after != "koala"
    assert answers[found.held] == "koala"
    assert found.level < found.held
    assert found.held / found.level < 1.1
    assert len(found.tried) <= SCANNED + HALVED
    assert found.picture.shape == (256, 256, 3)
    assert "may also change at smaller levels that were not tried" in found.sentence
    assert steps == sorted(steps)


def test_an_answer_that_holds_is_not_called_safe(studio):
    found = find_smallest(studio, "lite:0", open_sample("polar_bear"), directions()["object's hue turned"])
    assert found.level is None
    assert "may still change it" in found.sentence


def test_what_removal_alone_does_is_not_put_down_to_the_attribute(studio):
    found = find_smallest(studio, "lite:0", open_sample("koala"), directions()["object smaller"])
    assert found.control is None
    assert "alone is not the cause" not in found.sentence
    turned = replace(found, control="indri")
    assert "already changes it to “indri”, so this attribute alone is not the cause" in turned.sentence


def test_levels_that_cannot_be_made_are_said(studio):
    found = find_smallest(studio, "lite:0", open_sample("cat"), directions()["object larger"])
    assert found.tried == ()
    assert found.sentence.startswith("No level was possible: the edit is not possible for cat")


def test_the_other_edits_stay_and_keep_their_order(studio):
    chain = (make_edit("lighting", stops=-1.0), make_edit("size", rate=0.1))
    assert [edit.name for edit in in_order(chain)] == ["size", "lighting"]
    with pytest.raises(UserError, match="cannot be pasted"):
        find_smallest(
            studio,
            "lite:0",
            open_sample("koala"),
            directions()["object darker"],
            (make_edit("background", kind="simple"),),
        )
