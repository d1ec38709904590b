"""A renderer that serves several workers gives what single sources give, and one bad picture costs itself alone."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from unswayed.benchmark import BuildSettings
from unswayed.benchmark.plan import Plan
from unswayed.benchmark.prepare import Preparation
from unswayed.benchmark.render import SourceBuilder, through_network
from unswayed.benchmark.rows import finished_sources, read_rows
from unswayed.benchmark.serving import render_safely
from unswayed.edits.recipes import open_recipe
from unswayed.errors import UserError
from unswayed.rendering.layers import Paste, Refusal, Rendering
from unswayed.rendering.removal.patches import PatchRemoval
from unswayed.sources import open_source

RECIPE = "original,size-0.1,position,background-random"


class Served(Paste):
    """Pastes what workers send, also where a network would draw."""

    def __init__(self, trouble: tuple[int, Exception] | None = None) -> None:
        super().__init__()
        object.__setattr__(self, "trouble", trouble)
        object.__setattr__(self, "seeds", [])

    def render(self, batch):
        for layers in batch:
            self.seeds.append(layers.seed)
            if self.trouble is not None and layers.seed == self.trouble[0]:
                raise self.trouble[1]
        return super().render(batch)

    def describe(self):
        return {**super().describe(), "renderer": "served"}


class Streamed(Served):
    """The same as a stream that holds two pictures at a time."""

    def passes(self, start, regenerated=False):
        return 1

    def stream(self, take, on_passes=None):
        while taken := [item for item in (take(), take()) if item is not None]:
            yield from zip([key for key, _ in taken], self.render([layers for _, layers in taken]), strict=True)


@pytest.fixture
def source(drawn_folder):
    return open_source(f"folder:{drawn_folder('photos', 5)}")


def plan_of(root: Path, source, **more) -> Plan:
    return Plan(root, source, open_recipe(RECIPE), BuildSettings(renderer="paste", size=64, seed=3, **more))


@pytest.mark.parametrize("kind", [Served, Streamed])
@pytest.mark.parametrize("workers", [1, 3, None])
def test_what_several_workers_get_rendered_is_what_one_process_makes(
    source, tmp_path, tree, kind, workers, monkeypatch
):
    if workers is None:  # as on Windows, whose Python has no such sockets
        monkeypatch.delattr(socket, "AF_UNIX")
        monkeypatch.delattr(os, "nice")
    for source_id in source.ids:
        SourceBuilder(plan_of(tmp_path / "alone", source))(source_id)
    plan, renderer = plan_of(tmp_path / "served", source, workers=workers), kind()
    done = list(through_network(plan, renderer, PatchRemoval(), source.ids))
    assert sorted(summary.source_id for summary in done) == sorted(source.ids)
    # Only pictures whose background is blended, so that they start with noise, are sent to another process.
    rows = [row for source_id in source.ids for row in read_rows(plan.root, source_id) if row.status == "ok"]
    sent = [row.seed for row in rows if row.edit not in (("source", "original") if workers else ("source",))]
    assert sorted(renderer.seeds) == sorted(sent)
    for folder in ("masks", "rows"):
        assert tree(tmp_path / "served" / folder).keys() == tree(tmp_path / "alone" / folder).keys()
    for name, data in tree(tmp_path / "served" / "images").items():
        if not name.startswith("original"):  # which is pasted without a feather, as a network does
            assert data == tree(tmp_path / "alone" / "images")[name]


@pytest.mark.parametrize("kind", [Served, Streamed])
def test_a_picture_that_cannot_be_rendered_costs_itself_alone(source, tmp_path, kind):
    plan = plan_of(tmp_path / "b", source)
    bad = next(row.seed for _, row in plan.pictures(source.ids[2]) if row.edit == "size-0.1")
    renderer = kind((bad, RuntimeError("numbers overflow")))
    summaries = list(through_network(plan, renderer, PatchRemoval(), source.ids))
    assert sum(summary.counts["failed"] for summary in summaries) == 1
    [failed] = [row for row in read_rows(plan.root, source.ids[2]) if row.status == "failed"]
    assert (failed.edit, failed.reason, failed.path) == ("size-0.1", "RuntimeError: numbers overflow", None)


def test_a_renderers_user_error_ends_the_run(source, tmp_path):
    plan = plan_of(tmp_path / "b", source)
    bad = next(row.seed for _, row in plan.pictures(source.ids[1]) if row.edit == "position")
    renderer = Streamed((bad, UserError("out of memory with one picture")))
    with pytest.raises(UserError, match="out of memory"):
        list(through_network(plan, renderer, PatchRemoval(), source.ids))
    assert not any(row.status == "failed" for source_id in finished_sources(plan.root) for row in
                   read_rows(plan.root, source_id))  # fmt: skip


class Batched:
    """A removal like that of a network, which the renderer's process does for all workers."""

    name = "batched"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def remove(self, images, masks, seeds):
        self.asked += seeds
        return [np.full_like(image, seed % 256) for image, seed in zip(images, seeds, strict=True)]


def test_the_process_of_the_renderer_also_removes_objects(source, tmp_path):
    plan, removal = plan_of(tmp_path / "b", source, workers=2), Batched()
    list(through_network(plan, Served(), removal, source.ids))
    assert len(set(removal.asked)) == len(source.ids)
    assert not [row for source_id in source.ids for row in read_rows(plan.root, source_id) if row.status == "failed"]


def test_refusals_pass_through(source, tmp_path):
    settings = BuildSettings(removal="patches", size=64)  # for a network, so that every edit is composed
    prepared = Preparation(Plan(tmp_path / "b", source, open_recipe(RECIPE), settings))(source.ids[0])
    answers = render_safely(Paste(), [picture.layers for picture in prepared if picture.layers is not None])
    assert {type(answer) for answer in answers} == {Rendering, Refusal}
    assert all(answer.status == "skipped" for answer in answers if isinstance(answer, Refusal))


def test_preparing_never_raises_for_a_bad_source(drawn_folder, tmp_path):
    folder = drawn_folder("photos", 2)
    (folder / "images/class0/0000.jpg").write_bytes(b"")
    plan = plan_of(tmp_path / "b", open_source(f"folder:{folder}"))
    prepared = Preparation(plan)("class0--0000")
    rows = [picture.row for picture in prepared]
    assert {row.status for row in rows} == {"failed"}
    assert {row.reason for row in rows} == {rows[0].reason}
    assert "the file is empty" in rows[0].reason
    assert len(rows) == 1 + len(plan.recipe.items)


def test_a_service_leaves_no_thread_and_no_open_file(source, tmp_path):
    def held() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    list(through_network(plan_of(tmp_path / "warm", source), Streamed(), PatchRemoval(), source.ids))
    before = held()
    for name in ("one", "two", "three"):
        list(through_network(plan_of(tmp_path / name, source), Streamed(), PatchRemoval(), source.ids))
    for _ in range(100):  # threads of closed connections need a moment
        if held() <= before:
            break
        time.sleep(0.05)
    assert held() <= before
