"""Visitors over the wire: ten at once, and uploads that are no photographs."""

from __future__ import annotations

import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from unswayed.views.app.controls import groups

gradio_client = pytest.importorskip("gradio_client")
SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))


def visitor(address: str) -> Any:
    return gradio_client.Client(address, verbose=False, analytics_enabled=False)


def settings(**switched: dict[str, Any]) -> list[Any]:
    """What the page sends: models, background file, seed, and every control, with these edits switched on."""
    flat: list[Any] = []
    for group in groups():
        given = switched.get(group.edit)
        flat.append(given is not None)
        for control in group.controls:
            flat.append(control.on_page((given or {}).get(control.parameter, control.first)))
            if control.word is not None:
                flat.append(False)
    return [["lite:0"], None, 0, *flat]


def memory() -> float:
    """Megabytes that this process, which serves the page, holds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def test_a_visitor_finds_the_object_and_boxes_it(address):
    client = visitor(address)
    client.predict("koala", api_name="/open_sample")
    for name, given in {
        "find_object": (),
        "find_in_box": ("40,40,120,120",),
        "true_class": (5,),
    }.items():
        problem, *_ = client.predict(*given, api_name=f"/{name}")
        assert "problem" not in str(problem)


def test_ten_visitors_at_once_all_get_their_own_picture(address):
    names = ["koala", "dog", "cow", "pig", "duck", "sheep", "panda", "lemur", "jaguar", "bison"]
    visitors = [visitor(address) for _ in names]

    def edited(place: int) -> tuple[bytes, bytes]:
        client, name = visitors[place], names[place]
        client.predict(name, api_name="/open_sample")
        made = client.predict(*settings(size={"rate": 0.05}), api_name="/preview")
        assert f"{name}.jpg, edited" in made[0]
        downloads = [value["value"] if isinstance(value, dict) else value for value in made[-3:]]
        assert Path(downloads[0]).name == f"{name}-edited.png"
        said = client.predict(["lite:0"], api_name="/answers")
        assert said.count('class="bars"') == 2
        return Path(downloads[0]).read_bytes(), Path(downloads[2]).read_bytes()

    with ThreadPoolExecutor(10) as pool:
        first = list(pool.map(edited, range(10)))
        before = memory()
        second = list(pool.map(edited, range(10)))
    assert first == second
    assert len({picture for picture, _ in first}) == 10
    assert memory() - before < 300


def made_bad(folder: Path) -> dict[str, tuple[Path, str]]:
    bomb, huge, archive = folder / "bomb.png", folder / "huge.png", folder / "archive.jpg"
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    Image.new("1", (30000, 30000)).save(bomb)
    Image.new("L", (20000, 10000)).save(huge, compress_level=1)
    Image.MAX_IMAGE_PIXELS = limit
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", "a")
    empty, text, cut = folder / "empty.jpg", folder / "text.png", folder / "cut.jpg"
    empty.write_bytes(b"")
    text.write_text("<script>alert(1)</script>")
    cut.write_bytes((SAMPLE / "koala.jpg").read_bytes()[:5000])
    return {
        "bomb": (bomb, "too large"),
        "200 megapixels": (huge, "too large"),
        "zip": (archive, "a ZIP archive"),
        "empty": (empty, "the file is empty"),
        "text": (text, "not a picture but text"),
        "cut": (cut, "cut off"),
    }


def test_what_is_no_photograph_is_refused_in_words_and_the_old_one_stays(address, tmp_path):
    client = visitor(address)
    for name, (path, reason) in made_bad(tmp_path).items():
        problem, *_ = client.predict(gradio_client.handle_file(path), api_name="/open_photograph")
        assert reason in problem, name
        assert 'role="alert"' in problem
        assert "<script" not in problem
        assert str(tmp_path) not in problem
        assert "/tmp" not in problem
    made = client.predict(*settings(lighting={"stops": -2.0}), api_name="/preview")
    assert "chicken.jpg, edited" in made[0]


def test_a_file_with_a_hostile_name_is_a_photograph_like_any_other(address, tmp_path):
    path = tmp_path / "<script>alert(1)<script>.jpg"
    shutil.copy(SAMPLE / "koala.jpg", path)
    client = visitor(address)
    problem, marker, *_ = client.predict(gradio_client.handle_file(path), api_name="/open_photograph")
    assert 'role="alert"' not in problem
    assert "<script" not in marker
    made = client.predict(*settings(lighting={"stops": -2.0}), api_name="/preview")
    assert "<script" not in made[0]


def test_a_mistake_is_a_message_and_not_a_crash(address):
    client = visitor(address)
    made = client.predict(*settings(size={"rate": 0.99}), api_name="/preview")
    assert "the largest size that fits the frame" in made[1]
    with pytest.raises(Exception, match=r"(?i)not in the list of choices|error"):
        client.predict(["python:/tmp/evil.py:f"], api_name="/answers")
