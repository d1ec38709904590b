"""The engine `ray` on a real cluster of two nodes: the same outcomes as local processes, also when a node is lost."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import crew
from command_line import refused
from meeting_source import Meeting
from ray_cluster import two_nodes
from unswayed.benchmark import BuildSettings, build, verify
from unswayed.jobs import EngineSettings, engine_of, run_tasks
from unswayed.sources import open_source


def test_an_address_where_no_cluster_is_is_named() -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with refused(given="no connection to the Ray cluster 127.0.0.1:1: .*refused", run="ray status --ad"):
        run_tasks(crew.double, [1], settings=EngineSettings(engine="ray", address="127.0.0.1:1"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as made:
        yield made


def test_tasks_are_done_on_both_nodes_and_a_deadly_one_is_recorded(cluster: Any, tmp_path: Path) -> None:
    settings = EngineSettings(engine="ray", address=cluster.address)
    outcomes = {one.task: one for one in run_tasks(crew.Fragile((3,)), range(6), 2, settings)}
    assert {task: one.result for task, one in outcomes.items()} == {0: 0, 1: 1, 2: 2, 3: None, 4: 4, 5: 5}
    assert outcomes[3].failure.startswith("the process that worked on it died twice (")
    assert "ray." not in outcomes[3].failure
    assert "\n" not in outcomes[3].failure
    placed = list(run_tasks(crew.Placed(str(tmp_path)), range(4), 2, settings, devices=["cpu", "cpu:1"]))
    assert {outcome.result[0] for outcome in placed} == {"cpu", "cpu:1"}
    with refused(given="number 0 will not do", allowed="none"):
        list(run_tasks(crew.complain, [0], 1, settings))


def test_a_build_that_loses_a_node_ends_in_the_bytes_of_the_local_engine(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unswayed.jobs.scheduling.TRIES", 1)  # a lost node is not counted as a try
    options: dict[str, Any] = {"recipe": "original,size-0.1", "steps": 2, "limit": 3, "seed": 7}
    build("sample", tmp_path / "local", BuildSettings(device="cpu", **options))
    marks = tmp_path / "marks"
    marks.mkdir()
    source = replace(open_source("sample"), load=Meeting(str(marks)))
    done: list[str] = []

    def kill_a_node(now: Any) -> None:
        if now.summary is None:
            return
        if not done:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        done.append(now.summary.source_id)

    settings = BuildSettings(engine="ray", address=cluster.address, device="cpu,cpu", **options)
    built = build(source, tmp_path / "ray", settings, progress=kill_a_node)
    assert sorted(done) == sorted(open_source("sample").ids[:3])  # nothing lost, nothing twice
    assert (built.made, built.failures) == (3, {})
    assert tree(tmp_path / "ray") == tree(tmp_path / "local")
    assert verify(tmp_path / "ray").passed
    assert len(list(marks.iterdir())) >= 2  # both nodes had begun


def test_actors_share_the_gpus_of_a_cluster_and_the_cores_of_their_node(tmp_path: Path) -> None:
    with two_nodes(cpus=3, gpus=1) as with_gpus:
        settings = EngineSettings(engine="ray", address=with_gpus.address, per_gpu=2)
        engine = engine_of(settings)
        places = engine.places(settings)
        assert places == ["cuda"] * 4
        assert engine.on_a_machine(settings, places) == 2  # not 4: each node has its own cores
        outcomes = list(run_tasks(crew.OnRay(str(tmp_path), 4), range(4), settings=settings, devices=places))
        found = Counter((device, node, *gpus) for device, node, gpus in (outcome.result for outcome in outcomes))
        assert sorted(found.values()) == [2, 2]  # two actors on the one GPU of each node
        assert {(device, gpu) for device, _, gpu in found} == {("cuda", 0)}
        cpus = replace(settings, device="cpu,cpu")
        assert (engine.places(cpus), engine.on_a_machine(cpus, engine.places(cpus))) == (["cpu", "cpu"], 2)


def tree(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }
