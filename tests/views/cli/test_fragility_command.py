"""`unswayed fragility`: a table, JSON and GIF files of one photograph."""

from __future__ import annotations

import json

from PIL import Image

from command_line import refusal, run_cli
from unswayed.sources import open_source


def test_a_table_json_and_films(tmp_path):
    entry = open_source("sample").entry("koala")
    changes = ("--change", "object blurred", "--change", "object darker", "--seed", 0)
    shown = run_cli("fragility", entry.image, "--mask", entry.mask, *changes, "--films", tmp_path / "films")
    assert shown.exit_code == 0, shown.output
    first, _, _, blurred, darker = shown.stdout.splitlines()
    assert first.startswith("lite:0: koala, ")
    assert blurred.split()[:4] == ["object", "blurred", "16", "%"]
    assert "no change up to the limit (-5 stops) changes it" in darker
    assert max(map(len, shown.stdout.splitlines())) <= 80
    [film] = (tmp_path / "films").glob("*object_blurred.gif")
    found = json.loads(run_cli("fragility", entry.image, "--mask", entry.mask, *changes[:2], "--json").stdout)
    with Image.open(film) as opened:
        assert opened.n_frames == len(found[0]["tried"])
    assert found[0]["after"] == "langur"


def test_an_unknown_change_and_two_masks_are_refused():
    entry = open_source("sample").entry("koala")
    refusal(run_cli("fragility", entry.image, "--change", "object hiden"), "object hiden")
    both = run_cli("fragility", entry.image, "--mask", entry.mask, "--box", "1,2,30,40")
    refusal(both, "one of them")
