"""A benchmark grows: more scenes, edits and runs are added, what is there stays, changed settings are refused."""

import json
import shutil

import pytest
from PIL import Image

from unswayed.benchmark import Benchmark, BuildSettings, build
from unswayed.errors import UserError
from unswayed.files.records import differences
from unswayed.sources import open_source


def settings(**given):
    return BuildSettings(**{"renderer": "paste", "size": 64, "recipe": "original,size-0.1", "limit": 1, **given})


def pictures(root):
    return {row["sample_id"]: row["sha256"] for row in Benchmark(root).manifest.to_pylist()}


def stamps(root):
    return {path: path.stat().st_mtime_ns for path in root.rglob("images/*/*.png") if "source" not in path.parts}


@pytest.mark.parametrize(
    ("more", "added"),
    [
        ({"limit": 2}, 3),
        ({"recipe": "original,size-0.1,position"}, 1),
        ({"recipe": "original,position,size-0.1", "limit": 2, "runs": 2}, 7),
    ],
)
def test_what_is_added_leaves_what_is_there(tmp_path, more, added):
    root = tmp_path / "b"
    build("sample", root, settings())
    before, times = pictures(root), stamps(root)
    built = build("sample", root, settings(**more))
    after = pictures(root)
    assert not built.failures
    assert {name: after[name] for name in before} == before
    assert {path: time for path, time in stamps(root).items() if path in times} == times
    controls = sum("reinsertion" in name for name in set(after) - set(before))
    assert len(after) - len(before) - controls == added
    card = json.loads((root / "benchmark.json").read_text())
    assert card["grown"][0]["source"]["scenes"] == 1
    assert build("sample", root, settings(**more)).made == 0


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """A function that makes a folder of sample photographs below the working folder."""
    monkeypatch.chdir(tmp_path)

    def make(name, *scenes):
        for scene in scenes:
            entry = open_source("sample").entry(scene)
            for file in (entry.image, entry.mask):
                (tmp_path / name).mkdir(exist_ok=True)
                shutil.copy(file, tmp_path / name)
        return tmp_path / name

    return make


def test_one_folder_in_four_spellings_is_one_source_that_resumes_and_grows(tmp_path, photographs):
    folder = photographs("grow", "cat", "cow")
    build("folder:grow", "b", settings(limit=None))
    before = pictures(tmp_path / "b")
    photographs("grow", "dog")
    for spec in ("folder:./grow/", f"folder:{folder}"):
        assert build(spec, "b", settings(limit=None)).failures == {}
    assert pictures(tmp_path / "b").items() > before.items()
    folder.rename(tmp_path / "renamed")
    photographs("renamed", "duck")
    assert build("folder:renamed", "b", settings(limit=None)).made > 0
    assert len(pictures(tmp_path / "b")) == 2 * len(before)


def test_another_folder_with_equal_names_is_refused(photographs):
    photographs("grow", "cat", "cow")
    build("folder:grow", "b", settings(limit=None))
    other = photographs("other", "cow", "cat")
    shutil.copy(other / "cow.jpg", other / "cat.jpg")
    with pytest.raises(UserError, match="contains another benchmark") as refused:
        build("folder:other", "b", settings(limit=None))
    assert "source.spec" in str(refused.value)


def test_a_grown_benchmark_is_the_one_built_at_once(tmp_path):
    build("sample", tmp_path / "grown", settings())
    build("sample", tmp_path / "grown", settings(limit=2))
    build("sample", tmp_path / "whole", settings(limit=2))
    assert pictures(tmp_path / "grown") == pictures(tmp_path / "whole")


@pytest.mark.parametrize(
    "changed", [{"seed": 1}, {"size": 96}, {"recipe": "original,position"}, {"frame": "squash", "limit": 2}]
)
def test_changed_settings_are_still_refused(tmp_path, changed):
    build("sample", tmp_path / "b", settings())
    with pytest.raises(UserError, match="contains another benchmark"):
        build("sample", tmp_path / "b", settings(**changed))


def test_another_recipe_is_refused_with_the_edits_that_differ():
    one, other = ({"recipe": {"edits": [item(name) for name in names]}} for names in (("a", "b"), ("a", "c")))
    other["recipe"]["edits"][0]["parameters"] = {"rate": 0.2}
    assert differences(one, other) == [
        "recipe.edits: only there: b",
        "recipe.edits: only now: c",
        "recipe.edits.a.parameters.rate: 0.1 there, 0.2 now",
    ]


def item(name):
    return {"name": name, "parameters": {"rate": 0.1}}


def test_less_than_is_there_is_refused(tmp_path):
    build("sample", tmp_path / "b", settings(limit=2))
    with pytest.raises(UserError, match="source.scenes: 2 there, 1 now"):
        build("sample", tmp_path / "b", settings())


@pytest.fixture
def folder(tmp_path):
    for name, count in (("ant", 6), ("bee", 6), ("cow", 2)):
        (tmp_path / "p" / name).mkdir(parents=True)
        for index in range(count):
            (tmp_path / "p" / name / f"{index}.jpg").write_bytes(b"x")
    return open_source(f"images:{tmp_path}/p")


def test_a_sample_is_balanced_seeded_and_nested(folder):
    six = folder.select(sample=6, seed=3)
    assert six.class_counts == {"ant": 2, "bee": 2, "cow": 2}
    assert six.ids == folder.select(sample=6, seed=3).ids
    assert set(six.ids) <= set(folder.select(sample=9, seed=3).ids)
    assert any(folder.select(sample=6, seed=seed).ids != six.ids for seed in range(5))
    assert folder.select(per_class=3, seed=3).class_counts == {"ant": 3, "bee": 3, "cow": 2}


def test_a_limit_that_takes_one_class_says_so(folder):
    assert folder.select(5).remarks == (
        "the first 5 scenes are all of the class 'ant'; --sample 5 draws them from all classes",
    )
    assert folder.select(7).remarks == () and folder.select(sample=5).remarks == ()
    with pytest.raises(UserError, match="limit and sample are given"):
        folder.select(3, sample=3)


def test_a_build_without_a_single_picture_does_not_bind_the_folder(tmp_path):
    scene = open_source("sample")["panda"]
    for name in ("1", "2"):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(scene.image).reduce(4).save(tmp_path / f"photos/{name}.jpg")
    failed = build(f"folder:{tmp_path / 'photos'}", tmp_path / "b", settings(limit=None))
    assert failed.counts["ok"] == 0 and "?segment=auto" in failed.failures["1"]
    built = build(f"folder:{tmp_path / 'photos'}?segment=grabcut", tmp_path / "b", settings(limit=1))
    assert not built.failures and set(pictures(tmp_path / "b")) == {
        f"1/{edit}/0" for edit in ("source", "original", "reinsertion", "size-0.1")
    }
