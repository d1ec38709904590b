"""Benchmarks that others published: a folder that `unswayed export --to datasets` wrote, or a repository on the Hub."""

from __future__ import annotations

from pathlib import Path

from unswayed.benchmark.importing import Imported
from unswayed.errors import UserError

from .datasets_folder import is_datasets_folder, read_datasets
from .exported import Show

HUB = "hf:"


def is_published(path: str) -> bool:
    """Whether `path` names a repository on the Hugging Face Hub or is an exported folder."""
    return path.startswith(HUB) or is_datasets_folder(Path(path).expanduser())


def import_published(path: str | Path, out: str | Path, *, progress: Show | None = None) -> Imported:
    """Write the benchmark at `path` (a folder, `hf:REPO` or `hf:REPO@REVISION`) to the new folder `out`."""
    text = str(path)
    folder = _downloaded(text.removeprefix(HUB)) if text.startswith(HUB) else Path(text).expanduser()
    if not is_datasets_folder(folder):
        raise UserError(
            f"{text} is not a benchmark that unswayed exported: it has no benchmark/benchmark.json",
            allowed="what `unswayed export BENCH --to datasets` wrote",
        )
    return read_datasets(folder, Path(out).expanduser(), progress or (lambda done, total: None))


def push(folder: str | Path, repo: str, public: bool = False) -> str:
    """Upload an exported folder as the dataset repository `repo`, private unless `public`; return its address."""
    import huggingface_hub

    api = huggingface_hub.HfApi()
    try:
        api.create_repo(repo, repo_type="dataset", private=not public, exist_ok=True)
        api.upload_folder(
            repo_id=repo, repo_type="dataset", folder_path=str(folder), commit_message="Benchmark made with unswayed"
        )
    except Exception as error:
        raise _hub_error(f"{folder} could not be uploaded to {repo}", error) from error
    return f"https://huggingface.co/datasets/{repo}"


def _downloaded(repo: str) -> Path:
    import huggingface_hub

    name, _, revision = repo.partition("@")
    try:
        return Path(huggingface_hub.snapshot_download(name, repo_type="dataset", revision=revision or None))
    except Exception as error:
        raise _hub_error(f"hf:{repo} could not be downloaded", error) from error


def _hub_error(what: str, error: Exception) -> UserError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return UserError(f"{what}: {reason}", allowed="OWNER/NAME of a dataset repository", run="hf auth login")
