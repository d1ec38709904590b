from . import transforms as transforms
from .analyses.drops.compare import compare as compare
from .analyses.drops.drop import dropped_accuracy as dropped_accuracy
from .analyses.drops.gate import check as check
from .analyses.drops.same_model import same_model as same_model
from .api import edit as edit
from .api import remove_object as remove_object
from .api import report as report
from .benchmark.building import build as build
from .benchmark.datasets_folder import import_published as import_published
from .benchmark.exporting import export_benchmark as export_benchmark
from .benchmark.folder import Benchmark as Benchmark
from .benchmark.plan import BuildSettings as BuildSettings
from .errors import UnswayedWarning as UnswayedWarning
from .errors import UserError as UserError
from .evaluation.evaluation import evaluate as evaluate
from .evaluation.fragility import fragility as fragility
from .evaluation.reading import read_predictions as read_predictions
from .evaluation.settings import EvaluateSettings as EvaluateSettings
from .labels import LabelSpace as LabelSpace
from .models.classifier import Classifier as Classifier
from .models.registry import open_model as open_model
from .models.transforms import Transform as Transform
from .scene import Scene as Scene
from .scene import frame as frame
from .sources import open_source as open_source

__version__: str
