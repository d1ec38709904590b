"""What a network's file does not tell, given as options: kept in cards and records; idle options are refused."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from command_line import refused
from unswayed.benchmark import BuildSettings, build
from unswayed.errors import UserError
from unswayed.files.whole import sha256
from unswayed.rendering.photograph import Request, chain_of, edit_photograph, read_scene, replay
from unswayed.rendering.settings import parse_facts

SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))
MINI = Path(__file__).parent.parent / "data" / "adm_mini_weights.safetensors"
FACTS = {"num_head_channels": 32, "image_size": 32}


@pytest.fixture
def weights(tmp_path):
    """A checkpoint without a sidecar."""
    (tmp_path / "net.safetensors").write_bytes(MINI.read_bytes())
    return str(tmp_path / "net.safetensors")


def edited(weights, facts):
    options = {"network": weights, "network_facts": facts, "steps": 2, "device": "cpu"}
    request = Request(chain_of({"background": "inversion"}), size=32, **options)
    return edit_photograph(request, read_scene(SAMPLE / "dog.jpg", SAMPLE / "dog.png"), SAMPLE / "dog.jpg")


def test_an_edit_uses_the_facts_and_its_replay_too(tmp_path, weights):
    first = edited(weights, FACTS).save(tmp_path / "first.png")
    record = json.loads(first[2].read_text())
    assert record["request"]["options"]["network_facts"] == FACTS
    assert record["rendered_by"]["network"]["facts"]["num_head_channels"] == 32
    again = replay(first[2]).save(tmp_path / "again.png")
    assert [sha256(path) for path in first] == [sha256(path) for path in again]
    other = edited(weights, {**FACTS, "num_head_channels": 16})
    assert other.record["picture_sha256"] != record["picture_sha256"]


def test_a_benchmark_is_gone_on_with_under_the_same_facts_alone(tmp_path, weights):
    given = {"network": weights, "steps": 2, "device": "cpu", "limit": 1, "size": 32}
    build("sample", tmp_path / "bench", BuildSettings(recipe="original,inversion", network_facts=FACTS, **given))
    assert (
        build(
            "sample", tmp_path / "bench", BuildSettings(recipe="original,inversion", network_facts=FACTS, **given)
        ).made
        == 0
    )
    with pytest.raises(UserError, match="num_head_channels: 32 there, 16 now"):
        build(
            "sample",
            tmp_path / "bench",
            BuildSettings(recipe="original,inversion", network_facts={**FACTS, "num_head_channels": 16}, **given),
        )


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"head_width": 32}, "no network fact 'head_width'(.|\n)*num_head_channels, num_heads"),
        ({**FACTS, "num_head_channels": "wide"}, "num_head_channels is 'wide': an integer from 1"),
        ({**FACTS, "beta_schedule": "sqrt"}, "no β schedule 'sqrt'"),
    ],
)
def test_a_fact_that_cannot_be_is_refused(tmp_path, weights, facts, words):
    with pytest.raises(UserError, match=words):
        build(
            "sample",
            tmp_path / "b",
            BuildSettings(recipe="original", network=weights, network_facts=facts, limit=1, size=32),
        )
    with pytest.raises(UserError, match="compact network's config already states its"):
        build("sample", tmp_path / "b", BuildSettings(recipe="original", network_facts=facts, limit=1))


def test_facts_are_written_as_name_and_value():
    assert parse_facts([]) is None
    assert parse_facts(["noise_scale=1.5", " image_size = 64"]) == {"noise_scale": 1.5, "image_size": 64}
    for wrong in (["image_size"], ["=3"], ["image_size="], ["image_size=64", "image_size=32"]):
        with pytest.raises(UserError, match="NAME=VALUE"):
            parse_facts(wrong)


@pytest.mark.parametrize(
    ("given", "idle"),
    [
        ({"renderer": "paste", "network": "nonsense", "steps": 5000, "sampler": "foo"}, "network, steps, sampler"),
        ({"renderer": "paste", "network_facts": FACTS, "guide": "lite:2"}, "network_facts, guide"),
        ({"renderer": "paste", "device": "cpu", "guide": "lite:2"}, "guide"),
        ({"renderer": "paste", "removal": "diffusion:compact", "network": "nonsense"}, "network"),
        ({"renderer": "diffusion", "feather": 2.0}, "feather"),
    ],
)
def test_options_that_a_renderer_does_not_use_are_refused(tmp_path, given, idle):
    with refused(given=f"the renderer {given['renderer']} has no use for {idle}"):
        build("sample", tmp_path / "b", BuildSettings(recipe="original", limit=1, **given))
    assert not (tmp_path / "b").exists()
