from .classifier import Classifier as Classifier
from .heads import fit_head as fit_head
from .heat import HeatLayer as HeatLayer
from .probabilities import LogProbabilities as LogProbabilities
from .registry import open_model as open_model
from .transforms import Transform as Transform
