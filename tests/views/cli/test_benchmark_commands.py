"""build, verify, import, edit and status as a user runs them: exit codes, JSON, errors in words, help that teaches."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from PIL import Image

from command_line import run_cli

SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    root = tmp_path_factory.mktemp("cli") / "bench"
    done = run_cli("build", "sample", "-o", root, "--renderer", "paste", "--recipe", "original,size-0.1", "--limit", 2)
    assert done.exit_code == 0, done.stderr
    assert "2 scenes, 8 ok, 0 skipped, 0 failed" in done.stdout
    return root


def test_help_is_quick_because_it_imports_nothing_heavy():
    code = "import sys, typer.testing; from unswayed.views.cli import build_app\n"
    code += "done = typer.testing.CliRunner().invoke(build_app(), ['--help']); assert 'evaluate' in done.stdout\n"
    code += "print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "unswayed.views.cli.help" in loaded
    assert not {"numpy", "torch", "cv2", "pyarrow", "PIL", "rich", "unswayed.views.cli.benchmarks"} & set(loaded)


@pytest.mark.parametrize("command", ["build", "verify", "import", "edit", "status"])
def test_help_teaches_by_example(command):
    done = run_cli(command, "--help")
    assert done.exit_code == 0
    assert f"unswayed {command} " in done.stdout.replace("Usage: unswayed", "")
    assert "Exit codes" in done.stdout


def test_verify_speaks_json_and_names_the_changed_file(bench):
    done = run_cli("verify", bench, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) | {"benchmark": ""} == {
        "benchmark": "",
        "passed": True,
        "rows": 8,
        "files": 14,
        "ok": 8,
        "skipped": 0,
        "failed": 0,
        "problems": [],
    }
    path = bench / "images/size-0.1/cat.png"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    done = run_cli("verify", bench)
    path.write_bytes(whole)
    assert done.exit_code == 1
    assert "images/size-0.1/cat.png: is not the file that was written" in done.stdout


def test_one_reason_of_many_failures_is_printed_once(tmp_path):
    for number in range(6):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / f"photos/{number}.jpg")
    Image.new("L", (20, 20), 255).save(tmp_path / "photos/5_mask.png")
    (tmp_path / "photos/5.jpg").write_bytes(b"no picture")
    done = run_cli("build", f"folder:{tmp_path / 'photos'}", "-o", tmp_path / "b", "--renderer", "paste")
    first, second = [one for one in done.stderr.splitlines() if "failed:" in one]
    assert done.exit_code == 4 and first.startswith("failed: 5 scenes, such as 0: there is no mask for it")
    assert second.startswith("failed: 5: ") and "text" in second


def test_status_says_how_it_stands(bench, tmp_path):
    answer = json.loads(run_cli("status", bench, "--json").stdout)
    assert (answer["done"], answer["total"], answer["finished"], answer["running"]) == (2, 2, True, False)
    assert "2 of 2 scenes, 8 ok" in run_cli("status", bench).stdout
    assert run_cli("status", tmp_path).exit_code == 2


def test_the_same_command_again_makes_nothing_new(bench):
    again = ("build", "sample", "-o", bench, "--renderer", "paste", "--recipe", "original,size-0.1", "--limit", 2)
    assert json.loads(run_cli(*again, "--json").stdout)["made"] == 0
    other = run_cli(*again, "--seed", 1)
    assert other.exit_code == 2
    assert "contains another benchmark" in other.stderr
    assert "seed: 0 there, 1 now" in other.stderr
    assert "Traceback" not in other.stderr


def test_edit_writes_three_files_and_replays(tmp_path):
    out = tmp_path / "out.png"
    options = ("--mask", SAMPLE / "dog.png", "--size", 0.05, "--position", "0,1", "--renderer", "paste", "-o", out)
    done = run_cli("edit", SAMPLE / "dog.jpg", *options, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["pixel_rate"] == pytest.approx(0.05, abs=0.002)
    again = run_cli("edit", "--replay", tmp_path / "out.json", "-o", tmp_path / "again.png")
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "again.png").read_bytes() == out.read_bytes()
    assert (tmp_path / "again.mask.png").read_bytes() == (tmp_path / "out.mask.png").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("edit", "dog.jpg", "--size", "0.1"), "the file does not exist"),
        (("edit", "--size", "0.1"), "no photograph is given"),
        (("edit", "dog.jpg"), "no edit is given"),
        (("edit", "dog.jpg", "--size", "7"), "0.001 to 1"),
        (("edit", "dog.jpg", "--size", "0.1", "--box", "1,2"), "X,Y,W,H"),
        (("edit", "dog.jpg", "--edit", "sise=0.1"), "did you mean 'size'"),
        (("verify", "nowhere"), "is not a benchmark"),
        (("import", "nowhere", "-o", "bench"), "does not exist"),
        (("build", "sampel", "-o", "bench"), "did you mean 'sample'"),
        (("build", "folder:nowhere", "-o", "bench"), "nowhere does not exist"),
        (("build", "sample", "-o", "bench", "--recipe", "imagenet-f"), "did you mean 'imagenet-e'"),
    ],
)
def test_mistakes_exit_with_2_and_say_what_to_do(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = run_cli(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("bench/*"))


def test_import_of_a_small_release(tmp_path):
    root = tmp_path / "ImageNet-E"
    for folder in ("ori", "005"):
        (root / folder).mkdir(parents=True)
        (root / folder / "ILSVRC2012_val_00000001.JPEG").write_bytes((SAMPLE / "dog.jpg").read_bytes())
    (root / "labels.txt").write_text("ILSVRC2012_val_00000001.JPEG\t207\n")
    done = run_cli("import", root, "-o", tmp_path / "bench", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["edits"] == ["original", "size-0.05"]
    (root / "labels.txt").write_text("ILSVRC2012_val_00000002.JPEG\t207\n")
    unlabelled = run_cli("import", root, "-o", tmp_path / "other")
    assert unlabelled.exit_code == 4
    assert "no line for ILSVRC2012_val_00000001" in unlabelled.stderr
