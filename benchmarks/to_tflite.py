"""EfficientNet-Lite0 as TFLite, float32 and int8, for benchmarks/deployed_models.py.

It needs an environment of its own, since litert-torch does not take the newest torch yet:
uv run --isolated --no-project --with . --with litert-torch==0.10.0 --with ai-edge-quantizer \
    python benchmarks/to_tflite.py -o deployed
"""

from __future__ import annotations

import argparse
from pathlib import Path

import litert_torch
import torch
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe

from unswayed.models import open_model
from unswayed.models.deployed import write_sidecar
from unswayed.sources import open_source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("deployed"))
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    model = open_model("lite:0", device="cpu")
    network = model.module.to(memory_format=torch.contiguous_format)
    plain, small = folder / "lite0.tflite", folder / "lite0-int8.tflite"
    litert_torch.convert(network, (torch.zeros(1, 3, 224, 224),)).export(str(plain))
    signatures = Interpreter(model_path=str(plain)).get_signature_list()
    [(signature, names)] = signatures.items()
    pictures = [model.prepare(scene.image)[None].numpy() for scene in open_source("sample")]
    converter = quantizer.Quantizer(str(plain), recipe.static_wi8_ai8())
    ranges = converter.calibrate({signature: [{names["inputs"][0]: picture} for picture in pictures]})
    converter.quantize(ranges).export_model(str(small), overwrite=True)
    for path in (plain, small):
        write_sidecar(path, model)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
