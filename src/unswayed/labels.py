"""What a model answers: label spaces, ordered lists of classes found by index, WNID or name; and tasks, the question
that it is asked about the object.

Every task has a right or wrong answer for each picture, so that the same analyses serve all of them; only the words
differ: the share of right answers is the accuracy of a classifier and the detection rate of a detector.

>>> worded("Accuracy on the originals; accuracies in %", "detect")
'Detection rate on the originals; detection rates in %'
"""

from __future__ import annotations

import csv
import difflib
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from numbers import Integral
from typing import Any, Literal, get_args

from unswayed.choices import OneLine
from unswayed.errors import UserError, check_known, some, unknown
from unswayed.files.records import require_fields

_DATA = resources.files("unswayed.data")
_KINDS = {"name": str, "classes": list[str] | None, "wnids": list[str] | None}
_WNID = re.compile(r"[A-Za-z0-9_-]{1,100}")  # timm has others than ImageNet's
_MOST_DIGITS = 18  # of a class's index
_MOST_COMPARED = 500  # classes: every pair is looked at

# RIVAL10's ten classes in their published order, each with the two ImageNet classes (WNIDs) that make it
RIVAL10: dict[str, tuple[str, ...]] = {
    "truck": ("n03796401", "n04467665"),
    "car": ("n02814533", "n03100240"),
    "plane": ("n02690373", "n04552348"),
    "ship": ("n03673027", "n03095699"),
    "cat": ("n02123394", "n02124075"),
    "dog": ("n02099712", "n02099601"),
    "equine": ("n02389026", "n02391049"),
    "deer": ("n02423022", "n02422699"),
    "frog": ("n01644900", "n01644373"),
    "bird": ("n01531178", "n01532829"),
}


@dataclass(frozen=True, repr=False)
class LabelSpace(OneLine):
    """An ordered list of classes; `wnids` is empty outside ImageNet.

    >>> imagenet().index("giant panda"), imagenet().index("n02510455"), imagenet().index(388)
    (388, 388, 388)
    """

    name: str
    classes: tuple[str, ...]
    wnids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.classes)

    def index(self, label: int | str) -> int:
        """The class's index, given by index, WNID or name (case and `_`, `-`, space do not matter)."""
        if isinstance(label, Integral) or (isinstance(label, str) and label.isdecimal() and label not in self.classes):
            if isinstance(label, str) and len(label) > _MOST_DIGITS or not 0 <= int(label) < len(self):
                raise UserError(f"class {str(label)[:40]} is outside {self.name}", allowed=f"0 to {len(self) - 1}")
            return int(label)
        table = _lookup(self)
        index = table.get(str(label), table.get(plain(str(label))))
        if index is None:
            raise unknown(f"class in {self.name}", str(label), self.classes)
        return index

    def to_json(self) -> dict[str, object]:
        """The label space for a card or `benchmark.json`: ImageNet by name, any other space in full."""
        return {"name": self.name} if self == imagenet() else {"name": self.name, "classes": list(self.classes)}

    @staticmethod
    def from_json(value: dict[str, Any], where: str = "the label space") -> LabelSpace:
        """The label space of a card or file; `where` names it in an error."""
        require_fields(value, _KINDS, where)
        if "classes" in value:
            classes, wnids = tuple(value["classes"] or ()), tuple(value.get("wnids") or ())
            if wnids and (len(wnids) != len(classes) or not all(map(_WNID.fullmatch, wnids))):
                raise UserError(
                    f"{where} has {len(wnids)} WNIDs for {len(classes)} classes, or some are not WNIDs",
                    allowed="one for each class, of letters, digits, '_' and '-', as in n02510455",
                )
            return LabelSpace(value["name"], classes, wnids)
        if value.get("name") != "imagenet-1k":
            raise unknown("label space", str(value.get("name")), ["imagenet-1k"])
        return imagenet()


def own(classes: Iterable[str], name: str = "own") -> LabelSpace:
    """A user's own label space from an ordered list of distinct names."""
    names = tuple(classes)
    count = Counter(map(plain, names))
    if len(count) != len(names):
        groups = [[name for name in names if plain(name) == form] for form, times in count.items() if times > 1]
        shown = some(map(" = ".join, groups))
        allowed = "names that differ in more than capitals and signs"
        raise UserError(f"class names occur more than once: {shown}", allowed=allowed)
    return LabelSpace(name, names)


@functools.cache
def imagenet() -> LabelSpace:
    """ImageNet-1k: the 1,000 classes in the order that every published model uses."""
    rows = _table("imagenet_classes.csv")
    return LabelSpace("imagenet-1k", tuple(r["name"] for r in rows), tuple(r["wnid"] for r in rows))


@functools.cache
def imagenet_e_classes() -> tuple[int, ...]:
    """The 373 animal classes of ImageNet-E, as ImageNet-1k indices."""
    lines = _DATA.joinpath("imagenet_e_classes.txt").read_text().splitlines()
    return tuple(int(line) for line in lines if line and not line.startswith("#"))


@functools.cache
def _table(name: str = "object_classes.csv") -> list[dict[str, str]]:
    return list(csv.DictReader(_DATA.joinpath(name).read_text(encoding="utf-8").splitlines()))


def object_space(name: str) -> LabelSpace:
    """The label space of a set of objects: `coco-80`, the annotated classes in their order; `coco-91`, where each class
    has its published number and 0 is the background; `voc-20`.

    >>> object_space("coco-91").classes[18], object_space("coco-80").index("dog"), len(object_space("voc-20"))
    ('dog', 16, 20)
    """
    check_known("label space of objects", [name], OBJECT_SPACES)
    rows = _table()
    if name == "coco-91":
        return LabelSpace(name, ("background", *(row["coco"] for row in rows)))
    if name == "voc-20":
        return LabelSpace(name, tuple(sorted(row["voc"] for row in rows if row["voc"])))
    return LabelSpace(name, tuple(row["coco"] for row in rows if row["annotated"] == "yes"))


OBJECT_SPACES = ("coco-80", "coco-91", "voc-20")


@functools.cache
def _object_names() -> dict[str, str]:
    rows = [row for row in _table() if row["annotated"] == "yes"]
    return {_joined(row[column]): row["coco"] for row in rows for column in ("voc", "coco") if row[column]}


def object_named(name: str) -> str | None:
    """The COCO class that a name means as one of COCO's or VOC's, with or without spaces; None if it means none.

    >>> object_named("tv-monitor"), object_named("Dining Table"), object_named("pug")
    ('tv', 'dining table', None)
    """
    return _object_names().get(_joined(name))


def _joined(name: str) -> str:
    return plain(name).replace(" ", "")


@functools.cache
def object_concepts(space: LabelSpace) -> tuple[str | None, ...]:
    """The COCO class that each class of a space means: by its name, or by WordNet if it is ImageNet's, or the only one
    of ImageNet's with this name; None if it means none.

    >>> object_concepts(imagenet())[207], object_concepts(own(["aeroplane", "pug"])), object_concepts(imagenet())[21]
    ('dog', ('airplane', 'dog'), 'bird')
    """
    if space == imagenet():
        concepts: dict[int, str] = {}
        for row in _table():
            for span in row["imagenet"].split():
                first, _, last = span.partition("-")
                concepts |= dict.fromkeys(range(int(first), int(last or first) + 1), row["coco"])
        return tuple(concepts.get(index) for index in range(len(space)))
    described = object_concepts(imagenet())
    names = [plain(name) for name in imagenet().classes]
    known = {name: concept for name, concept in zip(names, described, strict=True) if names.count(name) == 1}
    known |= dict(zip(imagenet().wnids, described, strict=True))
    return tuple(object_named(name) or known.get(plain(name)) for name in space.classes)


def choose(space: LabelSpace, spec: str | Sequence[int | str]) -> tuple[int, ...]:
    """Class indices from `imagenet-e`, a comma-separated list or a sequence of indices, WNIDs or names."""
    if spec == "imagenet-e":
        if space != imagenet():
            raise UserError(f"--classes imagenet-e means ImageNet classes, but the source's labels are {space.name}")
        return imagenet_e_classes()
    items = [part.strip() for part in spec.split(",") if part.strip()] if isinstance(spec, str) else spec
    return tuple(dict.fromkeys(space.index(item) for item in items))


def nearly_equal(classes: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of class names that differ by a letter or two, as a misspelling or a plural does, except in a number.

    >>> nearly_equal(["labrador", "labradro", "class 1", "class 2", "cat", "cats", "dog", "dogg", "cow"])
    [('labrador', 'labradro'), ('cat', 'cats'), ('dog', 'dogg')]
    """
    if len(classes) > _MOST_COMPARED:
        return []
    return [pair for pair in itertools.combinations(classes, 2) if _nearly_equal(plain(pair[0]), plain(pair[1]))]


def _nearly_equal(a: str, b: str) -> bool:
    if f"{a}s" == b or f"{b}s" == a or re.sub(r"([a-z])\1", r"\1", a) == re.sub(r"([a-z])\1", r"\1", b):
        return True
    if min(len(a), len(b)) < 4 or abs(len(a) - len(b)) > 2 or re.sub(r"\d", "", a) == re.sub(r"\d", "", b):
        return False
    # Two letters that changed places count more than their share.
    return difflib.SequenceMatcher(None, a, b).ratio() >= (0.75 if sorted(a) == sorted(b) else 0.85)


def plain(name: str) -> str:
    """A name in the form used for comparison: lower case, with one space for all that is not a letter or digit."""
    return re.sub(r"[\W_]+", " ", name.lower()).strip()


@functools.cache
def _lookup(space: LabelSpace) -> dict[str, int]:
    table = {plain(name): index for index, name in enumerate(space.classes)}
    table.update({wnid: index for index, wnid in enumerate(space.wnids)})
    # Names as written come last: ImageNet has the dog `Cardigan` and the garment `cardigan`.
    table.update({name: index for index, name in enumerate(space.classes)})
    return table


Task = Literal["classify", "detect", "segment", "answer"]
TASKS: tuple[Task, ...] = get_args(Task)
OVERLAP = 0.5  # the least IoU of a box or mask with the object's own at which it is found


@dataclass(frozen=True)
class TaskWords:
    """The words for a task: a model that does it, the share of right answers, several of them, and in a narrow column,
    and a right and a wrong answer."""

    model: str
    measure: str
    measures: str
    short: str
    right: str
    wrong: str


WORDS: dict[Task, TaskWords] = {
    "classify": TaskWords("classifier", "accuracy", "accuracies", "acc.", "right", "wrong"),
    "detect": TaskWords("detector", "detection rate", "detection rates", "rate", "found", "missed"),
    "segment": TaskWords("segmenter", "segmentation rate", "segmentation rates", "rate", "found", "missed"),
    "answer": TaskWords("vision-language model", "answer accuracy", "answer accuracies", "acc.", "right", "wrong"),
}
_SEVERAL = TaskWords("model", "share of right answers", "shares of right answers", "right", "right", "wrong")
_MARKUP = re.compile(r"(<script.*?</script>|<style.*?</style>|<[^>]*>)", re.S)
_LABEL = re.compile(r'\b(?:aria-label|alt)="[^"]*"')
_MEASURE = re.compile(r"\b([Aa])ccurac(y|ies)\b")


def words_of(tasks: Task | Iterable[Task]) -> TaskWords:
    """The words for a task; for several tasks side by side, words that fit all of them."""
    listed = {tasks} if isinstance(tasks, str) else set(tasks)
    return WORDS[listed.pop()] if len(listed) == 1 else WORDS["classify"] if not listed else _SEVERAL


def worded(text: str, tasks: Task | Iterable[Task]) -> str:
    """A text about accuracy with the word for these tasks in its place."""
    words = words_of(tasks)
    if words.measure == "accuracy":
        return text

    def word(match: re.Match[str]) -> str:
        metric = words.measure if match[2] == "y" else words.measures
        return metric.capitalize() if match[1] == "A" else metric

    text = text.replace("much accuracy", "much of the accuracy")
    return _MEASURE.sub(word, text).replace("acc. %", f"{words.short} %")


def worded_page(html: str, tasks: Task | Iterable[Task]) -> str:
    """The same for HTML: only texts are changed, and labels for screen readers, but no names, styles or scripts.

    >>> worded_page('<p id="accuracy" aria-label="accuracy">accuracy</p>', "detect")
    '<p id="accuracy" aria-label="detection rate">detection rate</p>'
    """
    parts = _MARKUP.split(html)
    parts[::2] = (worded(text, tasks) for text in parts[::2])
    parts[1::2] = (_LABEL.sub(lambda match: worded(match[0], tasks), part) for part in parts[1::2])
    return "".join(parts)


def task_of(value: object) -> Task:
    """The task that a card or a row states; classification where none is stated."""
    if value is None or value in TASKS:
        return value or "classify"
    raise UserError(f"there is no task {str(value)[:40]!r}", allowed=", ".join(TASKS))


def require_one_task(tasks: Iterable[tuple[str, object]], what: str = "compared") -> Task:
    """The one task of these models, (name, task); refused if they have several, since their answers are to different
    questions."""
    of: dict[Task, str] = {}
    for name, value in tasks:
        of.setdefault(task_of(value), name)
    if len(of) > 1:
        listed = " and ".join(f"{name} ({task})" for task, name in of.items())
        raise UserError(
            f"models of different tasks cannot be {what}: {listed}",
            allowed="models of one task; a report and a table show several tasks side by side",
        )
    return next(iter(of), "classify")
