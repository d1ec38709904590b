from .building import Built as Built
from .building import Progress as Progress
from .building import build as build
from .folder import Benchmark as Benchmark
from .importing import import_benchmark as import_benchmark
from .settings import BuildSettings as BuildSettings
from .verifying import changed_files as changed_files
from .verifying import verify as verify
