"""One bad model does not end a study, and a second run never shrinks what the first wrote."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest

from command_line import refused
from unswayed.errors import UserError
from unswayed.evaluation.probes import Opened, Probe, ProbeWork, measure_pictures, read_probe, run_probe
from unswayed.evaluation.settings import SensitivitySettings
from unswayed.evaluation.study import run_study
from unswayed.jobs.parts import ItemTable
from unswayed.jobs.table_job import Share
from unswayed.views.studies import write_tables


def test_a_study_goes_on_without_a_bad_model_and_never_shrinks(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def build():\n    raise RuntimeError('no layers')\n")
    spec, out = f"python:{bad}:build", tmp_path / "results"
    study = run_study("sample", [spec, "lite:0"], out, levels="60", limit=2)
    assert study.noise == ["lite-0"]
    assert "no layers" in study.failures[spec]
    before = read_probe(out, "noise")
    again = run_study("sample", ["other=lite:0"], out, levels="60", limit=1)
    assert again.noise == ["other", "lite-0"]
    assert read_probe(out, "noise", ["lite-0"]).equals(before)
    tables = write_tables(again, SensitivitySettings(resamples=20))
    assert set(tables["rfs"]["model"]) == {"lite:0", "other"}
    run_study("sample", ["lite:0"], out, levels="60", limit=1)
    assert read_probe(out, "noise", ["lite-0"])["source_id"].n_unique() == 2
    with pytest.raises(UserError, match="no layers"):
        run_study("sample", [spec], out, levels="60", limit=1)


def test_a_model_with_nan_logits_is_a_failure_and_not_a_number(tmp_path):
    bad = tmp_path / "nan.py"
    bad.write_text(
        "import torch\nfrom dataclasses import replace\nfrom unswayed.models import open_model\n\n\n"
        "class Nan(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.full((len(x), 1000), float('nan'))\n\n\n"
        "def build():\n    return replace(open_model('lite:0'), module=Nan())\n"
    )
    spec = f"python:{bad}:build"
    study = run_study("sample", [spec, "lite:0"], tmp_path / "results", levels="60", limit=1)
    assert study.noise == ["lite-0"]
    assert "NaN" in study.failures[spec]


SCHEMA = pa.schema([("source_id", pa.string()), ("value", pa.float64())])


class SmallProbe(Probe):
    """Measures every item by one function."""

    def __init__(self, path, settings, ids, measure):
        super().__init__(ItemTable(path, settings, ids, SCHEMA))
        self.measure = measure

    def load(self, item):
        return item


def stopped_after(count):
    """A measurement that is killed after so many pictures."""
    seen = []

    def measure(one, loaded):
        seen.append(one)
        if len(seen) > count:
            raise KeyboardInterrupt
        return [{"source_id": one, "value": 1.0}]

    return measure, seen


def test_a_run_with_the_same_process_id_overwrites_no_part_of_an_earlier_one(tmp_path, monkeypatch):
    monkeypatch.setattr("unswayed.jobs.parts.SECONDS", -1.0)
    monkeypatch.setattr("os.getpid", lambda: 1)
    ids = [f"s{n}" for n in range(6)]
    for count, expected in ((2, ids[:3]), (2, ids[2:5]), (9, ids[4:])):
        measure, seen = stopped_after(count)
        with contextlib.suppress(KeyboardInterrupt):
            run_probe(SmallProbe(tmp_path / "noise" / "m.parquet", {"a": 1}, ids, measure))
        assert seen == expected
    assert read_probe(tmp_path, "noise")["source_id"].to_list() == ids


def test_results_beside_the_card_of_other_settings_are_measured_again(tmp_path):
    path = tmp_path / "noise" / "m.parquet"

    def measured(value):
        rows = [{"source_id": "s", "value": value}]
        return run_probe(SmallProbe(path, {"a": value}, ["s"], lambda *_: rows)).measured

    assert measured(1.0) == 1
    earlier = path.with_suffix(".json").read_bytes()
    assert measured(2.0) == 1
    path.with_suffix(".json").write_bytes(earlier)  # what a kill between the two files leaves
    assert measured(1.0) == 1
    assert read_probe(tmp_path, "noise")["value"].to_list() == [1.0]


@pytest.mark.parametrize("harm", [Path.unlink, lambda part: part.write_bytes(b"half a part")], ids=["gone", "damaged"])
def test_a_part_that_is_lost_before_the_merge_is_an_error_and_measured_again(tmp_path, monkeypatch, harm):
    monkeypatch.setattr("unswayed.jobs.parts.SECONDS", -1.0)
    seen = []

    def measure(one, loaded):
        seen.append(one)
        return [{"source_id": one, "value": 1.0}]

    probe = SmallProbe(tmp_path / "noise" / "m.parquet", {"a": 1}, ["a", "b", "c"], measure)
    _, failures = measure_pictures([probe], probe.table.ids)
    harm(probe.table.parts().files()[0])
    with refused(given=r"1 of 3 pictures have no rows in .*", run=r"the same command again"):
        probe.table.merge(failures)
    assert not probe.table.path.exists()
    assert run_probe(probe).measured == 1
    assert len(seen) == 4
    assert read_probe(tmp_path, "noise")["source_id"].to_list() == ["a", "b", "c"]


@pytest.mark.parametrize(("careful", "lanes"), [(False, 3), (True, 1)])
def test_with_care_no_other_picture_is_in_work_when_one_ends_the_process(tmp_path, monkeypatch, careful, lanes):
    made = []

    def probe(original):
        made.append(original)
        rows = [{"source_id": "a", "value": 1.0}]
        return SmallProbe(tmp_path / "noise" / "m.parquet", {}, ["a"], lambda *_: rows)

    monkeypatch.setattr("unswayed.evaluation.probes.copies", lambda original, count, *_: [original] * count)
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)
    work = ProbeWork(lambda *_: Opened("model", probe, "cpu", 1), tmp_path, 1, lanes=3)
    [reply] = work(Share((("m", "noise"),), careful=careful))
    assert (reply.error, made) == (None, ["model"] * lanes)
