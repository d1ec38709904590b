"""Group normalization in another order of sums: the same numbers, and the compiled network uses it."""

import pytest
import torch
import torch.nn.functional as F

from unswayed.rendering.networks.diffusers_unet import GroupNorm, build_unet, channels_last_norm


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_it_is_group_normalization_even_beside_a_large_mean(offset):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 12, 9, 7, generator=generator) * torch.arange(1, 13).view(1, -1, 1, 1) + offset
    weight, bias = torch.randn(12, generator=generator), torch.randn(12, generator=generator)
    exact = F.group_norm(x.double(), 4, weight.double(), bias.double(), 1e-5)
    ours = channels_last_norm(x.contiguous(memory_format=torch.channels_last), 4, weight, bias, 1e-5)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(ours.double(), exact, rtol=0, atol=2e-6 * (1 + offset))


def test_a_flat_picture_becomes_the_bias():
    ours = channels_last_norm(torch.full((1, 4, 5, 5), 7.0), 2, torch.ones(4), torch.arange(4.0), 1e-5)
    assert (ours == torch.arange(4.0).view(1, 4, 1, 1)).all()


def test_a_network_made_ready_to_run_has_it_everywhere_and_answers_as_before():
    config = {"sample_size": 16, "block_out_channels": [32], "layers_per_block": 1, "down_block_types": ["DownBlock2D"],
              "up_block_types": ["UpBlock2D"]}  # fmt: skip
    module = build_unet(config)
    x, t = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)), torch.tensor([10.0])
    with torch.no_grad():
        before = module(x, t)
        after = module.prepare(torch.float32)(x, t)
    assert torch.equal(before, after)
    kinds = {type(part) for part in module.modules() if isinstance(part, torch.nn.GroupNorm)}
    assert kinds == {GroupNorm}


def test_while_compiling_it_takes_the_other_order():
    seen = []

    def backend(graph, inputs):
        seen.append(graph.code)
        return graph

    norm = GroupNorm(4, 8)
    x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(torch.compile(norm, backend=backend)(x), norm(x), rtol=1e-5, atol=1e-5)
    assert len(seen) == 1 and "group_norm(" not in seen[0] and "permute" in seen[0]
