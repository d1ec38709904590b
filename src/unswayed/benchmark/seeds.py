"""The seed of one picture, which depends only on what the picture is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from unswayed.files.whole import canonical


def picture_seed(
    seed: int, source_id: str, edit: str, parameters: Mapping[str, Any], run: int, attempt: int = 0
) -> int:
    """Return an integer in [0, 2⁶⁴) that does not depend on the order, batch size, number of workers or machine.

    blake2b over the canonical JSON of (benchmark seed, source_id, edit name and parameters, run), and of the attempt
    where an earlier picture was left out as invalid.

    >>> picture_seed(7, "dog", "size-0.05", {"rate": 0.05}, 0) == picture_seed(7, "dog", "size-0.05", {"rate": 0.05}, 1)
    False
    """
    again = [attempt] if attempt else []
    record = canonical([seed, source_id, {"edit": edit, "parameters": dict(parameters)}, run, *again])
    return int.from_bytes(hashlib.blake2b(record.encode(), digest_size=8).digest(), "big")
