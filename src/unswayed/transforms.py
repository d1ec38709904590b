"""Edits as training augmentations: `from unswayed.transforms import RandomEdit`."""

from unswayed.edits.batch_edit import BatchEdit as BatchEdit
from unswayed.edits.mixture import EditMixture as EditMixture
from unswayed.edits.random_edit import RandomEdit as RandomEdit
from unswayed.edits.random_edit import Scenes as Scenes
