"""The gate: pass, fail and cannot tell follow from intervals; rules come from the command line and from TOML."""

from xml.etree import ElementTree

import polars as pl
import pytest

from prediction_worlds import benchmark, folder, frame
from unswayed.analyses.drops.gate import check, junit_xml, run_checks, verdict
from unswayed.analyses.drops.limits import Rules, gate_verdict, read_rules
from unswayed.analyses.settings import parse_limits
from unswayed.errors import UserError


def answers(n, lost, edit="size-0.05"):
    """n photographs right on the original, of which `lost` are wrong after the edit."""
    return frame({"original": [1] * n, edit: [0] * lost + [1] * (n - lost)})


def only(checks):
    assert checks.height == 1
    return checks.row(0, named=True)


@pytest.mark.parametrize(
    ("n", "lost", "limit", "expected"),
    [(400, 20, 20, "pass"), (400, 160, 20, "fail"), (400, 80, 20, "cannot tell"), (20, 2, 20, "cannot tell")],
)
def test_the_three_verdicts_of_a_drop(n, lost, limit, expected):
    checks = run_checks(answers(n, lost), Rules(max_drop={"size-0.05": limit})).checks
    found = only(checks)
    assert found["verdict"] == verdict(checks) == expected
    assert found["value"] == pytest.approx(100 * lost / n)
    assert (found["low"] <= limit < found["high"]) == (expected == "cannot tell")
    assert str(n) in found["reason"]


@pytest.mark.parametrize(("least", "expected"), [(60, "pass"), (75, "cannot tell"), (90, "fail")])
def test_the_three_verdicts_of_an_accuracy(least, expected):
    checks = run_checks(answers(200, 50), Rules(min_accuracy={"size-0.05": least})).checks
    assert only(checks)["verdict"] == expected
    assert only(checks)["value"] == pytest.approx(75)


def test_judgement_at_the_threshold_itself():
    assert gate_verdict(1, 4, 4) == "pass"
    assert gate_verdict(4, 5, 4) == "cannot tell"
    assert gate_verdict(4.01, 5, 4) == "fail"


@pytest.mark.parametrize(
    ("n", "words"),
    [(1, ("n = 1: nothing can be concluded from one photograph",)), (4, ("n = 4: one photograph",)), (5, ())],
)
def test_a_pass_with_very_few_photographs_has_a_remark(n, words):
    found = check(answers(n, 0), min_accuracy={"original": 5})
    assert found.verdict == "pass" and len(found.remarks) == len(words)
    assert all(remark.startswith(start) for remark, start in zip(found.remarks, words, strict=True))


def test_a_failure_outweighs_a_doubt_and_a_doubt_a_pass():
    table = pl.DataFrame({"verdict": ["pass", "cannot tell", "fail"]})
    assert verdict(table) == "fail"
    assert verdict(table[:2]) == "cannot tell"
    assert verdict(table[:1]) == "pass"


def test_patterns_the_average_and_an_edits_own_limit():
    predictions = frame({"original": [1] * 300, "size-0.05": [1] * 300, "size-0.1": [1] * 300, "position": [0] * 300})
    checks = run_checks(predictions, Rules(max_drop={"size-*": 10, "size-0.1": 5, "average": 90})).checks
    assert dict(checks.select("edit", "threshold").rows()) == {"size-0.05": 10, "size-0.1": 5, "average": 90}
    assert verdict(checks) == "pass"


@pytest.mark.parametrize(
    ("worse", "margin", "expected"), [(0, 5, "pass"), (60, 5, "fail"), (15, 5, "cannot tell"), (3, 0, "cannot tell")]
)
def test_the_three_verdicts_against_a_baseline(worse, margin, expected):
    rules = Rules(baseline=answers(300, 30), margin=margin)
    checks = run_checks(answers(300, 30 + worse), rules).checks
    found = only(checks.filter(edit="size-0.05"))
    assert found["measure"] == "accuracy lost"
    assert found["value"] == pytest.approx(100 * worse / 300)
    assert found["verdict"] == expected


def test_a_better_original_is_no_fault_unless_drops_are_asked_for():
    old = frame({"original": [1] * 200 + [0] * 100, "size-0.05": [1] * 150 + [0] * 150})
    new = frame({"original": [1] * 300, "size-0.05": [1] * 150 + [0] * 150})
    assert run_checks(new, Rules(baseline=old, margin=4)).verdict == "pass"
    assert run_checks(new, Rules(baseline=old, margin=4, measure="drop")).verdict == "fail"


def test_the_same_weights_with_the_same_answers_pass_without_a_margin(tmp_path):
    old, new = (folder(tmp_path / name, {"m": answers(30, 3)}) for name in ("old", "new"))
    checks = run_checks(new, Rules(baseline=old)).checks
    assert verdict(checks) == "pass"
    assert checks["reason"].unique().to_list() == ["the same weights give the same predictions"]
    # A wrapper or another program computes something else with the same weights.
    for changed in ({"weights_sha256": "another"}, {"spec": "m+flip"}, {"origin": {"code_sha256": "another"}}):
        other = folder(tmp_path / "other", {"m": answers(30, 3)}, {"m": changed})
        assert run_checks(other, Rules(baseline=old)).verdict == "cannot tell"


def test_the_only_model_is_held_against_the_only_model(tmp_path):
    old = folder(tmp_path / "old", {"release-1": answers(200, 10)})
    new = folder(tmp_path / "new", {"release-2": answers(200, 10)})
    assert run_checks(new, Rules(baseline=old, margin=3)).verdict == "pass"
    both = folder(tmp_path / "new", {"release-3": answers(200, 10)})
    with pytest.raises(UserError, match="the baseline has no predictions of release-2, release-3; it has release-1"):
        run_checks(both, Rules(baseline=old, margin=3))


def test_rules_from_toml_and_from_the_command_line(tmp_path):
    config = tmp_path / "gate.toml"
    config.write_text(
        'level = 0.9\nmodels = ["m"]\n[max-drop]\n"size-0.05" = 20\naverage = 15\n[min-accuracy]\noriginal = 70\n'
        '[baseline]\npath = "old"\nmargin = 1.5\n'
    )
    rules = read_rules(config, max_drop={"average": 12.0}, margin=None, models=())
    assert rules == Rules(
        max_drop={"size-0.05": 20.0, "average": 12.0},
        min_accuracy={"original": 70.0},
        baseline="old",
        margin=1.5,
        level=0.9,
        models=("m",),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[max-drops]\na = 1\n", "did you mean 'max-drop'"),
        ("[baseline]\npth = 'x'\n", "did you mean 'path'"),
        ("[max-drop]\na = 'much'\n", "gate.toml, .max-drop.: the field 'a' is 'much'\nallowed: a number"),
        ("max-drop = 3\n", "gate.toml: the field 'max-drop' is 3\nallowed: a table .max-drop."),
        ("[min-threshold]\nsize = 3\n", "gate.toml, .min-threshold.: the field 'size' is 3\nallowed: text"),
        ('models = "lite:0"\n', "gate.toml: the field 'models' is 'lite:0'\nallowed: a list"),
        ("models = 5\n", "gate.toml: the field 'models' is 5\nallowed: a list"),
        ("baseline = 5\n", "gate.toml: the field 'baseline' is 5\nallowed: a table .baseline."),
        ("level = '0.9'\n", "gate.toml: the field 'level' is '0.9'\nallowed: a number"),
        ("level = nan\n[max-drop]\na = 1\n", "gate.toml, the level of the intervals is nan\nallowed: 0.5 to below 1"),
        ("[max-drop]\na = nan\n", "gate.toml, the drop allowed for a is nan points\nallowed: -100 to 100"),
        ("[min-accuracy]\na = inf\n", "gate.toml, the accuracy wanted for a is inf %\nallowed: percent"),
        ("[baseline]\npath = 5\n", "gate.toml, .baseline.: the field 'path' is 5\nallowed: text"),
        ("[baseline]\npath = 'x'\nmargin = '1'\n", "the field 'margin' is '1'\nallowed: a number"),
        ("[baseline]\npath = 'x'\nmargin = true\n", "the field 'margin' is True\nallowed: a number"),
        ("[baseline]\npath = 'x'\nmargin = nan\n", "gate.toml, the margin is nan points\nallowed: 0 to 100"),
        ("[baseline]\npath = 'x'\nmeasure = 'acuracy'\n", "the field 'measure' is 'acuracy'\nallowed: accuracy, drop"),
        ("not toml", "is not TOML"),
        ("", "there is nothing to check"),
    ],
)
def test_wrong_configs_are_refused(tmp_path, text, message):
    (tmp_path / "gate.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_rules(tmp_path / "gate.toml")


def test_a_config_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_rules(tmp_path / "gate.toml")


@pytest.mark.parametrize("text", ["size-0.05", "size-0.05=", "=3", "size-0.05=many"])
def test_wrong_limits_are_refused(text):
    with pytest.raises(UserError, match="EDIT=NUMBER"):
        parse_limits([text], "--max-drop")


def test_a_bare_accuracy_is_of_the_original():
    assert parse_limits(["80", "size-0.1=60"], "--min-accuracy", bare="original") == {"original": 80, "size-0.1": 60}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"min_accuracy": {"original": 0.9}}, "90 means 90 %"),
        ({"max_drop": {"size-0.05": 200}}, "-100 to 100"),
        ({"max_drop": ["size-0.05=20"]}, "a mapping from edits or attributes to limits"),
        ({"min_threshold": "size=0.04@80"}, "a mapping from edits or attributes to limits"),
        ({"max_drop": {"a": 1}, "measure": "acuracy"}, "did you mean 'accuracy'"),
        ({"max_drop": {"a": 1}, "margin": -1}, "0 to 100"),
    ],
)
def test_wrong_rules_are_refused(rules, message):
    with pytest.raises(UserError, match=message):
        Rules(**rules)


def test_unknown_edits_and_models_are_refused():
    with pytest.raises(UserError, match="no edit 'size-0.5'; did you mean 'size-0.05'"):
        run_checks(answers(20, 1), Rules(max_drop={"size-0.5": 3}))
    with pytest.raises(UserError, match="no edit 'blur-"):
        run_checks(answers(20, 1), Rules(max_drop={"blur-*": 3}))
    with pytest.raises(UserError, match="no model 'n'"):
        run_checks(answers(20, 1), Rules(max_drop={"size-0.05": 3}, models=("n",)))


def test_junit_counts_failures_and_doubts():
    checks = run_checks(
        pl.concat([answers(400, 160), answers(400, 80, "position<&>\x07").filter(pl.col("edit") != "original")]),
        Rules(max_drop={"size-0.05": 20, "position<&>\x07": 20}, min_accuracy={"original": 50}),
    ).checks
    suite = ElementTree.fromstring(junit_xml(checks))
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
    }
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {
        "size-0.05: drop": ["failure", "system-out"],
        "position<&> : drop": ["skipped", "system-out"],
        "original: accuracy": ["system-out"],
    }


def test_a_pattern_covers_edits_of_the_benchmark_that_were_not_measured(tmp_path):
    edits = {name: {} for name in ("original", "size-0.1", "size-0.2")}
    bench = benchmark(tmp_path / "bench", edits, 4)
    answers = {"original": [1] * 4, "size-0.1": [1] * 4}
    predictions = folder(tmp_path / "p", {"a": frame(answers)}, {"a": {"benchmark": {"path": str(bench)}}})
    checks = run_checks(predictions, Rules(max_drop={"size-*": 90.0})).checks
    assert dict(checks.select("edit", "verdict").iter_rows()) == {"size-0.1": "pass", "size-0.2": "not measured"}
    assert verdict(checks) == "not measured"


def test_one_model_is_not_split_into_its_letters():
    assert read_rules(None, models="lite:0", min_accuracy={"original": 75.0}).models == ("lite:0",)
