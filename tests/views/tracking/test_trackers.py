"""Trackers: what a real MLflow server and W&B's own files hold equals the table of drops; failures end nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from command_line import run_cli
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.benchmark import BuildSettings, build
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings, cards, run_evaluation
from unswayed.registry import declare
from unswayed.views.tracking import RUNS, TRACKERS, chosen_trackers, record


@pytest.fixture(scope="module")
def predictions(tmp_path_factory) -> Path:
    """EfficientNet-Lite0 on six photographs, one of which flips."""
    root = tmp_path_factory.mktemp("tracked")
    recipe = "original,position"
    build(
        "sample", root / "bench", BuildSettings(renderer="paste", seed=7, limit=6, size=160, recipe=recipe, workers=1)
    )
    run_evaluation(root / "bench", ["lite:0"], root / "predictions", EvaluateSettings(device="cpu"))
    return root / "predictions"


@pytest.fixture(autouse=True)
def alone(predictions, monkeypatch):
    """No tracker of the machine is on, and no run of another test is continued."""
    for name in [one for one in os.environ if one.startswith(("MLFLOW_", "WANDB_"))]:
        monkeypatch.delenv(name)
    (predictions / ".tracking.json").unlink(missing_ok=True)


def expected(predictions: Path) -> dict[str, float]:
    """Drops and accuracies of the table, by the names that a tracker gives them."""
    found = {}
    for row in dropped_accuracy(predictions).iter_rows(named=True):
        for name, column in (("drop", "drop"), ("drop_low", "low"), ("drop_high", "high")):
            if row[column] is not None:
                found[f"{name}/{row['edit']}"] = row[column]
        if row["accuracy"] is not None:
            found[f"accuracy/{row['edit']}"] = 100 * row["accuracy"]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real MLflow tracking server on this computer, with SQLite behind it."""
    pytest.importorskip("mlflow", reason="pip install 'unswayed[mlflow]'")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files")]
    with open(folder / "log", "wb") as log:
        # In a group of its own, so that its workers end with it.
        quiet = {**os.environ, "DO_NOT_TRACK": "true"}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=quiet, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


@pytest.mark.slow  # the server takes half a minute to start
def test_an_mlflow_server_holds_the_numbers_of_the_table(server, predictions, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    bench = predictions.parent / "bench"
    evaluated = run_cli("evaluate", bench, "-m", "lite:0", "-o", predictions, code=0)
    assert "recording in mlflow, because MLFLOW_TRACKING_URI is set" in evaluated.stderr
    run_cli("report", predictions, "-o", tmp_path / "report.html", "--heat-maps", 0, "--resamples", 50, code=0)
    import mlflow

    client = mlflow.MlflowClient(server)
    experiment = client.get_experiment_by_name("unswayed")
    [found] = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == "lite:0" and found.info.status == "FINISHED"
    wanted = expected(predictions)
    assert {name: found.data.metrics[name] for name in wanted} == pytest.approx(wanted, abs=1e-9)
    card = cards(predictions)["lite:0"]
    assert found.data.params["weights_sha256"] == card["weights_sha256"]
    assert found.data.params["versions.torch"] == card["versions"]["torch"]
    assert found.data.params["benchmark.identity.sha256"] == card["benchmark"]["identity"]["sha256"]
    files = {one.path for one in client.list_artifacts(found.info.run_id)}
    assert {"report.html", "flips.json"} <= files
    table = client.load_table(experiment.experiment_id, "flips.json", run_ids=[found.info.run_id])
    assert set(table["edit"]) <= {"reinsertion", "position"} and len(table)
    (tmp_path / "down").mkdir()
    local = client.download_artifacts(found.info.run_id, "report.html", str(tmp_path / "down"))
    assert Path(local).read_bytes() == (tmp_path / "report.html").read_bytes()


def test_wandb_offline_holds_the_numbers_of_the_table(predictions, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="pip install 'unswayed[wandb]'")
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    (tmp_path / "report.html").write_text("<p>the report</p>")
    report = tmp_path / "report.html"
    assert record(predictions, {"wandb": TRACKERS.load("wandb")}, report=report) == {"wandb": 1}
    [path] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    stored = DataStore()
    stored.open_for_scan(str(path))
    metrics, config, files = {}, {}, set()
    while (data := stored.scan_data()) is not None:
        entry = wandb_internal_pb2.Record()
        entry.ParseFromString(data)
        metrics |= {"/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in entry.history.item}
        config |= {one.key: json.loads(one.value_json) for one in entry.config.update}
        files |= {one.path for one in entry.artifact.manifest.contents}
    wanted = expected(predictions)
    assert {name: metrics[name] for name in wanted} == pytest.approx(wanted, abs=1e-9)
    assert config["weights_sha256"] == cards(predictions)["lite:0"]["weights_sha256"]
    assert {"report.html", "flips.table.json"} <= files
    assert sum(name.startswith("media/images/") for name in files) >= 2


class Kept:
    """A tracker that keeps everything in memory."""

    runs: dict[str, dict] = {}

    def __init__(self, name, run_id):
        self.run_id = run_id or f"{name}-1"
        self.seen = self.runs.setdefault(self.run_id, {"closed": 0, "files": [], "tables": 0})

    def parameters(self, values):
        self.seen["parameters"] = dict(values)

    def metrics(self, values):
        self.seen["metrics"] = dict(values)
        self.seen["tables"] += 1

    def flips(self, flips):
        self.seen["flips"] = list(flips)

    def file(self, path):
        self.seen["files"].append(path.name)

    def close(self):
        self.seen["closed"] += 1


def test_the_tracker_of_another_package_is_found_and_continued(predictions, monkeypatch, tmp_path):
    point = EntryPoint("kept", f"{__name__}:Kept", "unswayed.trackers")
    monkeypatch.setattr("unswayed.registry._entry_points", lambda group, path: (point,))
    Kept.runs.clear()
    trackers = chosen_trackers(["kept"], pytest.fail)
    record(predictions, trackers)
    (tmp_path / "report.html").write_text("page")
    record(predictions, trackers, report=tmp_path / "report.html")
    [(name, seen)] = Kept.runs.items()
    assert (name, seen["closed"], seen["files"], seen["tables"]) == ("lite:0-1", 2, ["report.html"], 1)
    assert {one: seen["metrics"][one] for one in expected(predictions)} == pytest.approx(expected(predictions))
    assert seen["flips"] and all(isinstance(one.edited, np.ndarray) for one in seen["flips"])
    assert all(one.label != one.predicted for one in seen["flips"])
    assert not any(re.search(r"classes$", key) and len(value) > 400 for key, value in seen["parameters"].items())


def test_other_predictions_of_the_model_are_another_run(predictions):
    opened = []

    def keep(name, run_id):
        opened.append(run_id)
        return Kept(name, run_id)

    record(predictions, {"kept": keep})
    record(predictions, {"kept": keep})
    runs = json.loads((predictions / RUNS).read_text())
    assert runs["kept"]["lite:0"]["predictions"] == cards(predictions)["lite:0"]["fingerprint"]
    runs["kept"]["lite:0"]["predictions"] = "another"
    (predictions / RUNS).write_text(json.dumps(runs))
    record(predictions, {"kept": keep})
    assert opened == [None, "lite:0-1", None]


def test_a_tracker_that_fails_ends_nothing(predictions, monkeypatch):
    class Broken(Kept):
        def metrics(self, values):
            raise ConnectionError("no server")

    def refuses(name, run_id):
        raise OSError("no room")

    lines = []
    Kept.runs.clear()
    done = record(predictions, {"refuses": refuses, "broken": Broken, "kept": Kept}, say=lines.append)
    assert done == {"refuses": 0, "broken": 0, "kept": 1}
    assert lines == [
        "refuses: lite:0 was not recorded: OSError: no room",
        "broken: lite:0 was not recorded: ConnectionError: no server",
    ]


def test_what_the_environment_switches_on_is_said(monkeypatch):
    lines = []
    assert chosen_trackers([], lines.append) == {} and lines == []
    monkeypatch.setenv("WANDB_PROJECT", "birds")
    monkeypatch.setattr("unswayed.errors.find_spec", lambda name: None)
    assert chosen_trackers([], lines.append) == {}
    assert lines == ["WANDB_PROJECT is set, but wandb is not installed: pip install 'unswayed[wandb]'"]
    monkeypatch.setattr("unswayed.errors.find_spec", lambda name: object())
    assert list(chosen_trackers([], lines.append)) == ["wandb"]
    assert lines[1:] == ["recording in wandb, because WANDB_PROJECT is set; --track none turns it off"]
    assert chosen_trackers(["none"], pytest.fail) == {}
    monkeypatch.setattr("unswayed.errors.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'unswayed\[mlflow\]'"):
        chosen_trackers(["mlflow"], pytest.fail)
    with pytest.raises(UserError, match="did you mean 'mlflow'"):
        chosen_trackers(["mlflo"], pytest.fail)


def test_predictions_that_cannot_be_analyzed_end_nothing(tmp_path):
    lines = []
    assert record(tmp_path, {"kept": Kept}, say=lines.append) == {}
    assert lines[0].startswith("nothing was recorded: ")


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_names_its_pip_line(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"pip install 'unswayed\[{name}\]'"):
        chosen_trackers([name], pytest.fail)


@declare(help="keeps runs in memory", facts={"variable": "KEPT_RUNS"})
def open_kept(name, run_id):
    return Kept(name, run_id)


def test_the_variable_that_another_package_declares_switches_its_tracker_on(monkeypatch):
    point = EntryPoint("kept", f"{__name__}:open_kept", "unswayed.trackers")
    broken = EntryPoint("broken", "no_such_module:open", "unswayed.trackers")
    monkeypatch.setattr("unswayed.registry._entry_points", lambda group, path: (point, broken))
    lines = []
    assert chosen_trackers([], lines.append) == {} and lines == []
    monkeypatch.setenv("KEPT_RUNS", "1")
    assert chosen_trackers([], lines.append) == {"kept": open_kept}
    assert lines == ["recording in kept, because KEPT_RUNS is set; --track none turns it off"]
    with pytest.raises(UserError, match="cannot be loaded"):
        chosen_trackers(["broken"], pytest.fail)
