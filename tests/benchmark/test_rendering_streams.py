"""Batches that mix sources give what single sources give, and one bad picture costs itself alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from unswayed.benchmark import BuildSettings, build
from unswayed.benchmark.plan import Plan
from unswayed.benchmark.prepare import Preparation
from unswayed.benchmark.render import render_safely, render_stream
from unswayed.benchmark.rows import read_rows
from unswayed.edits.recipes import open_recipe
from unswayed.errors import UserError
from unswayed.rendering.layers import Paste, Refused, Rendered
from unswayed.sources import open_source

RECIPE = "original,size-0.1,position,background-random"


class Recording(Paste):
    """Pastes, and keeps how many pictures it was given at a time."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "batches", [])

    def render(self, batch):
        self.batches.append(len(batch))
        return super().render(batch)


class Moody(Paste):
    """Pastes, but gives up on a whole batch when the picture with a given seed is in it."""

    def __init__(self, seed: int, error: Exception) -> None:
        super().__init__()
        object.__setattr__(self, "trouble", (seed, error))

    def render(self, batch):
        seed, error = self.trouble
        if any(layers.seed == seed for layers in batch):
            raise error
        return super().render(batch)


@pytest.fixture
def source(drawn_folder):
    return open_source(f"folder:{drawn_folder('photos', 5)}")


def plan_of(root: Path, source) -> Plan:
    return Plan(root, source, open_recipe(RECIPE), BuildSettings(renderer="paste", size=64, seed=3))


@pytest.mark.parametrize("group", [1, 7, 1000])
def test_any_grouping_gives_the_same_files(source, tmp_path, tree, group):
    build(source, tmp_path / "reference", BuildSettings(recipe=RECIPE, renderer="paste", size=64, seed=3))
    plan, renderer = plan_of(tmp_path / "streamed", source), Recording()
    prepared = (Preparation(plan)(one) for one in source.ids)
    done = [summary.source_id for summary in render_stream(plan.root, renderer, group, prepared)]
    assert sorted(done) == sorted(source.ids)
    whole, rest = divmod(sum(renderer.batches), group)
    assert renderer.batches == [group] * whole + [rest] * (rest > 0)
    for folder in ("images", "masks", "rows"):
        assert tree(tmp_path / "streamed" / folder) == tree(tmp_path / "reference" / folder)


def test_a_picture_that_cannot_be_rendered_costs_itself_alone(source, tmp_path):
    plan = plan_of(tmp_path / "b", source)
    bad = next(row.seed for _, row in plan.pictures(source.ids[2]) if row.edit == "size-0.1")
    prepared = (Preparation(plan)(one) for one in source.ids)
    summaries = list(render_stream(plan.root, Moody(bad, RuntimeError("numbers overflow")), 8, prepared))
    assert sum(summary.counts["failed"] for summary in summaries) == 1
    [failed] = [row for row in read_rows(plan.root, source.ids[2]) if row.status == "failed"]
    assert (failed.edit, failed.reason, failed.path) == ("size-0.1", "RuntimeError: numbers overflow", None)


def test_a_renderers_user_error_ends_the_run(source, tmp_path):
    plan = plan_of(tmp_path / "b", source)
    bad = next(row.seed for _, row in plan.pictures(source.ids[1]))
    prepared = (Preparation(plan)(one) for one in source.ids)
    with pytest.raises(UserError, match="out of memory"):
        list(render_stream(plan.root, Moody(bad, UserError("out of memory with one picture")), 4, prepared))


def test_refusals_pass_through(source, tmp_path):
    prepared = Preparation(plan_of(tmp_path / "b", source))(source.ids[0])
    answers = render_safely(Paste(), [picture for picture in prepared.pictures if picture.layers is not None])
    assert {type(answer) for answer in answers} == {Rendered, Refused}
    assert all(answer.status == "skipped" for answer in answers if isinstance(answer, Refused))


def test_preparing_never_raises_for_a_bad_source(drawn_folder, tmp_path):
    folder = drawn_folder("photos", 2)
    (folder / "images/class0/0000.jpg").write_bytes(b"")
    plan = plan_of(tmp_path / "b", open_source(f"folder:{folder}"))
    prepared = Preparation(plan)("class0--0000")
    rows = [picture.row for picture in prepared.pictures]
    assert {row.status for row in rows} == {"failed"}
    assert {row.reason for row in rows} == {rows[0].reason}
    assert "the file is empty" in rows[0].reason
    assert len(rows) == 1 + len(plan.recipe.items)
