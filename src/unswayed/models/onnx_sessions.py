"""ONNX networks that are ready to run on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unswayed.errors import UserError, missing_extra


def open_session(path: str | Path, extra: str = "models") -> Any:
    """The network in an ONNX file; extra: of the package, for the error where onnxruntime is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise missing_extra("onnxruntime", extra) from None
    if not Path(path).is_file():
        raise UserError(f"the network {path} does not exist", allowed="onnx:FILE, an ONNX network")
    import torch

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that wait actively take the cores from other processes and make this one slower than one thread would be.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise UserError(f"{path} is not a readable ONNX network: {str(error).splitlines()[0]}") from None
