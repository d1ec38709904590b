"""Image-text agreement: limits learned on the control, on constructed scores and with a CLIP of random weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from command_line import refused, run_cli
from tiny_pipelines import SIDE, clip_tokenizer, write_pipeline
from unswayed.benchmark import agreement
from unswayed.benchmark.agreement import agreement_faults, measured_agreement
from unswayed.benchmark.building import build
from unswayed.benchmark.rows import Row, read_manifest
from unswayed.benchmark.validity import judge


def write_clip(folder: Path) -> Path:
    """A CLIP of transformers with random weights, its tokenizer and its image processor."""
    import transformers as t

    tokens = clip_tokenizer()
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {
        **small,
        "vocab_size": len(tokens),
        "bos_token_id": tokens.bos_token_id,
        "eos_token_id": tokens.eos_token_id,
    }
    config = t.CLIPConfig(
        text_config=text, vision_config={**small, "image_size": 32, "patch_size": 8}, projection_dim=8
    )
    with torch.random.fork_rng():
        torch.manual_seed(5)
        t.CLIPModel(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    t.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def test_the_fault_is_the_share_of_controls_that_match_as_well() -> None:
    controls = np.linspace(0, 1, 101)
    assert agreement_faults(np.array([2.0, 0.955, 0.945, -1.0]), controls) == pytest.approx([0, 5 / 101, 6 / 101, 1])
    assert np.isnan(agreement_faults(np.array([1.0]), np.array([]))).all()
    assert judge({"agreement": 0.0}).score == 1.0 and judge({"agreement": 0.05}).valid
    assert judge({"agreement": 0.06}).reasons == (
        "6% of the controls match the words as well as this picture (limit 0.05)",
    )


def _row(source: str, edit: str, words: str | None = None) -> Row:
    return Row(source, edit, path=f"{edit}/{source}.png", control="inversion" if words else None, validity=0.9,
               values={"words": words} if words else {}, validity_measures={"crop": 0.1})  # fmt: skip


def test_the_limit_is_learned_for_each_text_on_the_controls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On constructed embeddings: pictures and texts are unit vectors, and a match is their cosine."""
    beach, street = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    rng = np.random.default_rng(0)
    rows, embedded = [], {}
    for number in range(40):
        for edit, words, direction in (
            ("inversion", None, np.array([0.2, 0.5, 1.0])),  # the controls match the street more than the beach
            ("beach", "a beach", beach + 0.1),
            ("street", "a street", street if number % 2 else np.array([0.2, 0.5, 1.0])),  # half of them show nothing
            ("original", None, beach),  # not a control
        ):
            row = _row(f"s{number:02}", edit, words)
            noisy = direction + 0.02 * rng.normal(size=3)
            rows.append(row)
            embedded[row.sample_id] = noisy / np.linalg.norm(noisy)

    class Model:
        weights_hash = "0" * 64

    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(agreement, "_opened", lambda model, texts, device: asked.append(texts) or Model())
    monkeypatch.setattr(
        agreement,
        "_matches",
        lambda root, rows, classifier: {
            row.sample_id: np.array([embedded[row.sample_id] @ beach, embedded[row.sample_id] @ street]) for row in rows
        },
    )
    measured, facts = measured_agreement(Path(), rows, "open_clip:made/up")
    assert asked == [("a beach", "a street")] and facts["controls"] == 40
    by = {row.sample_id: row for row in measured}
    assert all(by[f"s{n:02}/beach/0"].validity_measures["agreement"] == 0 for n in range(40))
    valid = [by[f"s{n:02}/street/0"].validity >= 0.5 for n in range(40)]
    assert all(valid[1::2]) and sum(valid[::2]) <= 3
    assert all(by[f"s{n:02}/{edit}/0"] == rows[4 * n + at] for n in range(40) for at, edit in ((0, "inversion"), (3, "original")))  # fmt: skip  # noqa: E501


def test_the_words_recipe_with_its_control_and_the_agreement_end_to_end(tmp_path: Path) -> None:
    pipeline, clip = write_pipeline("sd-inpaint", tmp_path / "pipeline"), write_clip(tmp_path / "clip")
    said = run_cli("build", "sample", "-o", tmp_path / "bench", "--recipe", "words", "--limit", 2, "--steps", 1,
                   "--renderer", f"diffusers:{pipeline}?size={SIDE}", "--pixels", SIDE, "--device", "cpu",
                   "--workers", 1, "--removal", "patches", "--agreement", f"transformers:{clip}", code=0)  # fmt: skip
    assert "there is no GPU: 50 steps of the pipeline will take about" in said.stderr
    rows = read_manifest(tmp_path / "bench").to_pylist()
    drawn = [row for row in rows if row["edit"].startswith("background-")]
    assert len(drawn) == 48 and {row["status"] for row in rows} == {"ok"}
    shares = [json.loads(row["validity_measures"])["agreement"] for row in drawn]
    assert set(shares) <= {0.0, 0.5, 1.0} and len(set(shares)) > 1
    assert all("agreement" not in row["validity_measures"] for row in rows if row["edit"] == "inversion")
    for row in drawn:
        doubted = any("controls match the words" in reason for reason in json.loads(row["validity_reasons"]))
        assert doubted == (json.loads(row["validity_measures"])["agreement"] > 0.05)
    card = json.loads((tmp_path / "bench" / "benchmark.json").read_text())
    assert card["agreement"]["controls"] == 2 and len(card["agreement"]["weights_sha256"]) == 64
    again = run_cli("build", "sample", "-o", tmp_path / "bench", "--recipe", "words", "--limit", 2, "--steps", 1,
                    "--renderer", f"diffusers:{pipeline}?size={SIDE}", "--pixels", SIDE, "--device", "cpu",
                    "--workers", 1, "--removal", "patches", code=0)  # fmt: skip
    assert "all made before" in again.stdout and read_manifest(tmp_path / "bench").to_pylist() == rows
    run_cli("evaluate", tmp_path / "bench", "-m", "lite:0", "-o", tmp_path / "predictions", "--device", "cpu", code=0)
    table = json.loads(run_cli("analyze", tmp_path / "predictions", "--format", "json", code=0).stdout)
    net = [row for row in table if str(row.get("edit", "")).startswith("background-")]
    assert len(net) == 24 and all(row["control"] == "inversion" and row["net_drop"] is not None for row in net)


def test_a_classifier_that_reads_no_texts_is_refused(tmp_path: Path) -> None:
    pipeline = write_pipeline("sd-inpaint", tmp_path / "pipeline")
    with refused("lite:0 does not compare pictures with texts", allowed="open_clip"):
        build("sample", tmp_path / "bench", recipe="background=on a beach", limit=1, steps=1, size=SIDE, workers=1,
              renderer=f"diffusers:{pipeline}?size={SIDE}", device="cpu", agreement="lite:0")  # fmt: skip
    assert not (tmp_path / "bench" / "images").exists()
