from .classifier import Classifier as Classifier
from .heads import fit_head as fit_head
from .heat import HeatLayer as HeatLayer
from .opening import list_models as list_models
from .opening import open_model as open_model
from .transforms import Transform as Transform
from .wrappers import LogProbabilities as LogProbabilities
