"""Removal by diffusion and by exported in-painting networks: the hole changes, the rest keeps its bytes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from command_line import refused
from gaussian_network import ExactDenoiser, gaussian
from unswayed.edits.composition import Impossible
from unswayed.edits.geometry import resized
from unswayed.errors import UserError
from unswayed.rendering import layers
from unswayed.rendering.layers import removed_object
from unswayed.rendering.removal import generous, open_removal
from unswayed.rendering.removal.diffusion import DiffusionRemoval, fill_holes
from unswayed.rendering.removal.onnx import OnnxRemoval
from unswayed.scene import frame
from unswayed.sources import open_source

SIZE = 64


def scene(seed=0):
    rng = np.random.default_rng(seed)
    image = np.kron(rng.integers(0, 256, (8, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    mask = np.zeros((SIZE, SIZE), np.float32)
    mask[24:40, 20:36] = 1
    return image, mask


class Filling(ExactDenoiser):
    """The exact denoiser of independent pixels, as a network that is given known pixels; they tell it nothing here."""

    def __init__(self, mean=0.3, deviation=0.1, most=99):
        super().__init__(mean, deviation, 1)
        self.most = most

    def forward(self, x, t, known):
        assert known.shape == (len(x), 4, *x.shape[2:])
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(x, t)


def filling(**options):
    return replace(gaussian(size=SIZE, kind="fixed"), module=Filling(**options), fills=True)


def removal(**options):
    return DiffusionRemoval(filling(**options), device="cpu", precision="fp32")


def test_the_hole_is_drawn_from_the_networks_distribution():
    """Pixels are independent N(0.3, 0.1²) to this network, so that is what the hole must hold."""
    pictures = torch.full((4, 3, SIZE, SIZE), -0.8)
    holes = torch.zeros(4, 1, SIZE, SIZE)
    holes[:, :, 10:50, 10:50] = 1
    filled = fill_holes(filling(), pictures, holes, [1, 2, 3, 4])
    assert torch.equal(filled[:, :, :10], pictures[:, :, :10])
    inside = filled[:, :, 10:50, 10:50]
    assert float(inside.mean()) == pytest.approx(0.3, abs=0.02)
    assert 0.03 < float(inside.std()) < 0.12


def test_a_hole_does_not_depend_on_its_batch():
    (first, mask), (second, _) = scene(0), scene(1)
    together = removal().remove([first, second], [mask, mask], [5, 6])
    assert np.array_equal(together[0], removal()(first, mask, 5))
    assert np.array_equal(together[0][~generous(mask)], first[~generous(mask)])
    assert not np.array_equal(together[0], removal()(first, mask, 9))


def test_where_memory_runs_out_with_one_picture_the_error_says_so():
    with refused("--network compact", given="out of memory on cpu with one picture of 64×64"):
        removal(most=0)(*scene(), 0)


def test_a_picture_of_any_size_is_filled():
    image, mask = scene()
    image, mask = image[:50, :50].copy(), mask[:50, :50].copy()
    filled, hole = removal()(image, mask, 1), generous(mask)
    assert filled.shape == image.shape
    assert np.array_equal(filled[~hole], image[~hole])
    assert float(filled[hole].mean()) / 127.5 - 1 == pytest.approx(0.3, abs=0.05)


def test_a_network_that_does_not_see_the_known_pixels_is_refused():
    with refused(given="cannot fill holes", allowed="train-network"):
        DiffusionRemoval(gaussian(size=SIZE, kind="fixed"), device="cpu")


def test_a_network_draws_no_picture_from_nothing():
    image, mask = scene()
    with pytest.raises(Impossible, match="cannot be removed"):
        removal()(image, np.ones_like(mask), 1)


def test_the_embedded_network_continues_what_surrounds_the_hole():
    """A sky over a ground: the filled colors are those of the same height beside the hole."""
    image = np.empty((128, 128, 3), np.uint8)
    image[:64], image[64:] = (120, 170, 230), (110, 90, 50)
    mask = np.zeros((128, 128), np.float32)
    mask[44:84, 44:84] = 1
    hole = generous(mask)
    filled = open_removal("diffusion", "cpu")(np.where(mask[..., None] > 0, 255, image).astype(np.uint8), mask, 3)
    for rows in (slice(0, 58), slice(70, 128)):
        inside = hole[rows]
        difference = np.abs(filled[rows][inside].astype(float) - image[rows][inside])
        assert difference.mean() < 16


def test_the_fills_of_the_sample_are_stored_as_the_network_makes_them(monkeypatch, tmp_path):
    def never(*given):
        raise AssertionError("nothing has to be removed")

    removal = open_removal("diffusion", "cpu")
    scenes = [(scene.id, *(resized(part, 256) for part in (scene.image, scene.mask))) for scene in framed_sample()]
    for name, image, mask in scenes:
        stored = removed_object(image, mask, name, None, never, None, removal.name)
        hole = generous(mask)
        assert np.array_equal(stored[~hole], image[~hole])
        assert not np.array_equal(stored[hole], image[hole])
    assert len(list(layers.EMBEDDED.glob("*.png"))) == len(scenes)
    monkeypatch.setattr(layers, "EMBEDDED", tmp_path)
    name, image, mask = scenes[3]
    made = removed_object(image, mask, name, None, removal, None, removal.name)
    monkeypatch.undo()
    stored = removed_object(image, mask, name, None, never, None, removal.name)
    # On other kinds of processors the last bits differ.
    assert np.abs(made.astype(int) - stored).mean() < 0.5
    with pytest.raises(AssertionError, match="nothing has to be"):
        removed_object(image, mask, name, None, never, None, "another method")


def framed_sample():
    return map(frame, open_source("sample"))


def test_the_device_is_the_one_that_was_asked_for():
    assert open_removal("diffusion", "cpu").network.device.type == "cpu"
    assert open_removal("patches", "cpu").name == "patches-1"
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="sees no GPU here"):
            open_removal("diffusion", "cuda")


def exported(path, picture, mask, dtype, keep_is_one):
    """An ONNX network that paints the hole gray (128, or 0.5) and passes the rest through."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    kind = TensorProto.UINT8 if dtype == "uint8" else TensorProto.FLOAT
    scale = 255.0 if dtype == "uint8" else 1.0
    nodes = [
        helper.make_node("Cast", ["image"], ["picture"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["mask"], ["given"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["given", "scale"], ["share"]),
        helper.make_node("Sub", ["one", "share"], ["rest"]),
        helper.make_node("Mul", ["picture", "share" if keep_is_one else "rest"], ["known"]),
        helper.make_node("Mul", ["grey", "rest" if keep_is_one else "share"], ["unknown"]),
        helper.make_node("Add", ["known", "unknown"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["result"], to=kind),
    ]
    constants = {"scale": scale, "one": 1.0, "grey": scale * 128 / 255}
    graph = helper.make_graph(
        nodes,
        "paint",
        [helper.make_tensor_value_info("image", kind, picture), helper.make_tensor_value_info("mask", kind, mask)],
        [helper.make_tensor_value_info("result", kind, picture)],
        [helper.make_tensor(name, TensorProto.FLOAT, [1], [value]) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


CONVENTIONS = {
    "MI-GAN: uint8, 255 keeps": ([1, 3, "h", "w"], [1, 1, "h", "w"], "uint8", True),
    "LaMa: float, 1 is the hole": ([1, 3, SIZE, SIZE], [1, 1, SIZE, SIZE], "float", False),
    "LaMa of another size": ([1, 3, 32, 32], [1, 1, 32, 32], "float", False),
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_exported_networks_are_fed_as_they_declare(tmp_path, name):
    image, mask = scene()
    removal = open_removal(f"onnx:{exported(tmp_path / 'net.onnx', *CONVENTIONS[name])}")
    filled, hole = removal(image, mask, 0), generous(mask)
    assert np.array_equal(filled[~hole], image[~hole])
    # where sizes differ the hole's own rim is resampled
    core = np.s_[28:36, 24:32]
    assert np.abs(filled[core].astype(int) - 128).max() <= 1
    assert "net" in removal.name


def test_an_empty_mask_removes_nothing(tmp_path):
    removal = OnnxRemoval(exported(tmp_path / "net.onnx", *next(iter(CONVENTIONS.values()))))
    image, mask = scene()
    assert np.array_equal(removal(image, np.zeros_like(mask)), image)


def test_what_is_no_network_is_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        open_removal(f"onnx:{tmp_path / 'gone.onnx'}")
    (tmp_path / "bad.onnx").write_bytes(b"not a network")
    with pytest.raises(UserError, match="not a readable ONNX"):
        open_removal(f"onnx:{tmp_path / 'bad.onnx'}")


def test_a_network_with_other_inputs_is_refused(tmp_path):
    pytest.importorskip("onnx")
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "same",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 8, 8])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "one.onnx"
    )
    with pytest.raises(UserError, match="two inputs"):
        open_removal(f"onnx:{tmp_path / 'one.onnx'}")
