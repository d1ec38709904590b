"""What people say about the pictures of a benchmark: `reviews.parquet`, one row per picture and rater."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from unswayed.choices import check_choice
from unswayed.errors import UserError
from unswayed.files.locks import alone
from unswayed.files.records import checked
from unswayed.files.tables import read_checked
from unswayed.files.whole import parquet_columns, write_parquet

REVIEWS = "reviews.parquet"
LOCK = ".reviews.lock"
WAIT = 10.0  # seconds for another rater's answer to be written
Answer = Literal["valid", "unrecognizable", "artifact"]


@dataclass(frozen=True)
class Review:
    """One answer: the picture is valid, its object is unrecognizable, or it is spoiled by an artifact.

    blind: whether the rater saw neither the edit's name nor the class; seconds: from showing it to the answer.
    """

    sample_id: str
    source_id: str
    edit: str
    run: int
    rater: str
    answer: Answer
    blind: bool = False
    seconds: float | None = None

    def __post_init__(self) -> None:
        check_choice("answer", self.answer, Answer)


ANSWERS: tuple[Answer, ...] = get_args(Answer)


def read_reviews(root: Path) -> list[Review]:
    """All answers there are, in the order in which they were given; none where nobody has rated yet."""
    path = root / REVIEWS
    if not path.is_file():
        return []
    rows = read_checked(path, {}).to_pylist()
    return [checked(Review, row, f"{path}, row {number}") for number, row in enumerate(rows, 1)]


def add_review(root: Path, review: Review) -> None:
    """The answer in the file, in the place of an earlier one by the same rater on the same picture."""
    busy = UserError(f"{root / REVIEWS} is held by another process", run="the answer once more")
    with alone(root / LOCK, busy, WAIT):
        key = (review.sample_id, review.rater)
        others = [one for one in read_reviews(root) if (one.sample_id, one.rater) != key]
        _write(root, [*others, review])


def _write(root: Path, reviews: Iterable[Review]) -> None:
    import pyarrow

    columns = "sample_id source_id edit run:int64 rater answer blind:bool seconds:float64"
    table = pyarrow.Table.from_pylist([asdict(one) for one in reviews], schema=parquet_columns(columns))
    write_parquet(root / REVIEWS, table)
