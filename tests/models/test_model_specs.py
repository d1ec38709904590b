"""Names of models: taken apart, put together, and refused with what was meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unswayed.errors import UserError
from unswayed.models import list_models, open_model
from unswayed.models.opening import brings_transform, describe_sources, model_spec, runs_code
from unswayed.specs import slug_of


@pytest.mark.parametrize(
    "text",
    [
        "lite:0",
        "timm:resnet50.a1_in1k+tencrop",
        "timm:a?checkpoint=w.pt&labels=n.txt+bn-adapt+tencrop",
        "python:m.py:build",
    ],
)
def test_a_name_survives_being_taken_apart(text: str) -> None:
    assert str(model_spec(text)) == text


def test_a_plus_in_a_file_name_is_no_wrapper() -> None:
    assert model_spec("onnx:models/a+b.onnx").name == "models/a+b.onnx"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resnet50", "names no model"),
        ("tim:resnet50", "did you mean 'timm'"),
        ("timm:resnet5", "did you mean 'resnet50"),
        ("timm:resnet50.a1_in2k", "did you mean 'resnet50.a1_in1k'"),
        ("timm:test_mambaout", "checkpoint=FILE"),
        ("torchvision:resnet52", "did you mean 'resnet152'"),
        ("torchvision:resnet50/IMAGENET1K_V3", "IMAGENET1K_V2"),
        ("open_clip:ViT-B-33/openai", "did you mean 'ViT-B-32'"),
        ("open_clip:ViT-B-32/nobody", "ViT-B-32/openai"),
        ("lite:0+tencrops", "did you mean '\\+tencrop'"),
        ("timm:resnet50?checkpont=a", "did you mean 'checkpoint'"),
        ("timm:resnet50?checkpoint", "has no value"),
        ("timm:resnet18?checkpoint=nowhere.pt", "no checkpoint nowhere.pt"),
        ("onnx:nowhere.onnx", "does not exist"),
        ("python:nowhere.py:build", "no Python file"),
        ("python:json", "names no function"),
        ("python:json:lods", "did you mean 'loads'"),
        ("head:nowhere", "does not exist"),
    ],
)
def test_unknown_names_say_what_there_is(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_model(text)


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, spec in (
        ("onnxruntime", "onnx:x.onnx"),
        ("open_clip", "open_clip:a/b"),
        ("transformers", "transformers:a"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UserError, match=r"pip install 'unswayed\[models\]'"):
            open_model(spec)


SOURCE = """
from unswayed.models.from_torchvision import open_lite
from unswayed.registry import declare


def open_mine(spec, labels=None, **where):
    return open_lite(spec, labels, **where)


@declare(usage="harmless:NUMBER", facts={"transform": True, "names": lambda: ["0", "1"]})
def open_harmless(spec, labels=None, **where):
    \"\"\"EfficientNet-Lite again.\"\"\"
    return open_lite(spec, labels, **where)
"""


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that adds two sources of models: `mine` declares nothing, `harmless` what it may do."""
    about = tmp_path / "other_models-1.0.dist-info"
    about.mkdir()
    (tmp_path / "other_models.py").write_text(SOURCE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-models\nVersion: 1.0\n")
    points = "mine = other_models:open_mine\nharmless = other_models:open_harmless\n"
    (about / "entry_points.txt").write_text(f"[unswayed.models]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_models", raising=False)


@pytest.mark.usefixtures("other_package")
def test_other_packages_add_sources_by_entry_point() -> None:
    assert open_model("mine:0", device="cpu").name == "mine:0"
    assert open_model("prod=mine:0+flip", device="cpu").spec == "mine:0+flip"
    assert "mine" in describe_sources()
    assert list_models("mine:*") == ["mine:NAME"]
    # What it may do is not declared, so a file cannot name it.
    with pytest.raises(UserError, match="not opened"):
        open_model("mine:0", device="cpu", trust=False)
    assert runs_code("mine:0")
    assert not brings_transform("mine:0")


@pytest.mark.usefixtures("other_package")
def test_what_an_outside_source_declares_decides_whether_a_file_may_name_it() -> None:
    assert open_model("harmless:0", device="cpu", trust=False).name == "harmless:0"
    assert list_models("harmless:[1-9]") == ["harmless:1"]
    assert describe_sources()["harmless"] == "harmless:NUMBER: EfficientNet-Lite again."
    assert brings_transform("harmless:0")
    assert not runs_code("harmless:0")


def test_models_are_listed_without_a_network() -> None:
    assert {usage.partition(":")[0] for usage in list_models()} >= {"lite", "timm", "python", "head", "onnx"}
    assert list_models("lite") == list_models("lite:*") == ["lite:0", "lite:1", "lite:2"]
    assert "timm:resnet50.a1_in1k" in list_models("timm:*resnet*")
    assert "torchvision:resnet50/IMAGENET1K_V2" in list_models("torchvision:resnet50/*")
    assert all("vit" in name for name in list_models("t*:vit*"))
    assert list_models("onnx:*") == ["onnx:FILE"]
    assert list_models("timm:nothing*") == []
    with pytest.raises(UserError, match="did you mean 'timm'"):
        list_models("tim:*")


def test_bad_device_and_precision_are_refused() -> None:
    with pytest.raises(UserError, match="device"):
        open_model("lite:0", device="gpu")
    with pytest.raises(UserError, match="did you mean 'bf16'"):
        open_model("lite:0", device="cpu", precision="b16")


def test_slugs_are_safe_as_file_names() -> None:
    assert slug_of("python:/home/me/my model.py:build") == "python-home-me-my-model.py-build"
