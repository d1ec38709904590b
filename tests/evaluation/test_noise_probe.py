import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from unswayed.errors import BadPicture, UserError
from unswayed.evaluation.noise import NoiseProbe
from unswayed.evaluation.probes import read_probe, run_probe
from unswayed.evaluation.settings import SensitivitySettings
from unswayed.labels import own
from unswayed.models import Classifier, Transform
from unswayed.scene import Scene
from unswayed.sources.source import Entry, Source

LABELS = own(["dark", "bright"])


def measure_noise(model, source, folder, settings, batch_size=None, progress=None):
    return run_probe(NoiseProbe(model, source, folder, replace(settings, batch_size=batch_size)), progress)


class Brightness(nn.Module):
    """Says `bright` by how far the mean of the top left quarter exceeds one half."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(20.0))
        self.passes: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.append(len(x))
        half = x.shape[-1] // 2
        score = self.gain * (x[:, :, :half, :half].mean((1, 2, 3)) - 0.5)
        return torch.stack([-score, score], 1)


@pytest.fixture
def model():
    transform = Transform(resize=32, crop=32, mean=(0.0,) * 3, std=(1.0,) * 3)
    return Classifier(Brightness(), transform, LABELS, "brightness", device="cpu")


def load(entry):
    """A picture whose object fills the top left quarter, bright for label 1; some are bad on purpose."""
    if entry.id == "broken":
        raise BadPicture("broken: the file is no picture")
    if entry.id == "crash":
        raise OSError("the disk went away")
    level = 220 if entry.label else 30
    image = np.full((32, 32, 3), level, np.uint8)
    mask = np.zeros((32, 32), np.float32)
    mask[:16, :16] = 1
    if entry.id == "full":
        mask[:] = 1
    return Scene(entry.id, image, mask, entry.label, parts={"corner": np.pad(np.ones((4, 4), np.float32), (0, 28))})


def source(*ids, labels=LABELS):
    return Source("made", labels, tuple(Entry(one, f"{one}.png", None, i % 2) for i, one in enumerate(ids)), load)


SETTINGS = SensitivitySettings(levels="30,210", seeds=2)


def test_every_variant_has_a_row_and_the_clean_pass_is_made_once(model, tmp_path):
    measure_noise(model, source("a", "b"), tmp_path, SETTINGS, batch_size=7)
    rows = read_probe(tmp_path, "noise")
    one = rows.filter(source_id="a")
    assert len(one.filter(norm="clean")) == 1
    assert len(one.filter(norm="linf")) == 2 * 2 * 4  # levels × seeds × foreground, background, everything, corner
    assert set(one.filter(norm="grey")["region"]) == {"foreground", "background", "corner"}
    assert sum(model.module.passes) == len(rows)
    assert max(model.module.passes) == 7


def test_only_the_region_that_the_model_looks_at_matters(model, tmp_path):
    measure_noise(model, source("a", "b"), tmp_path, SETTINGS)
    rows = read_probe(tmp_path, "noise")
    clean = dict(rows.filter(norm="clean").select("source_id", "true_probability").iter_rows())
    for row in rows.filter(region="background").iter_rows(named=True):
        assert row["true_probability"] == pytest.approx(clean[row["source_id"]], abs=1e-6)
    gray = rows.filter(norm="grey", region="foreground")
    assert gray["true_probability"].to_list() == pytest.approx([0.5, 0.5], abs=0.02)
    strong = rows.filter(norm="linf", level=210.0, region="foreground", source_id="a")["true_probability"]
    assert strong.max() < clean["a"]
    assert strong.n_unique() == 2  # two seeds, two draws


def test_results_do_not_depend_on_the_batch_or_on_the_neighbors(model, tmp_path):
    measure_noise(model, source("a", "b", "c"), tmp_path / "many", SETTINGS, batch_size=64)
    measure_noise(model, source("c"), tmp_path / "alone", SETTINGS, batch_size=1)
    many, alone = (read_probe(tmp_path / name, "noise").filter(source_id="c") for name in ("many", "alone"))
    assert many.drop("true_probability", "probability").equals(alone.drop("true_probability", "probability"))
    assert many["true_probability"].to_list() == pytest.approx(alone["true_probability"].to_list(), abs=1e-6)


def test_one_bad_picture_never_ends_the_run(model, tmp_path):
    outcome = measure_noise(model, source("a", "broken", "full", "crash", "b"), tmp_path, SETTINGS)
    assert set(outcome.failures) == {"broken", "full", "crash"}
    assert "covers the whole picture" in outcome.failures["full"]
    assert "the disk went away" in outcome.failures["crash"]
    assert read_probe(tmp_path, "noise")["source_id"].unique().sort().to_list() == ["a", "b"]
    card = json.loads((tmp_path / "noise/brightness.json").read_text())
    assert card["failures"] == outcome.failures
    assert card["settings"]["weights_sha256"] == model.weights_hash
    with pytest.raises(UserError, match="no picture could be measured: broken"):
        measure_noise(model, source("broken"), tmp_path / "none", SETTINGS)


def test_a_finished_picture_is_not_measured_again(model, tmp_path):
    measure_noise(model, source("a", "b"), tmp_path, SETTINGS)
    before = len(model.module.passes)
    again = measure_noise(model, source("a", "b", "c", "d"), tmp_path, SETTINGS)
    assert (again.measured, again.resumed) == (2, 2)
    assert read_probe(tmp_path, "noise")["source_id"].unique(maintain_order=True).to_list() == ["a", "b", "c", "d"]
    assert len(model.module.passes) == 2 * before
    fewer = measure_noise(model, source("a"), tmp_path, SETTINGS)
    assert (fewer.measured, fewer.resumed) == (0, 1)


def test_a_stopped_run_goes_on_from_its_parts(model, tmp_path, monkeypatch):
    monkeypatch.setattr("unswayed.jobs.parts.SECONDS", -1.0)

    class Stopped(Exception):
        pass

    def stop_at_three(more):
        stop_at_three.count += more
        if stop_at_three.count == 3:
            raise Stopped

    stop_at_three.count = 0
    with pytest.raises(Stopped):
        measure_noise(model, source("a", "b", "c", "d"), tmp_path, SETTINGS, progress=stop_at_three)
    assert not (tmp_path / "noise/brightness.parquet").exists()
    resumed = measure_noise(model, source("a", "b", "c", "d"), tmp_path, SETTINGS)
    assert (resumed.measured, resumed.resumed) == (2, 2)
    assert not (tmp_path / "noise/parts").exists()
    whole = measure_noise(model, source("a", "b", "c", "d"), tmp_path / "other", SETTINGS)
    assert whole.resumed == 0
    assert read_probe(tmp_path, "noise").equals(read_probe(tmp_path / "other", "noise"))


def test_changed_weights_or_settings_are_measured_anew(model, tmp_path):
    measure_noise(model, source("a"), tmp_path, SETTINGS)
    changed = Brightness()
    with torch.no_grad():
        changed.gain.fill_(5.0)
    other = Classifier(changed, model.transform, LABELS, "brightness", device="cpu")
    assert measure_noise(other, source("a"), tmp_path, SETTINGS).resumed == 0
    assert measure_noise(other, source("a"), tmp_path, SensitivitySettings(norm="l2", levels="25")).resumed == 0
    assert read_probe(tmp_path, "noise").filter(pl.col("norm") == "l2")["level"].unique().to_list() == [25.0]


def test_bad_settings_and_sources_are_refused(model, tmp_path):
    with pytest.raises(UserError, match="the setting seeds is 0"):
        SensitivitySettings(seeds=0)
    with pytest.raises(UserError, match="no norm"):
        measure_noise(model, source("a"), tmp_path, SensitivitySettings(norm="l1"))
    with pytest.raises(UserError, match="counterpart"):
        measure_noise(model, source("a", labels=own(["cat", "dog"])), tmp_path, SETTINGS)
    with pytest.raises(UserError, match="no results of the kind"):
        read_probe(tmp_path, "noise")
