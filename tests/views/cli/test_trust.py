"""Names that are read from a file never run code and never use the network, unless the user trusts the file."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from command_line import refusal, run_cli
from report_world import make_benchmark, make_predictions
from unswayed.errors import UserError
from unswayed.models import open_model

DOG = Path(str(resources.files("unswayed.data").joinpath("sample"))) / "dog.jpg"


@pytest.fixture
def payload(tmp_path: Path) -> tuple[str, Path]:
    """The name of a model whose code leaves a mark when it runs, and the mark."""
    mark = tmp_path / "the-code-ran"
    (tmp_path / "payload.py").write_text(f"open({str(mark)!r}, 'w')\ndef model():\n    raise ValueError('it ran')\n")
    return f"python:{tmp_path / 'payload.py'}:model", mark


@pytest.mark.parametrize("where", ["column", "card", "alias", "card of a head"])
def test_a_report_runs_no_code_that_predictions_name(tmp_path: Path, payload: tuple[str, Path], where: str) -> None:
    name, mark = payload
    (tmp_path / "head.json").write_text(json.dumps({"base": name}))
    named = {
        "column": name,
        "card": "harmless",
        "alias": f"harmless={name}",
        "card of a head": f"head:{tmp_path}?trust=yes",
    }[where]
    bench = make_benchmark(tmp_path / "bench", 12, ["a", "b"], side=16)
    folder = make_predictions(tmp_path / "predictions", bench, [named], ["a", "b"])
    if where == "card":
        card = json.loads((folder / "model00.json").read_text())
        (folder / "model00.json").write_text(json.dumps({**card, "spec": name}))
    arguments = ("report", folder, "-o", tmp_path / "r.html", "--flips", 2, "--heat-maps", 1, "--resamples", 20)
    done = run_cli(*arguments)
    if where == "card of a head":
        assert done.exit_code == 0, done.output
        assert "which was not opened because that can run code or use the network" in done.stderr
    else:  # before anything is read or written
        refusal(done, "which is a program: heat maps would run it")
        assert not (tmp_path / "r.html").exists()
    assert not mark.exists()
    if where == "column":
        assert "it ran" in run_cli(*arguments, "--trust").stderr
        assert mark.exists()


def test_a_head_follows_a_name_in_its_card_only_if_the_folder_is_trusted(
    tmp_path: Path, payload: tuple[str, Path]
) -> None:
    name, mark = payload
    card = {"base": name, "base_weights_sha256": "0", "labels": {}}
    (tmp_path / "head.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match=r"can run code.*\n.*\n.*head:.*\?trust=yes"):
        open_model(f"head:{tmp_path}")
    (tmp_path / "head.json").write_text(json.dumps({**card, "base": f"x=head:{tmp_path}?trust=yes"}))
    with pytest.raises(UserError, match="can run code"):
        open_model(f"head:{tmp_path}")
    assert not mark.exists()
    (tmp_path / "head.json").write_text(json.dumps({"base": name, "base_weights_sha256": "0", "labels": {}}))
    with pytest.raises(UserError, match="it ran"):
        open_model(f"head:{tmp_path}?trust=yes")
    assert mark.exists()


def test_a_folder_with_the_name_of_an_option_hides_no_trust(tmp_path: Path, payload: tuple[str, Path]) -> None:
    name, mark = payload
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "head.json").write_text(json.dumps({"base": name, "base_weights_sha256": "0", "labels": {}}))
    (tmp_path / "evil?trust=yes+tencrop").mkdir()
    for named in ("evil?trust=yes+tencrop", "evil?trust=yes", "evil+tencrop"):
        with pytest.raises(UserError, match="can run code|does not"):
            open_model(f"head:{tmp_path / named}", trust=False)
    assert not mark.exists()


def test_a_replay_opens_a_guide_with_code_only_if_the_record_is_trusted(
    tmp_path: Path, payload: tuple[str, Path]
) -> None:
    name, mark = payload
    out = tmp_path / "out.png"
    assert (
        run_cli("edit", DOG, "--box", "60,40,300,300", "--size", 0.1, "--renderer", "paste", "-o", out).exit_code == 0
    )
    record = json.loads(out.with_suffix(".json").read_text())
    request = record["request"]
    again = ("edit", "--replay", tmp_path / "evil.json", "-o", tmp_path / "again.png")
    for change in (
        {"renderer": "diffusion", "options": {"guide": name}},
        {"renderer": "diffusion", "options": {"guide": f"lite:0,{name}"}},
        {"renderer": "diffusion", "options": {"guide": "timm:hf-hub:someone/something"}},
        {"pool": f"oxford-pet:{tmp_path}/pets?download=yes"},
        {"pool": f"folder:{tmp_path}?segment=transformers:someone/something"},
        {"pool": "folder:s3://someone/pictures"},
    ):
        (tmp_path / "evil.json").write_text(json.dumps({**record, "request": {**request, **change}}))
        refused = run_cli(*again)
        refusal(refused, "--trust")
    assert not mark.exists()
    changed = {"renderer": "diffusion", "options": {"guide": name, "steps": 2}, "label": 207}
    changed |= {"chain": [{"edit": "background", "kind": "adversarial"}]}
    (tmp_path / "evil.json").write_text(json.dumps({**record, "request": {**request, **changed}}))
    trusted = run_cli(*again, "--trust")
    refusal(trusted, "it ran")


def test_a_folder_for_transformers_that_brings_code_is_refused_without_a_question(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    mark = tmp_path / "the-code-ran"
    (tmp_path / "configuration_evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass EvilConfig: pass\n")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "configuration_evil.EvilConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="could not be loaded"):
        open_model(f"transformers:{tmp_path}")
    assert not mark.exists()
