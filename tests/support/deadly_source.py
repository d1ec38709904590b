"""A loader that ends its process on one scene, as a decoder that crashes does."""

from __future__ import annotations

import os

from unswayed.scene import Scene
from unswayed.sources import Entry
from unswayed.sources.pictures import load_scene


def load_or_die(entry: Entry) -> Scene:
    if entry.id == "class0--0002":
        os._exit(11)
    return load_scene(entry)
