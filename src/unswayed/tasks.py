"""Tasks: the question that a model under test is asked about the object, and the words for its results.

Every task has a right or wrong answer for each picture, so that the same analyses serve all of them; only the words
differ: the share of right answers is the accuracy of a classifier and the detection rate of a detector.

>>> worded("Accuracy on the originals; accuracies in %", "detect")
'Detection rate on the originals; detection rates in %'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from unswayed.errors import UserError

Task = Literal["classify", "detect", "segment", "answer"]
TASKS: tuple[Task, ...] = get_args(Task)
OVERLAP = 0.5  # the least IoU of a box or mask with the object's own at which it is found


@dataclass(frozen=True)
class TaskWords:
    """The words for a task: a model that does it, the share of right answers, in full and for a narrow column, and a
    right and a wrong answer."""

    model: str
    measure: str
    short: str
    right: str
    wrong: str


WORDS: dict[Task, TaskWords] = {
    "classify": TaskWords("classifier", "accuracy", "acc.", "right", "wrong"),
    "detect": TaskWords("detector", "detection rate", "rate", "found", "missed"),
    "segment": TaskWords("segmenter", "segmentation rate", "rate", "found", "missed"),
    "answer": TaskWords("vision-language model", "answer accuracy", "acc.", "right", "wrong"),
}
_SEVERAL = TaskWords("model", "share of right answers", "right", "right", "wrong")
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
    measure = words.measure
    if measure == "accuracy":
        return text
    first, _, rest = measure.partition(" of ")  # shares of right answers, detection rates
    many = f"{first[:-1]}ies" if first.endswith("cy") else f"{first}s"
    several = f"{many} of {rest}" if rest else many

    def word(match: re.Match[str]) -> str:
        metric = measure if match[2] == "y" else several
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
    if value is None:
        return "classify"
    for task in TASKS:
        if task == value:
            return task
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
