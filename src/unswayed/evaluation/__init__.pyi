from .evaluation import Evaluation as Evaluation
from .evaluation import evaluate as evaluate
from .evaluation import run_evaluation as run_evaluation
from .reading import cards as cards
from .reading import read_predictions as read_predictions
from .reading import scan_predictions as scan_predictions
from .settings import EvaluateSettings as EvaluateSettings
