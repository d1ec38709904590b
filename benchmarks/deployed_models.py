"""EfficientNet-Lite0 in the formats that people deploy: does a conversion or a quantization cost robustness?

Prints one row per format: size of the file, largest difference of a logit from torch's, share of pictures with the same
class, accuracy, average drop, time per picture, and the answer of `unswayed compare --same-model`.

python benchmarks/deployed_models.py                 # the sample, edits by paste
python benchmarks/deployed_models.py -b BENCHMARK    # a benchmark of yours
TFLite files are read from the folder -o if benchmarks/to_tflite.py made them there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from unswayed.analyses.drops.compare import same_model
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.benchmark import BuildSettings, build
from unswayed.evaluation import EvaluateSettings, run_evaluation
from unswayed.models import Classifier, open_model
from unswayed.models.deployed import export_onnx, write_sidecar
from unswayed.sources import open_source

TORCH = "torch=lite:0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--benchmark", type=Path, help="a benchmark [default: the sample, pasted]")
    parser.add_argument("-o", "--output", type=Path, default=Path("deployed"))
    parser.add_argument("--margin", type=float, default=1.0, help="points of difference that count as none")
    given = parser.parse_args()
    folder: Path = given.output
    folder.mkdir(parents=True, exist_ok=True)
    model = open_model("lite:0", device="cpu")
    model.module.to(memory_format=torch.contiguous_format)
    specs = convert(model, folder)
    bench = given.benchmark or folder / "benchmark"
    if given.benchmark is None:
        build("sample", bench, BuildSettings(renderer="paste", seed=0))
    run_evaluation(bench, [TORCH, *specs], folder / "predictions", EvaluateSettings(device="cpu"))
    pictures = torch.stack([model.prepare(scene.image) for scene in open_source("sample")])
    reference = model.logits(pictures)
    drops = dropped_accuracy(folder / "predictions")
    print(
        "| format | MB | largest logit difference | same class % | originals % | average drop | ms | same robustness? |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    sentences = []
    for spec in (TORCH, *specs):
        name = spec.partition("=")[0]
        opened = open_model(spec, device="cpu")
        began = time.perf_counter()
        gap = float((opened.logits(pictures) - reference).abs().max())
        spent = 1000 * (time.perf_counter() - began) / len(pictures)
        rows = {row["edit"]: row for row in drops.filter(model=name).iter_rows(named=True)}
        same, answer = 100.0, ""
        if spec != TORCH:
            found = same_model(folder / "predictions", "torch", name, margin=given.margin)
            same = 100 * float(found.table.filter(edit="average")["same"][0])
            answer = found.answer
            sentences.append(found.sentence)
        numbers = f"{gap:.1e} | {same:.1f} | {100 * rows['original']['accuracy']:.1f} | {rows['average']['drop']:.1f}"
        print(f"| {name} | {size(spec):.1f} | {numbers} | {spent:.0f} | {answer} |")
    print("\n".join(sentences))


def convert(model: Classifier, folder: Path) -> list[str]:
    """The model's files, made where they are not there yet, as `ALIAS=kind:FILE`."""
    example = torch.zeros(2, 3, model.transform.crop, model.transform.crop)
    plain = folder / "lite0.onnx"

    def openvino(path: Path) -> None:
        import openvino

        openvino.save_model(openvino.convert_model(str(plain)), str(path), compress_to_fp16=False)

    def exported(path: Path) -> None:
        batch = torch.export.Dim("batch")
        torch.export.save(torch.export.export(model.module, (example,), dynamic_shapes=({0: batch},)), str(path))

    makers: dict[str, tuple[str, Path, Callable[[Path], None]]] = {
        "torchscript": ("torchscript", folder / "lite0.pt", lambda path: _traced(model, example, path)),
        "pt2": ("pt2", folder / "lite0.pt2", exported),
        "onnx": ("onnx", plain, lambda path: export_onnx(model, path)),
        "onnx-dynamic-int8": ("onnx", folder / "lite0-dynamic.onnx", lambda path: _quantized(plain, path)),
        "onnx-static-int8": ("onnx", folder / "lite0-static.onnx", lambda path: _calibrated(plain, path, model)),
        "openvino": ("openvino", folder / "lite0.xml", openvino),
        "tflite": ("tflite", folder / "lite0.tflite", lambda path: None),
        "tflite-int8": ("tflite", folder / "lite0-int8.tflite", lambda path: None),
    }
    specs = []
    for name, (kind, path, make) in makers.items():
        if not path.exists():
            make(path)
        if path.exists():
            write_sidecar(path, model, **({"batch": 1} if "dynamic" in name else {}))
            specs.append(f"{name}={kind}:{path}")
    return specs


def size(spec: str) -> float:
    """The size of a model's files in MB; of lite:0, its weights."""
    kind, _, path = spec.partition("=")[2].partition(":")
    if kind == "lite":
        from unswayed.models.from_torchvision import lite_file

        return lite_file(path).stat().st_size / 1e6
    files = [Path(path), *([Path(path).with_suffix(".bin")] if kind == "openvino" else [])]
    return sum(one.stat().st_size for one in files) / 1e6


def _traced(model: Classifier, example: torch.Tensor, path: Path) -> None:
    torch.jit.trace(model.module, example).save(str(path))


def _quantized(plain: Path, path: Path) -> None:
    """Dynamic quantization: int8 weights; the ranges of the activations are found while it runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(_without_shapes(plain), str(path), weight_type=QuantType.QUInt8)


def _calibrated(plain: Path, path: Path, model: Classifier) -> None:
    """Static quantization: int8 weights and activations, whose ranges come from the sample's photographs."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Photographs(CalibrationDataReader):
        def __init__(self) -> None:
            scenes = open_source("sample")
            self.batches = iter([{"images": model.prepare(scene.image)[None].numpy()} for scene in scenes])

        def get_next(self) -> dict | None:
            return next(self.batches, None)

    source = _without_shapes(plain)
    quantize_static(source, str(path), Photographs(), quant_format=QuantFormat.QDQ, per_channel=True)


def _without_shapes(plain: Path) -> Any:
    """The model without the shapes of its weights, which onnxruntime transposes before it infers them again."""
    import onnx

    model = onnx.load(str(plain))
    del model.graph.value_info[:]
    return model


if __name__ == "__main__":
    main()
