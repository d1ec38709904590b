"""The core without the extras: what needs one names the line that installs it; the report goes without heat maps."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pytest

from command_line import refusal, run_cli
from unswayed.analyses.factors.error_ratios import logistic_regression
from unswayed.errors import UserError
from unswayed.rendering.networks.diffusers_unet import build_unet

COMMANDS = {
    "coco": ("pycocotools", ("build", "coco:annotations.json", "-o", "bench")),
    "studies": ("pytorch_grad_cam", ("sensitivity", "sample", "-m", "lite:0", "--saliency", "layercam", "-o", "out")),
    "app": ("gradio", ("app",)),
}


@pytest.mark.parametrize("extra", COMMANDS)
def test_a_command_names_the_extra_before_it_writes_anything(extra, monkeypatch, tmp_path):
    package, words = COMMANDS[extra]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    refusal(run_cli(*words), f"the package '{package}', which is not installed", run=f"pip install 'unswayed[{extra}]'")
    assert not list(tmp_path.iterdir())


def test_fid_names_its_extra_and_the_rest_is_measured_without_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch_fidelity", None)
    bench = tmp_path / "bench"
    built = run_cli("build", "sample", "-o", bench, "--recipe", "size=0.1", "--limit", 2, "--renderer", "paste")
    assert built.exit_code == 0
    refusal(run_cli("distribution", bench, "-m", "lite:0", "-o", tmp_path / "d"), run="pip install 'unswayed[studies]'")


def test_the_adjusted_table_and_a_network_of_diffusers_name_theirs(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r"pip install 'unswayed\[studies\]'"):
        logistic_regression(np.ones((2, 2)), np.ones(2), np.ones(2))
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(UserError, match=r"pip install 'unswayed\[diffusers\]'"):
        build_unet({"block_out_channels": [32]})


def test_a_report_without_the_library_of_heat_maps_says_so_once(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pytorch_grad_cam", None)
    bench, predictions = tmp_path / "bench", tmp_path / "predictions"
    built = ("build", "sample", "-o", bench, "--recipe", "size=0.02", "--limit", 3, "--renderer", "paste")
    assert run_cli(*built).exit_code == 0
    assert run_cli("evaluate", bench, "-m", "lite:0", "-m", "lite:1", "-o", predictions).exit_code == 0
    done = run_cli("report", predictions, "-o", tmp_path / "report.html")
    assert done.exit_code == 0
    assert done.output.count("No heat maps: this needs the package 'pytorch_grad_cam'") == 1
    assert "pip install 'unswayed[studies]'" in done.output


def test_the_core_imports_no_package_of_an_extra():
    """Every module, with the packages of the extras hidden: only those of the extras' own parts cannot be imported."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = [one for of in project["optional-dependencies"].values() for one in of]
    names, core = (
        {re.match(r"[\w-]+", one)[0].lower() for one in given} for given in (extras, project["dependencies"])
    )
    hidden = [
        module
        for module, packages in packages_distributions().items()
        if {name.lower().replace("_", "-") for name in packages} & (names - core)
    ]
    code = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({hidden!r}))
import unswayed
for module in pkgutil.walk_packages(unswayed.__path__, "unswayed."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        print(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"diffusers", "gradio", "pycocotools", "pytorch_grad_cam", "sklearn"} <= set(hidden)
    own = re.compile(
        r"unswayed\.(views\.app\.|views\.pytest_plugin|models\.(from_transformers|local_chat)|benchmark\.maite)"
    )
    assert [name for name in done.stdout.split() if not own.match(name)] == []
    assert "unswayed.views.app.editor" in done.stdout.split()
