"""One bad model does not end a study, and a second run never shrinks what the first wrote."""

import pytest

from unfazed.errors import UserError
from unfazed.probes.noise import choose_levels
from unfazed.probes.noise_response import NoiseSettings
from unfazed.probes.run import read_probe
from unfazed.probes.study import run_study
from unfazed.report.sensitivity_tables import write_tables


def test_a_study_goes_on_without_a_bad_model_and_never_shrinks(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def build():\n    raise RuntimeError('no layers')\n")
    settings = NoiseSettings(choose_levels("linf", "60"))
    spec, out = f"python:{bad}:build", tmp_path / "results"
    study = run_study("sample", [spec, "lite:0"], out, settings, limit=2)
    assert study.slugs == ["lite-0"]
    assert "no layers" in study.failures[spec]
    before = read_probe(out, "noise")
    again = run_study("sample", ["other=lite:0"], out, settings, limit=1)
    assert again.slugs == ["other", "lite-0"]
    assert read_probe(out, "noise", ["lite-0"]).equals(before)
    tables = write_tables(out, again.slugs, again.noise, again.saliency, draws=20)
    assert set(tables["rfs"]["model"]) == {"lite:0", "other"}
    run_study("sample", ["lite:0"], out, settings, limit=1)
    assert read_probe(out, "noise", ["lite-0"])["source_id"].n_unique() == 2
    with pytest.raises(UserError, match="no layers"):
        run_study("sample", [spec], out, settings, limit=1)


def test_a_model_with_nan_logits_is_a_failure_and_not_a_number(tmp_path):
    bad = tmp_path / "nan.py"
    bad.write_text(
        "import torch\nfrom dataclasses import replace\nfrom unfazed.models import open_model\n\n\n"
        "class Nan(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.full((len(x), 1000), float('nan'))\n\n\n"
        "def build():\n    return replace(open_model('lite:0'), module=Nan())\n"
    )
    settings = NoiseSettings(choose_levels("linf", "60"))
    spec = f"python:{bad}:build"
    study = run_study("sample", [spec, "lite:0"], tmp_path / "results", settings, limit=1)
    assert study.slugs == ["lite-0"]
    assert "NaN" in study.failures[spec]
