"""The framed sample as a pool, for the tests of rendering."""

from __future__ import annotations

import functools

from unswayed.edits.composition import Pool
from unswayed.scene import Scene, frame
from unswayed.sources import open_source


@functools.cache
def sample_scene(scene_id: str) -> Scene:
    return frame(open_source("sample")[scene_id])


SAMPLE_IDS = open_source("sample").ids
SAMPLE = Pool(SAMPLE_IDS, sample_scene)
