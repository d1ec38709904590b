"""`unswayed licenses`: what the photographs, masks, network and guide of a benchmark carry, and what follows."""

from __future__ import annotations

import json

import pytest

import unswayed
from command_line import refusal, run_cli
from unswayed.benchmark.licenses import NOT_STATED, terms


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    root = tmp_path_factory.mktemp("licenses") / "bench"
    unswayed.build("sample", root, recipe="size=0.1", renderer="paste", limit=3)
    return root


def of(bench, name="photographs"):
    return {row.license: row.count for row in unswayed.licenses(bench).rows if row.part == name}


def test_a_benchmark_of_the_sample_may_be_passed_on_without_conditions(bench):
    assert of(bench) == {"CC0-1.0": 1, "Public Domain": 2}
    done = run_cli("licenses", bench)
    assert done.exit_code == 0
    assert "may it be passed on? yes, without conditions" in done.stdout


def test_the_photographs_decide_by_their_credits(bench):
    credits = bench / "CREDITS.csv"
    try:
        credits.write_text("photograph,license\nbison,CC BY-SA 4.0\ncat,CC BY 2.0\nchameleon,CC0\n")
        done = run_cli("licenses", bench, "--json")
        answer = json.loads(done.stdout)
        assert (done.exit_code, answer["redistributable"]) == (0, True)
        assert "its author is named and the picture has the same license (CC BY-SA 4.0: 1)" in answer["verdict"]
        assert "its author is named (CC BY 2.0: 1)" in answer["verdict"]
        credits.write_text("photograph,license\nbison,CC BY 4.0\ncat,CC BY-NC-ND 2.0\n")
        done = run_cli("licenses", bench)
        assert (done.exit_code, "passed on? no: CC BY-NC-ND 2.0 (1)" in done.stdout) == (1, True)
        credits.write_text("photograph,license\nbison,CC BY 4.0\ncat,\n")
        assert of(bench) == {NOT_STATED: 2, "CC BY 4.0": 1}
        assert run_cli("licenses", bench).exit_code == 3
        credits.write_text("name,terms\nbison,CC BY 4.0\n")
        refusal(run_cli("licenses", bench), "has the columns name, terms")
    finally:
        credits.unlink()


@pytest.mark.parametrize(
    ("spec", "license", "code"),
    [
        ("oxford-pet:/data", "CC-BY-SA-4.0", 0),
        ("rival10:/data", "ImageNet's terms: research only, not passed on", 1),
        ("folder:/photos", NOT_STATED, 3),
        ("somebodys:/photos", NOT_STATED, 3),
    ],
)
def test_without_credits_the_source_decides(bench, tmp_path, spec, license, code):
    import shutil

    copy = shutil.copytree(bench, tmp_path / "copy")
    card = json.loads((copy / "benchmark.json").read_text())
    card["source"]["spec"] = spec
    card["renderer"] |= {
        "network": {"name": "compact", "weights_sha256": "another"},
        "guide": {"name": "timm:resnet50.a1_in1k,lite:2"},
    }
    (copy / "benchmark.json").write_text(json.dumps(card))
    assert of(copy) == {license: 3}
    assert of(copy, "network") == {NOT_STATED: None}
    assert of(copy, "guide") == {"apache-2.0": None, "Apache-2.0": None}
    assert run_cli("licenses", copy).exit_code == code


@pytest.mark.parametrize("license", ["MIT", "CC-BY-4.0", "cc by 2.0 de", "BSD-3-Clause", "CC BY-NC 4.0"])
def test_these_ask_for_the_authors_name(license):
    allowed, conditions = terms(license)
    assert allowed is True
    assert "its author is named" in conditions
    assert ("nobody earns money with it" in conditions) == ("NC" in license)


def test_what_is_no_benchmark_is_refused(tmp_path):
    refusal(run_cli("licenses", tmp_path), "is not a benchmark")
