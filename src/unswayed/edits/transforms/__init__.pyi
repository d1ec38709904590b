from .batch_edit import BatchEdit as BatchEdit
from .mixture import EditMixture as EditMixture
from .random_edit import RandomEdit as RandomEdit
from .scenes import Scenes as Scenes
