"""`analyze --wide` in every format, its LaTeX read strictly; and drops along a column of numbers."""

import csv
import io
import json
import re
import shutil
import subprocess

import pytest

from command_line import refusal, run_cli
from prediction_worlds import benchmark, folder, frame, random_answers
from unswayed.analyses.tables import analyze as analyze_predictions
from unswayed.views.report.drop_tables import along
from unswayed.views.report.figures_drops import against_figure

SHARES = {"original": 0.95, "inversion": 0.93, "background-complex": 0.8, "size-full": 0.9, "size-0.05": 0.5}
MODELS = {"lite:0": 0.0, "odd_name&50%": -0.2, "lite:2": 0.04}


def analyze(*arguments):
    return run_cli("analyze", *arguments, "--resamples", "50")


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    root = tmp_path_factory.mktemp("wide")
    controls = {"background-complex": {"control": "inversion"}}
    bench = benchmark(root / "bench", {edit: controls.get(edit, {}) for edit in SHARES}, 120)
    models = {
        name: frame(random_answers(seed, 120, {e: one + more * (e != "original") for e, one in SHARES.items()}))
        for seed, (name, more) in enumerate(MODELS.items())
    }
    return folder(root / "p", models, dict.fromkeys(models, {"benchmark": {"path": str(bench)}}))


def test_csv_and_json_hold_the_numbers_of_the_drop_table(predictions):
    long = {(row["model"], row["edit"]): row for row in json.loads(analyze(predictions, "--format", "json").stdout)}
    wide = json.loads(analyze(predictions, "--wide", "--format", "json").stdout)
    assert set(MODELS) == {row["model"] for row in wide}
    for row in wide:
        assert row["original"] == pytest.approx(100 * long[row["model"], "original"]["accuracy"])
        for edit in ("inversion", "background-complex", "size-0.05", "average"):
            assert row[edit] == pytest.approx(long[row["model"], edit]["drop"])
            assert row.get(f"{edit} p_holm") == long[row["model"], edit]["p_holm"]
    table = list(csv.DictReader(io.StringIO(analyze(predictions, "--wide", "--format", "csv").stdout)))
    assert float(table[0]["size-0.05"]) == pytest.approx(wide[0]["size-0.05"])
    accuracy = json.loads(analyze(predictions, "--wide", "--measure", "accuracy", "--format", "json").stdout)
    for row in accuracy:
        assert row["size-0.05"] == pytest.approx(100 * long[row["model"], "size-0.05"]["accuracy"])


def test_the_best_of_each_column_stands_out_and_drops_are_marked(predictions):
    wide = json.loads(analyze(predictions, "--wide", "--format", "json").stdout)
    best = min(wide, key=lambda row: row["size-0.05"])
    assert best["model"] == "lite:2"
    lines = analyze(predictions, "--wide", "--format", "markdown").stdout.splitlines()
    (row,) = [line for line in lines if line.startswith("| lite:2")]
    assert re.search(rf"\*\*{best['size-0.05']:.2f}(\\\*)+\*\*", row)
    (worst,) = [line for line in lines if line.startswith("| odd_name")]
    assert "**" not in worst.replace(r"\*", "").split("|", 3)[3]
    plain = analyze(predictions, "--wide").stdout
    assert f"[{best['size-0.05']:.2f}***]" in plain
    assert "in brackets" in plain
    one = analyze(predictions, "--wide", "-m", "lite:2", "--format", "markdown").stdout
    assert "**" not in one.replace(r"\*", "").replace("**Dropped", "").replace("edit**", "")


def read_latex(text):
    """The cells of a table, after strict checks of its syntax."""
    assert text.startswith("% needs \\usepackage{booktabs")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    depth = 0
    for at, character in enumerate(body):
        escaped = at > 0 and body[at - 1] == "\\"
        if character in "{}" and not escaped:
            depth += 1 if character == "{" else -1
            assert depth >= 0
    assert depth == 0
    opened = re.findall(r"\\(begin|end)\{(\w+)\}", body)
    stack = []
    for what, name in opened:
        if what == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not stack
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", body)[1]
    inside = body.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    heading = body.partition(r"\toprule")[2].partition(r"\midrule")[0]
    rows = []
    for line in [*heading.strip().splitlines(), *inside.strip().splitlines()]:
        assert line.endswith(r" \\")
        cells = re.split(r"(?<!\\)&", line[: -len(r" \\")])
        assert len(cells) == len(columns)
        # What LaTeX would read as a command of its own must be escaped.
        bare = re.sub(
            r"\$([-^{}*<>]|\\times|\\lambda)+\$|\\text(bf|backslash|asciitilde)|\\shortstack\[r\]|\\[&%$#_{}\\]",
            "",
            " ".join(cells),
        )
        assert not re.search(r"[%$#_^~\\]", bare), line
        rows.append([cell.strip() for cell in cells])
    assert not re.search(r"[<>λ×]", re.sub(r"\$[<>]\$", "", body))
    return rows


def test_latex_is_a_complete_table(predictions, tmp_path):
    text = analyze(predictions, "--wide", "--format", "latex").stdout
    rows = read_latex(text)
    assert rows[0] == ["model", "original", "inversion", "background-complex", "size-full", "size-0.05", "average"]
    assert any(cell.startswith(r"\textbf{") for row in rows[1:] for cell in row)
    assert any(row[0] == r"odd\_name\&50\%" for row in rows[1:])
    if shutil.which("pdflatex") is None:
        return
    many = "\n".join(analyze(predictions, "--wide", "--format", one).stdout for one in ("latex", "latex"))
    page = "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}\n" + many + "\\end{document}\n"
    (tmp_path / "page.tex").write_text(page)
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "page.tex"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / "page.pdf").stat().st_size > 1000


def test_a_table_of_many_columns_is_scaled_to_the_line(predictions):
    text = analyze(predictions, "--format", "latex").stdout
    assert "graphicx" in text.splitlines()[0]
    assert r"\resizebox{\linewidth}{!}{%" in text
    read_latex(text)


@pytest.fixture
def groups(tmp_path):
    (tmp_path / "models.csv").write_text('model,budget,family\nlite:0,1,a\n"odd_name&50%",0.5,a\nlite:2,8,b\n')
    return tmp_path / "models.csv"


def test_drops_along_a_column_of_numbers(predictions, groups, tmp_path):
    long = {(row["model"], row["edit"]): row for row in json.loads(analyze(predictions, "--format", "json").stdout)}
    found = json.loads(analyze(predictions, "--groups", groups, "--against", "budget", "--format", "json").stdout)
    assert [(row["budget"], row["edit"]) for row in found] == [(0.5, "average"), (1.0, "average"), (8.0, "average")]
    assert found[0]["drop"] == pytest.approx(long["odd_name&50%", "average"]["drop"])
    for suffix in ("svg", "png", "pdf"):
        done = analyze(
            predictions, "--groups", groups, "--against", "budget", "-e", "size-0.05", "-e", "average",
            "-o", tmp_path / f"curve.{suffix}",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert (tmp_path / f"curve.{suffix}").stat().st_size > 2000
    # Text is drawn as shapes, and a comment before them says what it is.
    written = re.findall(r"<!-- (.*?) -->", (tmp_path / "curve.svg").read_text())
    assert written.count("size-0.05") == 1 and written.count("average") == 1, "each edit is named in the legend"
    assert "budget" in written


def test_the_figure_along_a_column_shows_every_number_of_its_table(predictions, groups):
    drops = analyze_predictions(predictions, groups=groups, resamples=50)
    curve = along(drops, "budget", ["size-0.05", "average"])
    [axes] = against_figure(curve, "budget").axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert set(lines) == {"size-0.05", "average"}
    for edit, drawn in lines.items():
        assert drawn == [list(row) for row in curve.filter(edit=edit).select("budget", "drop").iter_rows()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against", "family"], "the column family of the groups holds a, b"),
        (["--against", "budgte"], "did you mean 'budget'"),
        (["--against", "budget", "--wide"], "--wide is for the table of drops"),
    ],
)
def test_what_cannot_be_drawn_is_refused(predictions, groups, arguments, words):
    done = analyze(predictions, "--groups", groups, *arguments)
    refusal(done, words)


def test_against_needs_groups(predictions):
    refusal(analyze(predictions, "--against", "budget"), "needs a file of groups")
