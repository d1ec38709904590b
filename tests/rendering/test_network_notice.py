"""The embedded network's notice: the list of photographs is the one it was trained on, and every license is free."""

import csv
import hashlib
import json
import re
from collections import Counter
from importlib import resources

from unswayed.sources import open_source

FOLDER = resources.files("unswayed.data").joinpath("network")
FREE = re.compile(
    r"CC[ -]BY(-SA)?\b(?!-N)|CC0|Public[ -]Domain|MIT$|Pixabay|Pexels|Unsplash|US Government|.*unrestricted", re.I
)
ATTRIBUTION = re.compile(r"CC[ -]BY", re.I)


def photographs():
    return list(csv.DictReader(FOLDER.joinpath("PHOTOGRAPHS.csv").read_text(encoding="utf-8").splitlines()))


def test_the_list_holds_exactly_the_photographs_of_the_training():
    trained = json.loads(FOLDER.joinpath("config.json").read_text())["trained"]
    rows = photographs()
    listing = "\n".join(sorted(f"{row['sha256']}  {row['file']}" for row in rows))
    assert hashlib.sha256(listing.encode()).hexdigest() == trained["photographs_sha256"]
    assert trained["begun_from"]["photographs_sha256"] == trained["photographs_sha256"]
    assert len(rows) == trained["photographs"]


def test_every_photograph_has_a_free_license_and_its_source():
    rows = photographs()
    assert [row["file"] for row in rows if not FREE.match(row["license"]) or not row["source"]] == []
    text = " ".join(row["source"].lower() for row in rows)
    assert "bsds" not in text and "ilsvrc" not in text
    unnamed = Counter(bool(ATTRIBUTION.match(row["license"])) for row in rows if not row["author_or_credit"])
    notice = FOLDER.joinpath("NOTICE.md").read_text(encoding="utf-8")
    assert f"{unnamed.total()} of them name no author" in " ".join(notice.split())
    assert f"{unnamed[True]} of these are under CC BY or CC BY-SA" in " ".join(notice.split())


def test_no_sample_scene_is_on_the_list():
    known = {row["sha256"] for row in photographs()}
    sample = resources.files("unswayed.data").joinpath("sample")
    assert known.isdisjoint(
        hashlib.sha256(sample.joinpath(f"{name}.jpg").read_bytes()).hexdigest() for name in open_source("sample").ids
    )
