"""Removal by diffusion and by exported in-painting networks: the hole changes, the rest keeps its bytes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from command_line import refused
from gaussian_network import ExactDenoiser, gaussian
from unswayed.edits.composition import Impossible
from unswayed.errors import UserError
from unswayed.rendering.removal import generous, open_removal
from unswayed.rendering.removal.diffusion import DiffusionRemoval, inpaint, jump_levels
from unswayed.rendering.removal.onnx import OnnxRemoval

SIZE = 64


def scene(seed=0):
    rng = np.random.default_rng(seed)
    image = np.kron(rng.integers(0, 256, (8, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    mask = np.zeros((SIZE, SIZE), np.float32)
    mask[24:40, 20:36] = 1
    return image, mask


def test_jumps_come_down_to_the_end_and_visit_every_level_as_often_as_told():
    path = jump_levels(20, 5, 3)
    downs = [a for a, b in zip(path, path[1:], strict=False) if b < a]
    assert path[0] == 19
    assert path[-1] == 0
    assert all(abs(a - b) == 1 for a, b in zip(path, path[1:], strict=False))
    assert downs.count(3) == 3
    assert max(downs.count(level) for level in range(20)) == 3
    assert jump_levels(6, 3, 1) == [5, 4, 3, 2, 1, 0]


def test_the_hole_is_drawn_from_the_networks_distribution():
    """Pixels are independent N(0.3, 0.1²) to this network, so that is what the hole must hold."""
    pictures = torch.full((4, 3, SIZE, SIZE), -0.8)
    holes = torch.zeros(4, 1, SIZE, SIZE)
    holes[:, :, 10:50, 10:50] = 1
    filled = inpaint(gaussian(0.3, 0.1, "fixed", SIZE), pictures, holes, [1, 2, 3, 4], steps=40, jump=5, resamples=2)
    assert torch.equal(filled[:, :, :10], pictures[:, :, :10])
    inside = filled[:, :, 10:50, 10:50]
    assert float(inside.mean()) == pytest.approx(0.3, abs=0.02)
    assert 0.03 < float(inside.std()) < 0.12


def test_a_hole_does_not_depend_on_its_batch():
    removal = DiffusionRemoval(
        gaussian(size=SIZE, kind="fixed"), device="cpu", precision="fp32", steps=10, jump=3, resamples=2
    )
    (one, mask), (two, _) = scene(0), scene(1)
    together = removal.remove([one, two], [mask, mask], [5, 6])
    assert np.abs(together[0].astype(int) - removal(one, mask, 5)).max() <= 1
    assert np.array_equal(together[0][~generous(mask)], one[~generous(mask)])
    assert not np.array_equal(together[0], removal(one, mask, 9))


class Narrow(ExactDenoiser):
    """Runs out of memory with more than so many pictures at once."""

    def __init__(self, most):
        super().__init__(0.2, 0.4, 1)
        self.most = most

    def forward(self, x, t):
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(x, t)


def narrow(most):
    network = replace(gaussian(size=SIZE, kind="fixed"), module=Narrow(most))
    return DiffusionRemoval(network, device="cpu", precision="fp32", steps=6, jump=3, resamples=1)


def test_where_memory_runs_out_fewer_holes_are_filled_at_once():
    images, masks = zip(*(scene(seed) for seed in range(4)), strict=True)
    found = narrow(1).remove(images, masks, range(4))
    for seed, one in enumerate(found):
        assert np.array_equal(one, narrow(4)(images[seed], masks[seed], seed))
    with refused("--network compact", given="out of memory on cpu with one picture of 64×64"):
        narrow(0)(*scene(), 0)


@pytest.mark.parametrize("options", [{"jump": 0}, {"resamples": 0}])
def test_impossible_jumps_are_refused(options):
    with refused(allowed="1 or more"):
        DiffusionRemoval(gaussian(size=SIZE, kind="fixed"), device="cpu", steps=6, **options)(*scene(), 0)


def test_a_network_of_another_size_is_refused():
    removal = DiffusionRemoval(gaussian(size=32, kind="fixed"), device="cpu")
    with pytest.raises(UserError, match="32×32"):
        removal(*scene())


class PerClass(torch.nn.Module):
    """The exact denoiser of flat pictures whose brightness is their class: −0.5, 0 or 0.5."""

    def __init__(self):
        super().__init__()
        self.kinds = torch.nn.ModuleList(ExactDenoiser(mean, 0.05, halves=1) for mean in (-0.5, 0.0, 0.5))

    def forward(self, x, t, y):
        return torch.cat([self.kinds[int(k)](x[i : i + 1], t[i : i + 1]) for i, k in enumerate(y)])


def per_class(**options):
    network = replace(gaussian(kind="fixed", size=SIZE), module=PerClass(), classes=3)
    return DiffusionRemoval(network, device="cpu", precision="fp32", steps=20, jump=5, resamples=1, **options)


def test_a_network_of_classes_is_told_the_scenes_own():
    removal, (image, mask) = per_class(), scene()
    hole = generous(mask)
    for label, expected in enumerate((-0.5, 0.0, 0.5)):
        inside = removal(image, mask, 1, label)[hole] / 127.5 - 1
        assert float(inside.mean()) == pytest.approx(expected, abs=0.05)
    together = removal.remove([image, image], [mask, mask], [1, 1], [2, 0])
    assert np.abs(together[0].astype(int) - removal(image, mask, 1, 2)).max() <= 1


def test_a_network_of_classes_removes_nothing_of_a_class_that_it_has_not():
    image, mask = scene()
    for label in (None, 3):
        with pytest.raises(Impossible, match=f"one of its 3 classes to remove an object, not {label}"):
            per_class()(image, mask, 1, label)


def test_a_network_draws_no_picture_from_nothing():
    image, mask = scene()
    with pytest.raises(Impossible, match="cannot be removed"):
        per_class()(image, np.ones_like(mask), 1, 0)


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
