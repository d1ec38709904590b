"""Worker processes import timm without what takes most of the time, and nothing of it is missing afterward."""

from __future__ import annotations

import json
import subprocess
import sys

LOOK = """
import json, sys
import unswayed.models.libraries
loaded = [name for name in ("timm", "torchvision", "torch._dynamo", "wandb") if name in sys.modules]
import timm, torch, torchvision.ops
pooled = torchvision.ops.roi_align(torch.rand(1, 3, 8, 8), [torch.tensor([[0.0, 0.0, 4.0, 4.0]])], 2)
compiled = torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
rope = timm.models.naflexvit.NaFlexRopeIterator
marked = [name for name in vars(rope) if getattr(getattr(rope, name), "_torchdynamo_disable", False)]
print(json.dumps([loaded, list(pooled.shape), compiled.tolist(), torch._dynamo.__file__ is not None, marked]))
"""


def test_the_compiler_is_imported_only_where_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    loaded, pooled, compiled, has_compiler, marked = json.loads(done.stdout.splitlines()[-1])
    assert loaded == ["timm", "torchvision"]
    assert (pooled, compiled, has_compiler) == ([1, 3, 2, 2], [2.0, 2.0], True)
    assert marked, "functions that timm keeps from being compiled have lost their mark"
