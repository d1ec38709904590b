from .run import repair as repair
from .settings import RepairSettings as RepairSettings
