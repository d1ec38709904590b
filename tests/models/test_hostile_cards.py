"""Cards of repaired models that would download, or build a network far larger than their weights, are refused."""

from __future__ import annotations

import json
import re
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from command_line import refused
from unswayed.errors import UserError
from unswayed.files.tensor_files import write_tensor_file
from unswayed.models.opening import open_model
from unswayed.models.repaired import save_repaired

# Opens each folder and prints the memory, in MB, that this took beyond what the libraries take.
PROGRAM = """
import sys, timm, torchvision
from pathlib import Path
from unswayed.errors import UserError
from unswayed.models import from_timm, repaired
from unswayed.models.opening import open_model

def peak():
    return int(next(line.split()[1] for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))) / 1024

for folder in sys.argv[1:]:
    before = peak()
    try:
        open_model(f"repaired:{folder}", device="cpu")
    except UserError as error:
        print(round(peak() - before), "does not fit" in str(error), folder)
"""


def folder_with(folder: Path, architecture: dict[str, Any]) -> Path:
    """A repaired model of one tensor that claims to be `architecture`."""
    card = {"base": "lite:0", "architecture": architecture, "labels": {"name": "own", "classes": ["cat", "dog"]}}
    card |= {"transform": {}, "weights_sha256": "0", "training": {}}
    write_tensor_file(folder / "model.safetensors", {"weight": torch.zeros(1)})
    (folder / "card.json").write_text(json.dumps(card))
    return folder


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("torchvision", "fcn_resnet50"),
        ("torchvision", "FCN_ResNet50"),
        ("torchvision", "fasterrcnn_resnet50_fpn"),
        ("torchvision", "quantized_resnet18"),
        ("timm", "hf-hub:timm/resnet18.a1_in1k"),
        ("timm", "hf_hub:timm/resnet18.a1_in1k"),
        ("transformers", "google/vit-base-patch16-224"),
    ],
)
def test_no_name_in_a_card_reaches_the_network(library, name, tmp_path, monkeypatch):
    asked = []

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
        with refused(allowed="a classifier's name in timm or torchvision"):
            open_model(f"repaired:{folder_with(tmp_path, {'library': library, 'name': name})}", device="cpu")
        server.shutdown()
    assert not asked


def test_a_network_much_larger_than_its_weights_is_refused_in_little_memory(tmp_path):
    large = {
        "giant": {"library": "timm", "name": "vit_giant_patch14_clip_224"},
        "huge": {"library": "torchvision", "name": "vit_h_14"},
        "deep": {"library": "timm", "name": "vit_tiny_patch16_224", "settings": {"depth": 4096}},
        "wide": {"library": "timm", "name": "vit_tiny_patch16_224", "settings": {"embed_dim": 4096, "num_heads": 1}},
    }
    folders = []
    for name, architecture in large.items():
        (tmp_path / name).mkdir()
        folders.append(str(folder_with(tmp_path / name, architecture)))
    run = subprocess.run([sys.executable, "-c", PROGRAM, *folders], capture_output=True, text=True)
    refused = re.findall(r"^(\d+) True (.*)$", run.stdout, re.MULTILINE)
    assert [folder for _, folder in refused] == folders, run.stdout + run.stderr
    assert all(int(memory) < 100 for memory, _ in refused), run.stdout


def test_a_network_is_not_built_further_than_the_tensors_of_its_file(tmp_path):
    architecture = {"library": "timm", "name": "vit_tiny_patch16_224", "settings": {"depth": 4096}}
    folder, count = folder_with(tmp_path, architecture), []
    handle = register_module_parameter_registration_hook(lambda module, name, value: count.append(name))
    try:
        with pytest.raises(UserError, match="does not fit"):
            open_model(f"repaired:{folder}", device="cpu")
    finally:
        handle.remove()
    assert len(count) < 200


def test_tensors_that_a_network_computes_are_bounded_as_well(tmp_path):
    # The masks of shifted windows are in no file, and grow with the side of the pictures.
    base = open_model("timm:swin_tiny_patch4_window7_224?weights=none&embed_dim=24", device="cpu")
    save_repaired(tmp_path, base, base, {}, np.zeros(0, np.uint64))
    card = json.loads((tmp_path / "card.json").read_bytes())
    card["architecture"]["settings"]["img_size"] = 4096
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match="does not fit"):
        open_model(f"repaired:{tmp_path}", device="cpu")
