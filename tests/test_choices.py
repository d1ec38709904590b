"""The lists of names for type checkers and `--help` are those of the registries behind them."""

from __future__ import annotations

from typing import get_args

import pytest

import unswayed
from unswayed.analyses.factors import TABLES
from unswayed.analyses.settings import FACTOR_TABLES
from unswayed.benchmark import BuildSettings
from unswayed.choices import Precision, SamplerName, TableFormat
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings
from unswayed.evaluation.settings import DistributionSettings, SensitivitySettings
from unswayed.rendering.networks.loading import PRECISIONS
from unswayed.rendering.sampling.samplers import SAMPLERS
from unswayed.views.tables import FORMATS


@pytest.mark.parametrize(
    ("choices", "registry"),
    [
        (SamplerName, ["auto", *SAMPLERS]),
        (Precision, [*PRECISIONS]),
        (TableFormat, [*FORMATS]),
    ],
)
def test_every_registered_name_is_a_choice(choices, registry):
    assert list(get_args(choices)) == registry


def test_every_factor_table_is_in_the_help():
    assert list(TABLES) == list(FACTOR_TABLES)


@pytest.mark.parametrize(
    ("settings", "wrong", "words"),
    [
        (BuildSettings, {"sampler": "dppm"}, "no sampler 'dppm'; did you mean 'dpm'"),
        (BuildSettings, {"precision": "fp8"}, "no precision 'fp8'"),
        (BuildSettings, {"steps": 0}, "steps is 0\nallowed: 1 to 1000"),
        (BuildSettings, {"frame": "centre"}, "did you mean 'center'"),
        (EvaluateSettings, {"transform": "papre"}, "no transform 'papre'; did you mean 'paper'"),
        (EvaluateSettings, {"precision": "fp8"}, "no precision 'fp8'"),
        (EvaluateSettings, {"batch_size": 0}, "the setting batch_size is 0\nallowed: 1 or more"),
        (EvaluateSettings, {"limit": 0}, "the setting limit is 0"),
        (BuildSettings, {"seed": -1}, "the setting seed is -1\nallowed: 0 or more"),
        (DistributionSettings, {"out_above": 0.2}, "the setting out_above is 0.2\nallowed: 0.5 to 1"),
        (SensitivitySettings, {"class_by": "labels"}, "no class by 'labels'; did you mean 'label'"),
        (EvaluateSettings, {"engine": "rey"}, "no engine 'rey'; did you mean 'ray'"),
    ],
)
def test_a_wrong_setting_is_refused_when_it_is_made(settings, wrong, words):
    with pytest.raises(UserError, match=words):
        settings(**wrong)


def test_a_wrong_setting_is_refused_where_it_is_a_keyword(tmp_path):
    with pytest.raises(UserError, match="the setting resamples is 3\nallowed: 20 or more"):
        unswayed.analyze(tmp_path, resamples=3)
    with pytest.raises(UserError, match="the setting flips is -1\nallowed: 0 or more"):
        unswayed.report(tmp_path, tmp_path / "report.html", flips=-1)
