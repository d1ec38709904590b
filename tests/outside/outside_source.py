"""`mirror:COUNT`: the first photographs of the embedded sample, left and right exchanged."""

from dataclasses import replace

import numpy as np

from unswayed.sources import Entry, Source, Spec, open_source


def open_mirror(spec: Spec) -> Source:
    spec.take()
    sample = open_source("sample")
    entries = [entry for entry in sample.entries if entry.label is not None][: int(spec.name)]
    return Source(spec.text, sample.labels, tuple(replace(entry, image="") for entry in entries), load)


def load(entry: Entry):
    scene = open_source("sample")[entry.id]
    return replace(
        scene, image=np.ascontiguousarray(scene.image[:, ::-1]), mask=np.ascontiguousarray(scene.mask[:, ::-1])
    )
