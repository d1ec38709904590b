"""python tools/release_check.py: everything about a release that can be checked without GitHub, PyPI and other systems.

Builds sdist and wheel, serves them from an index on 127.0.0.1, and uses the package from there in empty environments
outside the checkout: the demo, the commands of README.md as written, the steps of action.yml, the lowest versions that
pyproject.toml allows, and the sizes of the downloads. Prints one line for each step and, at the end, what only the
services can show.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
CUDA = re.compile(r"cuda-|nvidia-|triton")
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-apple-darwin", "x86_64-pc-windows-msvc")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# torch of PyPI for Linux has several gigabytes of CUDA; this version is in uv's cache since `make setup`.
PINNED = re.findall(r"^torch(?:vision)?==.*$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # as GitHub runs a step
BIN = "Scripts" if os.name == "nt" else "bin"
ONLY_SERVICES = """What only the services can show:
- the matrix of release.yml: macOS, Windows, the versions of Python that are not installed here, and torch's CPU wheels
  where PyTorch's own index could not be reached here
- trusted publishing and attestations (PyPI and GitHub sign them), the GitHub release, the published documentation
- the Action inside a real workflow: its caches, artifacts and `uses:` steps
- weights from the Hugging Face Hub (`timm:…` in README.md)"""


class Wrong(Exception):
    """A step that failed, with what it printed."""


def run(*command: object, cwd: Path, env: Mapping[str, str] | None = None, codes: tuple[int, ...] = (0,)) -> str:
    """The output of a command that must end with one of the exit codes."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode not in codes:
        raise Wrong(f"exit code {done.returncode}: {' '.join(words)}\n{done.stdout[-3000:]}")
    return done.stdout


class Check:
    """The folder of one check, the local index and what was found."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, list[tuple[str, bool, str]]()
        self.outside = folder / "outside"
        self.outside.mkdir(parents=True)
        self.index = ""
        self.cpu = ["--torch-backend=cpu"] if _reaches("https://download.pytorch.org/whl/cpu/torch/") else []
        text = (ROOT / "src/unswayed/__init__.py").read_text()
        self.version = re.search(r'__version__ = "(.*)"', text)[1]  # type: ignore[index]

    def step(self, name: str, check: Callable[[], str]) -> None:
        started = time.monotonic()
        try:
            found, passed = check(), True
        except Wrong as error:
            found, passed = str(error), False
        self.results.append((name, passed, found))
        print(f"{'ok  ' if passed else 'FAIL'} {name} ({time.monotonic() - started:.0f} s): {found}", flush=True)

    def build(self) -> str:
        """sdist and wheel, the wheel from the sdist, in an index as pip knows it, served on loopback."""
        files = self.folder / "index" / "unswayed"
        run(UV, "build", "--quiet", "--out-dir", files, ROOT, cwd=self.folder)
        found = sorted(path.name for path in files.iterdir() if path.suffix in (".whl", ".gz"))
        if found != [f"unswayed-{self.version}-py3-none-any.whl", f"unswayed-{self.version}.tar.gz"]:
            raise Wrong(f"built {found}")
        (files / "index.html").write_text("".join(f'<a href="{name}">{name}</a>\n' for name in found))
        quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        handler = functools.partial(quiet, directory=str(self.folder / "index"))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.index = f"http://127.0.0.1:{server.server_address[1]}/"
        return ", ".join(f"{name} {(files / name).stat().st_size / 1e6:.1f} MB" for name in found)

    def environment(self, name: str) -> dict[str, str]:
        """The variables of a shell in which only this environment is active."""
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        place = self.folder / name
        return kept | {
            "PATH": f"{place / BIN}{os.pathsep}{kept['PATH']}",
            "VIRTUAL_ENV": str(place),
            "PIP_EXTRA_INDEX_URL": f"{self.index} {kept.get('PIP_EXTRA_INDEX_URL', '')}".strip(),
            "GITHUB_STEP_SUMMARY": str(self.outside / "summary.md"),
            "GITHUB_OUTPUT": str(self.outside / "output"),
        }

    def install(self, name: str, *options: str, interpreter: str = sys.executable) -> str:
        """The package from the local index in a new environment; which torch and timm it got."""
        place, wanted = self.folder / name, f"unswayed=={self.version}"
        run(UV, "venv", "--quiet", "--seed", "--python", interpreter, place, cwd=self.folder)
        python = ("--python", place / BIN / "python", "--quiet")
        run(UV, "pip", "install", *python, "--index", self.index, *options, *self.cpu, wanted, cwd=self.outside)
        code = (
            "import unswayed, torch, timm; print(unswayed.__file__, *(m.__version__ for m in (unswayed, torch, timm)))"
        )
        got = run("python", "-c", code, cwd=self.outside, env=self.environment(name))
        where, version, torch, timm = got.split()[-4:]
        if not Path(where).is_relative_to(place.resolve()) or version != self.version:
            raise Wrong(f"imported {where}, {version}")
        return f"unswayed {version}, torch {torch}, timm {timm}"

    def demo(self, name: str) -> str:
        """The demo and the smoke test of release.yml as written, from outside the checkout."""
        import yaml

        env, folder = self.environment(name), self.outside if name == "core" else self.outside / name
        folder.mkdir(exist_ok=True)
        workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
        for step in workflow["jobs"]["try"]["steps"]:
            if step.get("name") in ("Demo", "Smoke test"):
                run(*SHELL, step["run"], cwd=folder, env=env)
        table = run("unswayed", "analyze", "demo/predictions", "--format", "json", cwd=folder, env=env)
        rows = json.loads(table[table.index("[") :])
        report = folder / "demo/report.html"
        return f"{report} ({report.stat().st_size / 1e6:.1f} MB), {len(rows)} rows of results; smoke test"

    def extras(self) -> str:
        """What the core does not do names the line that installs it."""
        env, named = self.environment("core"), []
        for words, extra in (
            (("app",), "app"),
            (("build", "coco:none.json", "-o", "x"), "coco"),
            (("sensitivity", "sample", "-m", "lite:0", "--saliency", "layercam", "-o", "x"), "studies"),
            (("evaluate", "demo/benchmark", "-m", "onnx:none.onnx", "-o", "x"), "models"),
        ):
            text = run("unswayed", *words, cwd=self.outside, env=env, codes=(2,))
            if f"pip install 'unswayed[{extra}]'" not in text:
                raise Wrong(f"unswayed {' '.join(words)} does not name the extra {extra}:\n{text[-600:]}")
            named.append(extra)
        return ", ".join(named)

    def readme(self) -> str:
        """The commands of README.md as written, line by line, on two photographs of the sample in `my-photos`."""
        env, done, folder = self.environment("core"), [], self.outside / "readme"
        folder.mkdir()  # of its own, since the smoke test has results of these names
        code = (
            "import pathlib, shutil, unswayed.data; sample = pathlib.Path(unswayed.data.__path__[0]) / 'sample'\n"
            "for place, suffix in (('my-photos', 'jpg'), ('my-photos/masks', 'png')):\n"
            "    for name, of in (('koala', 'koala'), ('panda', 'giant panda')):\n"
            "        to = pathlib.Path(place, of, f'{name}.{suffix}'); to.parent.mkdir(parents=True, exist_ok=True)\n"
            "        shutil.copy(sample / f'{name}.{suffix}', to)\n"
            "shutil.copy(sample / 'dog.jpg', 'dog.jpg'); shutil.copy(sample / 'dog.png', 'dog-mask.png')\n"
            "pathlib.Path('mine.py').write_text('from unswayed import open_model\\ndef model():\\n"
            '    return open_model("lite:0")\\n\')\n'
        )
        run("python", "-c", code, cwd=folder, env=env)
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            for line in block.splitlines():
                command = line.partition("   #")[0].strip()
                done.append(self._readme_line(command, env, folder))
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            run("python", "-c", block, cwd=folder, env=env)
            done.append("the Python block")
        return "; ".join(done)

    def _readme_line(self, command: str, env: Mapping[str, str], folder: Path) -> str:
        if "download.pytorch.org" in command and not self.cpu:
            return f"not run, PyTorch's index cannot be reached: {command}"
        # 2: the extra of `app` is not installed; 1, 3: verdicts of `check`; 4: weights that only the Hub has.
        codes = {"app": (2,), "check": (0, 1, 3), "evaluate": (0, 4)}.get((command.split() + [""])[1], (0,))
        output = run("bash", "-c", command, cwd=folder, env=env, codes=codes)
        if codes == (2,) and "pip install 'unswayed[app]'" not in output:
            raise Wrong(output)
        return command

    def action(self) -> str:
        """The shell steps of action.yml in their order, as GitHub runs them; pip installs from the local index."""
        import yaml

        described = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        inputs = {name: str(entry.get("default", "")) for name, entry in described["inputs"].items()}
        options = "--recipe original,position --renderer paste --limit 6 --pixels 160 --seed 7"
        inputs |= {"model": "lite:0\nlite:1", "build-options": options, "limits": "--min-accuracy 5"}
        if not self.cpu:
            inputs["torch-index"] = ""  # torch is in the environment already
        env, names = self.environment("action"), []
        for step in described["runs"]["steps"]:
            if "run" not in step:
                continue
            expression = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")
            values = {
                key: expression.sub(lambda match: inputs[match[1]], value) for key, value in step.get("env", {}).items()
            }
            run(*SHELL, step["run"], cwd=self.outside, env=env | values)
            names.append(step["name"])
        if "verdict=pass" not in (self.outside / "output").read_text():
            raise Wrong((self.outside / "output").read_text())
        return ", ".join(names) + ": verdict pass"

    def action_environment(self) -> str:
        """An environment in which pip has torch, and the Action's own first step installs the rest."""
        place = self.folder / "action"
        run(UV, "venv", "--quiet", "--seed", "--python", sys.executable, place, cwd=self.folder)
        python = ("--python", place / BIN / "python", "--quiet")
        run(UV, "pip", "install", *python, *self.cpu, *PINNED, cwd=self.outside)
        return ", ".join(PINNED)

    def resolves(self) -> str:
        """Wheels for every part of the core on each system and version of Python, so that nothing is compiled."""
        env = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
        for python in PYTHONS:
            for platform in PLATFORMS:
                where = ("--python-version", python, "--python-platform", platform, "--only-binary", ":all:")
                run(UV, "pip", "compile", "--quiet", ROOT / "pyproject.toml", *where, cwd=self.outside, env=env)
        return f"Python {', '.join(PYTHONS)} on {', '.join(PLATFORMS)}"

    def sizes(self) -> str:
        """The table of downloads: the core, and what each extra adds to it, in MB."""
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        core = self._wheels()
        lines = ["", "| what | packages | download, MB |", "| --- | --- | --- |"]
        cuda = {name: size for name, size in core.items() if CUDA.match(name)}
        lines.append(f"| core with torch of PyPI (CUDA) | {len(core)} | {sum(core.values()):,.0f} |")
        lines.append(f"| … of it CUDA and Triton | {len(cuda)} | {sum(cuda.values()):,.0f} |")
        lines.append(f"| … of it torch itself | 1 | {core['torch']:,.0f} |")
        rest = {name: size for name, size in core.items() if name not in cuda and name != "torch"}
        lines.append(f"| … everything else | {len(rest)} | {sum(rest.values()):,.0f} |")
        for extra in sorted(set(extras) - {"dev", "docs"}):
            added = {name: size for name, size in self._wheels(extra).items() if name not in core}
            lines.append(f"| extra `{extra}` | {len(added)} | {sum(added.values()):,.0f} |")
        site = next((self.folder / "core").glob("**/site-packages"))
        installed = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and not path.is_symlink())
        lines.append(f"installed here: core {installed / 1e9:.2f} GB with {'CPU' if self.cpu else 'CUDA'} torch")
        return "\n".join(lines)

    def _wheels(self, extra: str | None = None) -> dict[str, float]:
        """The size in MB of every wheel, or sdist where there is none, that pip would download on this system."""
        chosen = ("--extra", extra) if extra else ()
        lock = self.folder / f"pylock.{extra or 'core'}.toml"
        how = ("--quiet", "--python-version", "3.11", "--format", "pylock.toml", "-o", lock)
        run(UV, "pip", "compile", ROOT / "pyproject.toml", *chosen, *how, cwd=self.outside)
        packages = tomllib.loads(lock.read_text()).get("packages", [])
        files = [
            (package["name"], (package.get("wheels") or [package.get("sdist", {})])[0].get("url"))
            for package in packages
        ]
        with ThreadPoolExecutor(8) as pool:
            sizes = pool.map(_megabytes, [url for _, url in files])
            return dict(zip((name for name, _ in files), sizes, strict=True))


@functools.cache
def _megabytes(url: str | None) -> float:
    if not url or not url.startswith("http"):
        return 0.0
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
        return int(answer.headers.get("Content-Length") or 0) / 1e6


def interpreters() -> dict[str, str]:
    """The other supported versions of Python that this machine has, with their programs."""
    asked = {version: [UV, "python", "find", "--no-python-downloads", version] for version in PYTHONS}
    done = {version: subprocess.run(words, capture_output=True, text=True) for version, words in asked.items()}
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {
        version: found.stdout.strip() for version, found in done.items() if not found.returncode and version != current
    }


def _reaches(address: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=10):
            return True
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="a new folder for everything; a temporary one by default")
    parser.add_argument("--only", default="", help="only the steps whose names contain one of these words")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="unswayed-release-"))
    folder.mkdir(parents=True, exist_ok=True)
    check, words = Check(folder.resolve()), arguments.only.split(",")
    print(f"in {folder}, torch: {'CPU wheels' if check.cpu else 'as in the registry; PyTorch index not reachable'}")
    # With the file, the requirements of the package count as direct, and not only the package itself.
    lowest = ("--resolution", "lowest-direct", "-r", str(ROOT / "pyproject.toml"))
    check.step("build and index", check.build)
    others: list[tuple[str, Callable[[], str]]] = []
    for version, program in interpreters().items():
        others += [
            (f"install: Python {version}", functools.partial(check.install, version, interpreter=program)),
            (f"demo: Python {version}", functools.partial(check.demo, version)),
        ]
    for name, step in (
        ("wheels for every system", check.resolves),
        ("install: newest versions", lambda: check.install("core")),
        ("demo: newest versions", lambda: check.demo("core")),
        ("extras named", check.extras),
        ("README", check.readme),
        ("Action: environment", check.action_environment),
        ("Action: steps", check.action),
        ("install: lowest versions", lambda: check.install("lowest", *lowest)),
        ("demo: lowest versions", lambda: check.demo("lowest")),
        *others,
        ("sizes", check.sizes),
    ):
        if any(word in name for word in words):
            check.step(name, step)
    print(ONLY_SERVICES)
    failed = [name for name, passed, _ in check.results if not passed]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
