"""The report with heat maps, and the demo, the whole pipeline without downloads: build, evaluate, report.

report("predictions", "report.html")
demo("demo")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unswayed.choices import DEVICE, OneLine, option, takes
from unswayed.errors import UserError
from unswayed.files.tables import Column, read_checked
from unswayed.files.whole import read_json, write_bytes
from unswayed.models.opening import runs_code

from .report import ReportSettings

if TYPE_CHECKING:
    import polars

    from unswayed.edits.recipes import Item
    from unswayed.sources import Source

    from .report.page import ReportResult

MODELS = ("lite:0", "lite:1", "lite:2")
GUIDE = "lite:2"
RECIPE = "demo"
# First six different animals that are ImageNet classes themselves, then the other exact classes. The rest of the sample
# is labeled with the most similar class (a chameleon as an agama), so a wrong prediction there may be reasonable.
SCENES = (
    "dog", "dragon", "jaguar", "koala", "panda", "scarlet_macaw",
    "bison", "chicken", "crocodile", "lemur", "pig", "polar_bear",
)  # fmt: skip

# Work in units of one pass of the network, as measured on two idle cores.
_GUIDED_PASS, _REMOVAL, _ANSWER, _HEAT_MAP, _PAGE = 1.8, 13.0, 0.3, 1.2, 20.0

Show = Callable[[float, float, str], None]


@dataclass(frozen=True, eq=False, repr=False)
class Demo(OneLine):
    """The results of the demo: the report, the contact sheet, the table of drops and the verdict; failures by scene."""

    report: Path
    sheet: Path
    drops: polars.DataFrame
    verdict: list[str]
    failures: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """scenes: how many, first of `SCENES` and then of the rest of the sample. models: `demo_models()` if None."""

    scenes: int = option(6, "Number of sample scenes, at most 20.")
    steps: int = option(20, "Sampling steps over the whole noise schedule; 100 is slower and slightly better.")
    seed: int = option(0, "Random seed.")
    models: Sequence[str] | None = None
    removal: str = option(
        "diffusion", "How objects are removed: `diffusion`, or another method that `unswayed edits` lists."
    )
    device: str | None = option(None, DEVICE)
    heat_maps: int = option(36, "Number of flips that are shown with heat maps.")


@takes(ReportSettings)
def report(
    predictions: str | Path,
    output: str | Path,
    settings: ReportSettings,
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> ReportResult:
    """Write the report of a folder of predictions as one HTML file, with heat maps of what the models looked at.

    The result has the report's `path`, the `verdict` in sentences and the table of `drops`. The fields of settings are
    also keywords: `report("predictions", "report.html", heat_maps=0)`.
    """
    from .report.page import write_report

    def explain(pairs: Any, cards: Any, done: Any) -> Any:
        from unswayed.evaluation.heat import explain_pairs  # loads networks, so only where there are flips to explain

        return explain_pairs(pairs, cards, done, trust=settings.trust)

    return write_report(predictions, output, settings, explain=explain, progress=progress)


@takes(DemoSettings)
def demo(output: str | Path, settings: DemoSettings, *, progress: Show | None = None) -> Demo:
    """Write OUTPUT/benchmark, OUTPUT/predictions, OUTPUT/sheet.png and OUTPUT/report.html; a stopped demo resumes.

    The fields of settings are also keywords. progress: called with the work done, the total work (both in passes of the
    network) and the current stage.
    """
    from unswayed.benchmark import Benchmark, BuildSettings, build
    from unswayed.edits.recipes import open_recipe
    from unswayed.evaluation import EvaluateSettings, run_evaluation
    from unswayed.evaluation.heat import explain_pairs

    from .report.page import write_report
    from .report.pictures import contact_sheet

    output = Path(output).expanduser()
    steps, heat_maps, device = settings.steps, settings.heat_maps, settings.device
    models = demo_models() if settings.models is None else settings.models
    source, recipe = demo_scenes(settings.scenes), open_recipe(RECIPE)
    passes = [_passes(item, steps) for item in recipe.items]
    work = {
        "render": len(source) * (sum(passes) + _REMOVAL),
        "evaluate": len(source) * (len(passes) + 1) * len(models) * _ANSWER,
        "report": heat_maps * _HEAT_MAP + _PAGE,
    }
    done = dict.fromkeys(work, 0.0)

    def reach(stage: str, share: float) -> None:
        """Set a stage to at least this share, so that the progress bar never goes back."""
        done[stage] = max(done[stage], min(share, 1.0) * work[stage])
        if progress is not None:
            progress(sum(done.values()), sum(work.values()), stage)

    bench, predictions, sheet = output / "benchmark", output / "predictions", output / "sheet.png"
    rendering = BuildSettings(
        recipe=recipe, steps=steps, guide=GUIDE, removal=settings.removal, seed=settings.seed, device=device
    )
    built = build(source, bench, rendering, progress=lambda now: reach("render", now.share))
    reach("render", 1.0)
    evaluation = EvaluateSettings(device=device)
    run_evaluation(bench, list(models), predictions, evaluation, progress=lambda now, of: reach("evaluate", now / of))
    reach("evaluate", 1.0)
    write_bytes(sheet, contact_sheet(Benchmark(bench)))
    title, flips = "unswayed demo: how much accuracy do the edits cost?", max(heat_maps, 12)
    numbers = [word for name in ("scenes", "steps", "seed") for word in (f"--{name}", str(getattr(settings, name)))]
    written = write_report(
        predictions,
        output / "report.html",
        ReportSettings(benchmark=bench, title=title, flips=flips, heat_maps=heat_maps),
        explain=explain_pairs,
        command=["unswayed", "demo", "-o", str(output), *numbers],
        progress=lambda now, of, what: reach("report", now / of),
    )
    reach("report", 1.0)
    return Demo(written.path, sheet, written.drops, written.verdict, built.failures)


def demo_models() -> tuple[str, ...]:
    """Return EfficientNet-Lite 0, 1 and 2, and MobileNetV2, an unrelated family, where its weights are installed."""
    from unswayed.models.from_torchvision import mobilenet_file

    try:
        mobilenet_file()
    except UserError:
        return MODELS
    return (*MODELS, "mobilenet:v2")


def demo_scenes(count: int) -> Source:
    """Return the first `count` scenes of the demo's order."""
    from unswayed.sources import open_source

    sample = open_source("sample")
    order = [*SCENES, *(source_id for source_id in sample.ids if source_id not in SCENES)]
    if not 1 <= count <= len(order):
        raise UserError(f"the number of scenes is {count}", allowed=f"1 to {len(order)}")
    return replace(sample, entries=tuple(sample.entry(source_id) for source_id in order[:count]))


def _passes(item: Item, steps: int) -> float:
    """Return the network passes of one edit with the fast sampler; guided passes cost more."""
    start = max((edit.blends_from for edit in item.chain), default=0.0)
    cost = _GUIDED_PASS if "guide" in item.needs else 1.0
    # The noise of a regenerated background is found first, which takes about two thirds as many passes again.
    factor = 1.65 if "network" in item.needs else 1.0
    return max(1, round(start * steps)) * cost * factor if start > 0 else 0.0


def refuse_programs(predictions: str | Path) -> None:
    """Raise UserError if a model of the predictions is a program, which heat maps would run.

    Neither polars nor torch is loaded, so the answer comes at once. Names that only need the network pass: a report
    leaves their heat maps out and says so.
    """
    folder = Path(predictions)
    for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder] if folder.is_file() else []:
        table = read_checked(path, {"model": Column("text", nulls=False)}, select=["model"], required=["model"])
        names = [str(name) for name in table.column("model").unique().to_pylist()]
        card = read_json(path.with_suffix(".json")) if path.with_suffix(".json").is_file() else {}
        names += [str(card.get(key, "")) for key in ("spec", "model")] if isinstance(card, dict) else []
        for name in names:
            if runs_code(name):
                raise UserError(
                    f"{path} names the model '{name[:200]}', which is a program: heat maps would run it",
                    allowed="--heat-maps 0 for a report without heat maps",
                    run="the same command with --trust, if you trust the predictions",
                )
