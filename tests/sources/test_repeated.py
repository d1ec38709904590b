"""Photographs that occur more than once."""

import shutil
from pathlib import Path

from unswayed.benchmark import BuildSettings, build
from unswayed.evaluation.inputs import open_pictures
from unswayed.sources import open_source
from unswayed.sources.source import repeated_photographs, same_files


def test_a_photograph_with_two_classes_is_pointed_out_by_build_and_evaluate(tmp_path: Path) -> None:
    entry = open_source("sample").entry("dog")
    for name in ("cats/rex", "dogs/rex", "dogs/rex_again"):
        path = tmp_path / "photos" / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(entry.image, path)
        shutil.copy(str(entry.mask), path.with_suffix(".png"))
    settings = BuildSettings(recipe="size=0.05", renderer="paste", quality="off")
    built = build(f"folder:{tmp_path / 'photos'}", tmp_path / "bench", settings)
    [warning] = [one for one in built.warnings if "another class" in one]
    assert warning.startswith("3 scenes show a photograph") and "cats--rex" in warning and "dogs--rex" in warning
    assert warning in open_pictures(str(tmp_path / "bench")).remarks


def test_other_objects_in_one_photograph_are_no_repetition():
    scenes = [("a", ("picture", "mask 1"), 0), ("b", ("picture", "mask 2"), 1)]
    assert repeated_photographs(scenes) == []


def test_copies_within_a_class_are_counted():
    scenes = [(name, "same", 3) for name in "abcd"] + [("e", "other", 3)]
    [warning] = repeated_photographs(scenes)
    assert warning.startswith("4 scenes show a photograph that occurs more than once") and warning.endswith("a = b = c")


def test_files_of_the_same_content_are_found_under_other_names(tmp_path: Path) -> None:
    for name, data in {"a": b"one", "b": b"two", "c": b"three", "other/x": b"one", "other/y": b"six"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    mine, others = [str(tmp_path / name) for name in "abcd"], [str(tmp_path / "other" / name) for name in "xyz"]
    assert same_files(mine, others) == {str(tmp_path / "a")}
    assert same_files(mine, []) == set()
