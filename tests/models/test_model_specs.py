"""Names of models: taken apart, put together, and refused with what was meant."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from unswayed.errors import UserError
from unswayed.models import open_model, registry
from unswayed.models.registry import model_spec
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
    import sys

    for package, spec in (
        ("onnxruntime", "onnx:x.onnx"),
        ("open_clip", "open_clip:a/b"),
        ("transformers", "transformers:a"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UserError, match=r"pip install 'unswayed\[models\]'"):
            open_model(spec)


def test_other_packages_add_sources_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "unswayed.models.lite:open_lite", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]))
    assert open_model("mine:0", device="cpu").name == "mine:0"


def test_bad_device_and_precision_are_refused() -> None:
    with pytest.raises(UserError, match="device"):
        open_model("lite:0", device="gpu")
    with pytest.raises(UserError, match="did you mean 'bf16'"):
        open_model("lite:0", device="cpu", precision="b16")


def test_slugs_are_safe_as_file_names() -> None:
    assert slug_of("python:/home/me/my model.py:build") == "python-home-me-my-model.py-build"
