"""Importing: the official release's folders or shards, or any folder-an-edit, with labels on the right pictures."""

from __future__ import annotations

import csv
import io
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unswayed.benchmark import Benchmark, BuildSettings, build, import_benchmark, verify
from unswayed.errors import UserError

NAMES = {
    "ori": "original",
    "full": "size-full",
    "rec": "inversion",
    "20_smooth": "background-simple",
    "20_hard": "background-complex",
    "20_adv": "background-adversarial",
    "random_bg": "background-random",
    "01": "size-0.1",
    "008": "size-0.08",
    "005": "size-0.05",
    "rp": "position",
    "rd": "direction",
}
LABELS = {"ILSVRC2012_val_00000003": 230, "ILSVRC2012_val_00000012": 286, "ILSVRC2012_val_00000101": 0}


def picture_bytes(folder: str, stem: str) -> bytes:
    """A picture that no other folder or stem has."""
    file = io.BytesIO()
    seed = sum(map(ord, folder + stem))
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG" if folder in ("ori", "full") else "PNG")
    return file.getvalue()


def suffix(folder: str) -> str:
    return ".JPEG" if folder in ("ori", "full") else ".png"


@pytest.fixture
def release(tmp_path):
    root = tmp_path / "download" / "ImageNet-E"
    for folder in NAMES:
        (root / folder).mkdir(parents=True)
        for stem in LABELS:
            (root / folder / f"{stem}{suffix(folder)}").write_bytes(picture_bytes(folder, stem))
    lines = [f"{stem}.JPEG\t{label}" for stem, label in reversed(LABELS.items())]
    (root / "labels.txt").write_text("\n".join(lines) + "\n")
    return root


def check(bench: Path) -> list[dict]:
    """Every picture is the one of its folder and stem, and has its label."""
    folders = {edit: folder for folder, edit in NAMES.items()}
    rows = Benchmark(bench).manifest.to_pylist()
    assert len(rows) == 12 * 3
    for row in rows:
        assert row["status"] == "ok"
        assert row["label"] == LABELS[row["source_id"]]
        assert (bench / row["path"]).read_bytes() == picture_bytes(folders[row["edit"]], row["source_id"])
    assert verify(bench).passed
    return rows


@pytest.mark.parametrize("copy", [False, True])
def test_the_official_folders(release, tmp_path, copy):
    imported = import_benchmark(release, tmp_path / "bench", copy=copy)
    assert (imported.counts["ok"], imported.sources) == (36, 3)
    assert imported.edits[0] == "original"
    rows = check(tmp_path / "bench")
    assert all((tmp_path / "bench" / row["path"]).is_symlink() is not copy for row in rows)
    controls = {row["edit"]: row["control"] for row in rows}
    assert controls["background-simple"] == "inversion"
    assert controls["size-0.05"] is None  # the release has no reinsertion


def test_the_folder_above_will_do_and_a_second_import_changes_nothing(release, tmp_path, tree):
    import_benchmark(release.parent, tmp_path / "bench")
    before = tree(tmp_path / "bench")
    import_benchmark(release, tmp_path / "bench")
    assert tree(tmp_path / "bench") == before


def zipped(release: Path, path: Path, prefix: str, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(release.rglob("*")):
            if file.is_file():
                archive.write(file, f"{prefix}{file.relative_to(release).as_posix()}")
        for name, data in more.items():
            archive.writestr(name, data)
    return path


def tarred(release: Path, path: Path, mode: str, prefix: str) -> Path:
    with tarfile.open(path, mode) as archive:
        for file in sorted(release.rglob("*")):
            archive.add(file, f"{prefix}{file.relative_to(release).as_posix()}", recursive=False)
    return path


@pytest.mark.parametrize("prefix", ["", "ImageNet-E/", "data/2023/ImageNet-E/"])
@pytest.mark.parametrize("kind", ["zip", "w:", "w:gz", "w:xz"])
def test_the_official_archive_in_any_nesting(release, tmp_path, kind, prefix):
    # The name says nothing: what the file is decides.
    path = tmp_path / "ImageNet-E.download"
    if kind == "zip":
        zipped(release, path, prefix, **{"__MACOSX/ori/._ILSVRC2012_val_00000003.JPEG": b"no picture"})
    else:
        tarred(release, path, kind, prefix)
    (tmp_path / "labels.txt").write_text("of another dataset\t1\n")
    import_benchmark(path, tmp_path / "bench")
    check(tmp_path / "bench")


def test_a_folder_deep_below_the_path(release, tmp_path):
    release.parent.rename(tmp_path / "deep")
    import_benchmark(tmp_path, tmp_path / "bench")
    check(tmp_path / "bench")


@pytest.mark.parametrize("below", [".", "..", "ori"])
def test_a_folder_that_cannot_be_listed_is_named(release, tmp_path, below, ordinary_user):
    (release / "ori/private").mkdir()
    done = ordinary_user(f"import {release / below} -o {tmp_path}/bench", closed=release / "ori/private")
    assert done.returncode == 2
    assert "private cannot be listed: Permission denied" in done.stderr


def test_two_releases_below_a_path_are_not_mixed(release, tmp_path):
    (tmp_path / "download" / "copy" / "ori").mkdir(parents=True)
    with pytest.raises(UserError, match="2 folders named ori"):
        import_benchmark(tmp_path / "download", tmp_path / "bench")


@pytest.mark.parametrize(
    "name", ["../../escaped.png", "/etc/escaped.png", "ori\\..\\..\\escaped.png", "C:/escaped.png"]
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_path_that_climbs_is_refused_and_nothing_is_written(release, tmp_path, name, kind):
    path = tmp_path / "bad"
    if kind == "zip":
        zipped(release, path, "", **{name: b"x"})
    else:
        write_shard(path, {"ori/a.png": b"x", name: b"x"})
    with pytest.raises(UserError, match="climbs out of the archive"):
        import_benchmark(path, tmp_path / "bench")
    assert not (tmp_path / "bench").exists()
    assert not list(tmp_path.rglob("escaped.png"))


@pytest.mark.parametrize("kind", ["zip", "w:gz"])
def test_an_archive_bomb_is_refused_and_nothing_is_written(release, tmp_path, kind, monkeypatch):
    from unswayed.files import archives

    monkeypatch.setattr(archives, "ROOM", 1 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "room"))
    (tmp_path / "room").mkdir()
    (release / "ori" / "ILSVRC2012_val_00000009.JPEG").write_bytes(bytes(40 << 20))
    path = tmp_path / "bomb"
    zipped(release, path, "") if kind == "zip" else tarred(release, path, kind, "")
    with pytest.raises(UserError, match="unpacks to .* bytes or more"):
        import_benchmark(path, tmp_path / "bench")
    assert not (tmp_path / "bench").exists()
    assert not list((tmp_path / "room").iterdir())


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 is cut", b"just a text", b"\x1f\x8b broken", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_no_archive_is_refused(tmp_path, data):
    (tmp_path / "ImageNet-E.zip").write_bytes(data)
    with pytest.raises(UserError, match=r"not a readable archive.*(\n.*)*allowed: a \.zip, \.tar, \.tar\.gz"):
        import_benchmark(tmp_path / "ImageNet-E.zip", tmp_path / "bench")
    assert not (tmp_path / "bench").exists()


def write_shard(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def by_member_folder(root: Path) -> None:
    """Two shards, the edit in the member's folder, labels.txt beside the shards."""
    members = {f"{f}/{s}{suffix(f)}": picture_bytes(f, s) for s in LABELS for f in NAMES}
    names = list(members)
    write_shard(root / "imagenet-e-000000.tar", {name: members[name] for name in names[:20]})
    write_shard(root / "imagenet-e-000001.tar", {name: members[name] for name in names[20:]})
    (root / "labels.txt").write_text("".join(f"{stem}.JPEG\t{label}\n" for stem, label in LABELS.items()))


def by_extension(root: Path) -> None:
    """WebDataset samples that hold all edits of one photograph: KEY.005.png, KEY.cls."""
    members: dict[str, bytes] = {}
    for stem, label in LABELS.items():
        members |= {f"{stem}.{folder}{suffix(folder).lower()}": picture_bytes(folder, stem) for folder in NAMES}
        members[f"{stem}.cls"] = str(label).encode()
    write_shard(root / "000000.tar", members)


def by_shard_name(root: Path) -> None:
    """A shard an edit, labels in JSON members."""
    for folder in NAMES:
        members = {f"{stem}{suffix(folder)}": picture_bytes(folder, stem) for stem in LABELS}
        members |= {f"{stem}.json": b'{"label": %d}' % label for stem, label in LABELS.items()}
        write_shard(root / f"{folder}-00000.tar", members)


def by_shard_folder(root: Path) -> None:
    for folder in NAMES:
        members = {f"{stem}{suffix(folder)}": picture_bytes(folder, stem) for stem in LABELS}
        members |= {f"{stem}.cls": b"%d" % label for stem, label in LABELS.items()}
        write_shard(root / folder / "00000.tar", members)


@pytest.mark.parametrize("layout", [by_member_folder, by_extension, by_shard_name, by_shard_folder])
def test_webdataset_shards(tmp_path, layout):
    layout(tmp_path / "shards")
    import_benchmark(tmp_path / "shards", tmp_path / "bench")
    check(tmp_path / "bench")


@pytest.fixture
def own_set(tmp_path):
    """A folder-an-edit of someone's own, with class folders, a CSV of labels and classes of its own."""
    root = tmp_path / "own"
    with open(tmp_path / "labels.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "label"])
        for stem, label in (("a/1", "cup"), ("b/1", "plate"), ("b/2", "plate")):
            for folder in ("clean", "rain"):
                (root / folder / stem).parent.mkdir(parents=True, exist_ok=True)
                (root / folder / f"{stem}.png").write_bytes(picture_bytes(folder, stem))
            table.writerow([f"{stem}.png", label])
    (tmp_path / "classes.txt").write_text("plate\ncup\n")
    return root


def test_any_folder_an_edit_with_a_labels_file(own_set, tmp_path):
    options = {"labels": tmp_path / "labels.csv", "classes": tmp_path / "classes.txt"}
    import_benchmark(own_set, tmp_path / "bench", original="clean", **options)
    benchmark = Benchmark(tmp_path / "bench")
    assert benchmark.labels.classes == ("plate", "cup")
    found = {(row["source_id"], row["edit"]): row["label"] for row in benchmark.manifest.to_pylist()}
    assert found == {(i, e): lab for i, lab in (("a--1", 1), ("b--1", 0), ("b--2", 0)) for e in ("original", "rain")}
    with pytest.raises(UserError, match="no folder of unedited pictures"):
        import_benchmark(own_set, tmp_path / "other", **options)


def test_what_is_missing_or_bad_is_said(release, tmp_path):
    stem, other, third = LABELS
    (release / "rp" / f"{stem}.png").unlink()
    (release / "rd" / f"{other}.png").write_text("no picture")
    (release / "labels.txt").write_text(f"{stem}.JPEG\t1\n{other}.JPEG\t2\n")
    imported = import_benchmark(release, tmp_path / "bench")
    rows = {row["sample_id"]: row for row in Benchmark(tmp_path / "bench").manifest.to_pylist()}
    assert rows[f"{stem}/position/0"]["status"] == "skipped"
    assert "no picture of this photograph in rp" in rows[f"{stem}/position/0"]["reason"]
    assert "is not a picture" in rows[f"{other}/direction/0"]["reason"]
    assert all("no line for" in row["reason"] for row in rows.values() if row["source_id"] == third)
    assert len(imported.failures) == 1 + 12


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ILSVRC2012_val_00000003.JPEG\t1000\n", "line 1: class 1000 is outside"),
        ("ILSVRC2012_val_00000003.JPEG\tgiant pandaa\n", "did you mean 'giant panda'"),
        ("ILSVRC2012_val_00000003.JPEG\n", "line 1 of .* is 'ILSVRC"),
        ("ILSVRC2012_val_00000003.JPEG\t1\nILSVRC2012_val_00000003.JPEG\t2\n", "has the class 1 in an earlier line"),
        ("", "is empty"),
    ],
)
def test_bad_labels_are_refused(release, tmp_path, text, words):
    (release / "labels.txt").write_text(text)
    with pytest.raises(UserError, match=words):
        import_benchmark(release, tmp_path / "bench")


def test_sets_that_cannot_be_imported(release, tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        import_benchmark(tmp_path / "nowhere", tmp_path / "bench")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="contains neither pictures in folders"):
        import_benchmark(tmp_path / "empty", tmp_path / "bench")
    (release / "labels.txt").unlink()
    with pytest.raises(UserError, match="has no labels.txt"):
        import_benchmark(release, tmp_path / "bench")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "0.tar").write_bytes(b"not a tar file" * 100)
    with pytest.raises(UserError, match="not a readable archive"):
        import_benchmark(tmp_path / "shards", tmp_path / "bench")


def test_a_folder_with_another_benchmark_is_left_alone(release, tmp_path, tree):
    build("sample", tmp_path / "bench", BuildSettings(recipe="original", renderer="paste", limit=1))
    before = tree(tmp_path / "bench")
    with pytest.raises(UserError, match="contains another benchmark"):
        import_benchmark(release, tmp_path / "bench")
    assert tree(tmp_path / "bench") == before


def test_a_tar_whose_header_would_be_searched_for_minutes_is_refused(tmp_path):
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, 3000
    (tmp_path / "ImageNet-E.tar").write_bytes(header.tobuf() + b"9" * 3072 + bytes(1024))
    with pytest.raises(UserError, match="not a readable archive: a header has a number of a hundred digits"):
        import_benchmark(tmp_path / "ImageNet-E.tar", tmp_path / "bench")
