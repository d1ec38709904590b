"""Files of weights that nobody need trust."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from command_line import refused
from unswayed.errors import UserError
from unswayed.files.tensor_files import damage, read_tensor_file


def test_both_formats_are_read_whatever_their_names(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(4.0)}
    torch.save({"state_dict": tensors, "epoch": 3}, tmp_path / "one.ckpt")
    save_file(tensors, tmp_path / "two.pt")
    assert read_tensor_file(tmp_path / "one.ckpt")["epoch"] == 3
    assert torch.equal(read_tensor_file(tmp_path / "two.pt")["a"], tensors["a"])


def test_a_changed_byte_is_found_by_the_files_own_checksums(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    tensor = torch.arange(1000.0)
    torch.save({"a": tensor, "b": torch.ones(3)}, path)
    assert damage(path) is None
    data = bytearray(path.read_bytes())
    data[data.index(tensor.numpy().tobytes()) + 10] ^= 4
    path.write_bytes(data)
    assert "weights/data/0, do not match their checksums" in str(damage(path))
    with refused(given="weights.pt is damaged", run="fetch it anew"):
        read_tensor_file(path, run="fetch it anew")


def test_what_is_no_zip_has_no_checksums(tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"no zip at all")
    assert damage(tmp_path / "weights.pt") is None
    with pytest.raises(UserError, match="truncated or not a weights file: it begins with b'no zip at all'"):
        read_tensor_file(tmp_path / "weights.pt")
