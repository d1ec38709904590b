"""A classifier as an ONNX file, with the small JSON beside it that `onnx:FILE` reads."""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path

import torch

from unswayed.errors import missing_extra
from unswayed.files.whole import write_bytes
from unswayed.models.classifier import Classifier
from unswayed.models.deployed import write_sidecar


def export_onnx(model: Classifier, path: str | Path) -> None:
    """Write the network as ONNX with a free batch size, and FILE.json with its transform and classes."""
    import tempfile

    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise missing_extra(error.name or "onnxscript", "models") from None
    module = copy.deepcopy(model.module).cpu().float().eval().to(memory_format=torch.contiguous_format)
    example = torch.zeros(2, 3, model.transform.crop, model.transform.crop)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        made = Path(folder) / "model.onnx"
        torch.onnx.export(
            module,
            (example,),
            str(made),
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        write_bytes(path, made.read_bytes())
    write_sidecar(path, model)
