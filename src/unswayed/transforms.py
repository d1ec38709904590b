"""Edits as training augmentations: `from unswayed.transforms import RandomEdit`."""

from unswayed.edits.transforms import BatchEdit as BatchEdit
from unswayed.edits.transforms import EditMixture as EditMixture
from unswayed.edits.transforms import RandomEdit as RandomEdit
from unswayed.edits.transforms import Scenes as Scenes
