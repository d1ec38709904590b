import types

from . import transforms as transforms
from .analyses.drops.compare import compare as compare
from .analyses.drops.compare import same_model as same_model
from .analyses.drops.drop import dropped_accuracy as dropped_accuracy
from .analyses.drops.gate import check as check
from .analyses.drops.planning import plan as plan
from .analyses.factors import factors as factors
from .analyses.settings import AnalyzeSettings as AnalyzeSettings
from .analyses.settings import CompareSettings as CompareSettings
from .analyses.settings import FactorSettings as FactorSettings
from .analyses.settings import GateSettings as GateSettings
from .analyses.settings import PlanSettings as PlanSettings
from .analyses.tables import analyze as analyze
from .api import edit as edit
from .api import remove_object as remove_object
from .benchmark.building import build as build
from .benchmark.exporting import export as export
from .benchmark.folder import Benchmark as Benchmark
from .benchmark.folder import verify as verify
from .benchmark.importing import import_benchmark as import_benchmark
from .benchmark.licenses import licenses as licenses
from .benchmark.settings import BuildSettings as BuildSettings
from .benchmark.settings import ExportSettings as ExportSettings
from .benchmark.settings import ImportSettings as ImportSettings
from .edits import list_edits as list_edits
from .errors import UnswayedWarning as UnswayedWarning
from .errors import UserError as UserError
from .evaluation.evaluation import evaluate as evaluate
from .evaluation.fragility import fragility as fragility
from .evaluation.head_fitting import fit_head as fit_head
from .evaluation.reading import read_predictions as read_predictions
from .evaluation.settings import DistributionSettings as DistributionSettings
from .evaluation.settings import EvaluateSettings as EvaluateSettings
from .evaluation.settings import HeadSettings as HeadSettings
from .evaluation.settings import SensitivitySettings as SensitivitySettings
from .labels import LabelSpace as LabelSpace
from .masks import MaskSettings as MaskSettings
from .masks.make_masks import masks as masks
from .models.classifier import Classifier as Classifier
from .models.opening import list_models as list_models
from .models.opening import open_model as open_model
from .models.transforms import Transform as Transform
from .repair.measuring import enhance as enhance
from .repair.run import repair as repair
from .repair.settings import EnhanceSettings as EnhanceSettings
from .repair.settings import RepairSettings as RepairSettings
from .scene import Scene as Scene
from .scene import frame as frame
from .sources import list_sources as list_sources
from .sources import open_source as open_source
from .views.demo import DemoSettings as DemoSettings
from .views.demo import demo as demo
from .views.demo import report as report
from .views.report import ReportSettings as ReportSettings
from .views.studies import distribution as distribution
from .views.studies import sensitivity as sensitivity

__version__: str

class CallableRoom(types.ModuleType): ...
