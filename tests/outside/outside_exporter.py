"""An exporter: a list of the pictures with their classes."""

from unswayed.benchmark import ExportResult
from unswayed.registry import declare


@declare(help="pictures.txt with a line for each picture")
def write_listing(benchmark, folder, show):
    lines = []
    for number in range(len(benchmark)):
        _, label, row = benchmark[number]
        lines.append(f"{row.path} {benchmark.labels.classes[label]}\n")
        show(number + 1, len(benchmark))
    folder.mkdir(parents=True)
    (folder / "pictures.txt").write_text("".join(lines))
    return ExportResult(str(folder), len(lines))
