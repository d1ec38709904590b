"""timm, torchvision, transformers and open_clip models really load: tiny ones of each library's own architecture,
saved in the layout of a hub's cache and opened offline in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from unswayed.errors import UserError
from unswayed.labels import imagenet, own
from unswayed.models import open_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CLASSES = ("ant", "bee", "cat", "dog")
OPEN = """
import json, sys
import numpy as np
import torch
from unswayed.labels import own
from unswayed.models import open_model

image = np.load(sys.argv[1])
answers = {}
for key, spec in json.loads(sys.argv[2]).items():
    if spec.startswith("open_clip:tiny"):
        import open_clip
        open_clip.add_model_config(sys.argv[3])
    model = open_model(spec, device="cpu", labels=own(["ant", "bee", "cat", "dog"]))
    layer = model.heat_layer
    answers[key] = {
        "logits": model.logits(model.prepare(image)[None])[0].tolist(),
        "card": model.card(), "layer": layer.to_json(), "classes": list(model.labels.classes[:4]),
    }
print(json.dumps(answers))
"""
Answers = dict[str, dict[str, Any]]


def snapshot(home: Path, repository: str) -> Path:
    """The folder in which the hub's cache keeps a repository's files."""
    root = home / "hub" / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    folder = root / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    return folder


def photograph() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (70, 90, 3), dtype=np.uint8)


def save_timm(home: Path) -> Callable[[np.ndarray], torch.Tensor]:
    import timm
    from safetensors.torch import save_file
    from timm.data import create_transform, resolve_data_config

    network = timm.create_model("test_vit", pretrained=False).eval()
    folder = snapshot(home, "timm/test_vit.r160_in1k")
    save_file(network.state_dict(), str(folder / "model.safetensors"))
    transform = create_transform(**resolve_data_config({}, model=network))
    return lambda image: network(transform(Image.fromarray(image))[None])[0]


def save_torchvision(home: Path) -> Callable[[np.ndarray], torch.Tensor]:
    from torchvision.models import ShuffleNet_V2_X0_5_Weights as Weights
    from torchvision.models import shufflenet_v2_x0_5

    network = shufflenet_v2_x0_5(weights=None).eval()
    folder = home / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(network.state_dict(), folder / Path(Weights.IMAGENET1K_V1.url).name)
    transform = Weights.IMAGENET1K_V1.transforms()
    return lambda image: network(transform(Image.fromarray(image))[None])[0]


def save_classifier(home: Path) -> Callable[[np.ndarray], torch.Tensor]:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        id2label=dict(enumerate(CLASSES)),
        label2id={name: index for index, name in enumerate(CLASSES)},
    )
    network = ViTForImageClassification(config).eval()
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    folder = snapshot(home, "somebody/tiny-vit")
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return lambda image: network(**processor(Image.fromarray(image), return_tensors="pt")).logits[0]


def save_clip(home: Path) -> Callable[[np.ndarray], torch.Tensor]:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

    vocabulary = {
        word: index for index, word in enumerate(["<pad>", "<start>", "<end>", "a", "photo", "of", ".", *CLASSES])
    }
    tokens = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens.post_processor = processors.TemplateProcessing(
        "<start> $A <end>", special_tokens=[("<start>", 1), ("<end>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token="<pad>", eos_token="<end>", unk_token="<pad>"
    )
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = CLIPConfig(
        text_config={**small, "vocab_size": 20, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1},
        vision_config={**small, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    network = CLIPModel(config).eval()
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    folder = snapshot(home, "somebody/tiny-clip")
    for part in (network, processor, tokenizer):
        part.save_pretrained(folder)

    def answer(image: np.ndarray) -> torch.Tensor:
        texts = tokenizer([f"a photo of a {name}." for name in CLASSES], padding=True, return_tensors="pt")
        pixels = processor(Image.fromarray(image), return_tensors="pt")
        texts.pop("token_type_ids", None)
        return network(**texts, **pixels).logits_per_image[0]

    return answer


def save_open_clip(home: Path) -> Callable[[np.ndarray], torch.Tensor]:
    import open_clip
    from safetensors.torch import save_file

    model_config = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
    }
    (home / "tiny.json").write_text(json.dumps(model_config))
    open_clip.add_model_config(home / "tiny.json")
    network, _, transform = open_clip.create_model_and_transforms("tiny")
    network.eval()
    folder = snapshot(home, "somebody/tiny-open-clip")
    save_file(network.state_dict(), str(folder / "open_clip_model.safetensors"))
    save_file(network.state_dict(), str(home / "tiny.safetensors"))
    details = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_config, "preprocess_cfg": details}))
    save_file({"weight": torch.eye(4, 16), "bias": torch.arange(4.0)}, str(home / "head.safetensors"))

    def answer(image: np.ndarray) -> torch.Tensor:
        pictures = network.encode_image(transform(Image.fromarray(image))[None], normalize=True)
        texts = network.encode_text(open_clip.tokenize([f"a photo of a {name}." for name in CLASSES]), normalize=True)
        return (network.logit_scale.exp() * pictures @ texts.T)[0]

    answer.embedding = lambda image: network.encode_image(transform(Image.fromarray(image))[None], normalize=True)[0]  # type: ignore[attr-defined]
    return answer


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answers, dict[str, torch.Tensor]]:
    """What a fresh, offline process answers for each model, and what the library's own pipeline answers."""
    home = tmp_path_factory.mktemp("home")
    torch.manual_seed(0)
    image = photograph()
    np.save(home / "image.npy", image)
    with torch.inference_mode():
        clip = save_open_clip(home)
        expected = {
            "timm": save_timm(home)(image),
            "torchvision": save_torchvision(home)(image),
            "transformers": save_classifier(home)(image),
            "clip": save_clip(home)(image),
            "open_clip": clip(image),
            "open_clip_file": clip(image),
            "open_clip_head": clip.embedding(image)[:4] + torch.arange(4.0),  # type: ignore[attr-defined]
        }
    prompt = "?prompt=a photo of a {}."
    specs = {
        "timm": "timm:test_vit.r160_in1k",
        "torchvision": "torchvision:shufflenet_v2_x0_5/IMAGENET1K_V1",
        "transformers": "transformers:somebody/tiny-vit",
        "clip": f"transformers:somebody/tiny-clip{prompt}",
        "open_clip": f"open_clip:hf-hub:somebody/tiny-open-clip{prompt}",
        "open_clip_file": f"open_clip:tiny/{home}/tiny.safetensors{prompt}",
        "open_clip_head": f"open_clip:tiny/{home}/tiny.safetensors?head={home}/head.safetensors",
    }
    environment = {**os.environ, "HF_HOME": str(home), "TORCH_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    arguments = [str(home / "image.npy"), json.dumps(specs), str(home / "tiny.json")]
    done = subprocess.run(
        [sys.executable, "-c", OPEN, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), expected


@pytest.mark.parametrize("name", ["googlenet", "vit_b_16"])
def test_torchvisions_networks_are_built_as_their_weights_want(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """GoogLeNet undoes ImageNet's normalization inside, and this ViT has another side, because the weights say so."""
    from torchvision import models

    torch.manual_seed(0)
    settings: dict[str, Any] = {"googlenet": {"init_weights": False}, "vit_b_16": {"image_size": 384}}
    weights = {"googlenet": "IMAGENET1K_V1", "vit_b_16": "IMAGENET1K_SWAG_E2E_V1"}[name]
    network = models.get_model(name, **settings[name])
    if name == "googlenet":
        # Without statistics that fit its random weights it would give every picture the same answer.
        for part in network.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.momentum = None
        network.train()(torch.randn(8, 3, 224, 224))
    state = network.state_dict()
    monkeypatch.setattr(models.get_model_weights(name), "get_state_dict", lambda self, **_: state)
    theirs = models.get_model(name, weights=weights).eval()
    ours = open_model(f"torchvision:{name}/{weights}", device="cpu")
    batch = ours.prepare(photograph())[None]
    with torch.inference_mode():
        assert torch.allclose(ours.logits(batch), theirs(batch), atol=1e-4)


def test_a_tag_beside_a_checkpoint_gives_the_transform(tmp_path: Path) -> None:
    from torchvision.models import shufflenet_v2_x1_5

    torch.save(shufflenet_v2_x1_5(num_classes=5).state_dict(), tmp_path / "mine.pt")
    spec = f"torchvision:shufflenet_v2_x1_5/IMAGENET1K_V1?checkpoint={tmp_path}/mine.pt"
    model = open_model(spec, device="cpu")
    assert (model.transform.resize, len(model.labels)) == (232, 5)
    with pytest.raises(UserError, match="did you mean 'IMAGENET1K_V1'"):
        open_model(spec.replace("_V1", "_V7"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ViT-B-32/openia", "did you mean 'ViT-B-32/openai'"),
        ("ViT-B-32", "did you mean 'ViT-B-32/"),
        ("ViT-B-32/openai?normalised=yes", "normalised has no effect without head"),
        ("ViT-B-32/openai?head=head.pt&prompt=a {}", "prompt has no effect with head"),
        ("ViT-B-32/openai?head=head.pt&normalised=maybe", "no setting of normalised 'maybe'"),
        ("ViT-B-32/openai?head=head.pt&names=openai", "names has no effect with head"),
    ],
)
def test_open_clips_mistakes_are_named(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_model(f"open_clip:{name}")


@pytest.mark.parametrize("templates", ["prompt=a photo of a {}.", "templates=openai"])
def test_the_curated_names_and_templates_are_those_of_clips_authors(tmp_path: Path, templates: str) -> None:
    import open_clip

    save_open_clip(tmp_path)
    spec = f"open_clip:tiny/{tmp_path}/tiny.safetensors?names=openai&{templates}"
    model = open_model(spec, device="cpu")
    network = open_clip.create_model("tiny", pretrained=f"{tmp_path}/tiny.safetensors").eval()
    wordings = ["a photo of a {}."]
    if templates == "templates=openai":
        wordings = [template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES]
        assert len(wordings) == 80
    for index in (0, 134, 517):  # tench, crane (the bird) and crane (the machine), which a bare name confuses
        name = open_clip.IMAGENET_CLASSNAMES[index]
        with torch.no_grad():
            texts = network.encode_text(open_clip.tokenize([text.format(name) for text in wordings]), normalize=True)
            row = torch.nn.functional.normalize(texts.mean(0), dim=0) * network.logit_scale.exp()
        assert torch.allclose(model.module.get_submodule("head").weight[index], row, atol=1e-4)
    assert model.labels.classes == imagenet().classes
    assert model.origin["names"] == "openai"
    assert sum(map(str.__ne__, imagenet().classes, open_clip.IMAGENET_CLASSNAMES)) > 250


def test_curated_names_are_only_for_imagenet(tmp_path: Path) -> None:
    save_open_clip(tmp_path)
    with pytest.raises(UserError, match="names=openai are names of ImageNet-1k, and the classes are own"):
        open_model(f"open_clip:tiny/{tmp_path}/tiny.safetensors?names=openai", device="cpu", labels=own(CLASSES))
    with pytest.raises(UserError, match="no set of class names 'opanai'; did you mean 'openai'"):
        open_model(f"open_clip:tiny/{tmp_path}/tiny.safetensors?names=opanai", device="cpu")


def test_a_head_of_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    save_open_clip(tmp_path)
    with pytest.raises(UserError, match="has 4 outputs, the label space 'imagenet-1k' has 1000"):
        open_model(f"open_clip:tiny/{tmp_path}/tiny.safetensors?head={tmp_path}/head.safetensors", device="cpu")


KEYS = ["timm", "torchvision", "transformers", "clip", "open_clip", "open_clip_file", "open_clip_head"]


@pytest.mark.parametrize("key", KEYS)
def test_answers_are_those_of_the_library_itself(opened: tuple[Answers, dict[str, torch.Tensor]], key: str) -> None:
    answers, expected = opened
    # transformers resizes tensors, we resize pictures: the two may round a pixel differently.
    tolerance = 2e-3 if key in ("transformers", "clip") else 1e-4
    assert np.allclose(answers[key]["logits"], expected[key].numpy(), atol=tolerance)


def test_classes_are_the_models_own(opened: tuple[Answers, dict[str, torch.Tensor]]) -> None:
    answers, _ = opened
    assert answers["timm"]["card"]["labels"] == {"name": "imagenet-1k"}
    assert answers["torchvision"]["card"]["labels"] == {"name": "imagenet-1k"}
    assert answers["transformers"]["classes"] == list(CLASSES)
    assert answers["clip"]["classes"] == list(CLASSES)


def test_heat_layers_of_transformers_drop_the_class_token(opened: tuple[Answers, dict[str, torch.Tensor]]) -> None:
    answers, _ = opened
    for key in ("timm", "transformers", "clip", "open_clip"):
        assert (answers[key]["layer"]["reshape"], answers[key]["layer"]["prefix"]) == ("tokens", 1), key
    assert answers["timm"]["layer"]["name"] == "blocks.5.norm1"
    assert answers["torchvision"]["layer"]["reshape"] == "none"
