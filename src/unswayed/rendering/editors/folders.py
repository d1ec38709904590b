"""The folder of a pipeline of diffusers: what it is, which files hold its weights, and what a card says about it.

What it is follows from what its call accepts, not from a list of names. No code of a folder is ever run.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import math
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from unswayed.errors import UserError, first_line
from unswayed.files.records import read_object
from unswayed.files.whole import canonical, sha256

IN_PAINTING, INSTRUCTION = "in-painting", "instruction"
INDEX = "model_index.json"
# The files of a repository that a pipeline in folders needs; not single files of all weights, nor pickles.
NEEDED = [INDEX, "README.md", *(f"*/*{end}" for end in (".safetensors", ".json", ".txt", ".model"))]
# The same weights once more: rounded, or as they were during training. They are neither downloaded nor read.
VARIANTS = [f"*.{variant}[.-]*" for variant in ("fp16", "bf16", "non_ema", "ema")]
# Where a call accepts one of these, its `image` is no picture to be edited as words say, or not only that.
OTHERWISE = {
    "num_frames", "frames", "noise_level", "controlnet_conditioning_scale", "control_image",
    "adapter_conditioning_scale", "strength",
}  # fmt: skip


def folder_of(name: str) -> Path:
    """The folder of a pipeline: a folder of this machine, or one that was downloaded from the Hugging Face Hub."""
    local = Path(name).expanduser()
    if local.is_dir():
        return local
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except Exception:
        fetch = f"unswayed weights fetch diffusers:{name}, which first says how large it is"
        raise UserError(
            f"'{name}' is neither a folder nor a pipeline that was downloaded",
            allowed="a folder with model_index.json, or OWNER/NAME of the Hugging Face Hub",
            run=None if local.is_absolute() else fetch,
        ) from None


def kind_of(pipeline: type) -> str | None:
    """What a pipeline does with a picture, by what its call accepts; None if it does not edit one as words say."""
    accepted = set(inspect.signature(pipeline.__call__).parameters)
    if {"prompt", "image", "mask_image"} <= accepted and not accepted & (OTHERWISE - {"strength"}):
        return IN_PAINTING
    return INSTRUCTION if {"prompt", "image"} <= accepted and not accepted & OTHERWISE else None


def editor_of(folder: Path) -> tuple[Any, str]:
    """The class that edits with the parts of this folder, and its kind: that of the folder, or its in-painting form."""
    import diffusers
    from diffusers.pipelines import auto_pipeline as auto

    index = read_object(folder / INDEX, {"_class_name": str}, "give the folder of a diffusers pipeline")
    named = str(index["_class_name"])
    own = getattr(diffusers, named, None)
    if not (isinstance(own, type) and issubclass(own, diffusers.DiffusionPipeline)):
        raise UserError(
            f"{folder} holds a {named[:80]}, which diffusers {diffusers.__version__} does not know",
            allowed="a pipeline that diffusers has; code in a pipeline's folder is never run",
        )
    families = (auto.AUTO_TEXT2IMAGE_PIPELINES_MAPPING, auto.AUTO_IMAGE2IMAGE_PIPELINES_MAPPING)
    keys = [key for family in families for key, member in family.items() if member is own]
    for candidate in (own, *(auto.AUTO_INPAINT_PIPELINES_MAPPING.get(key) for key in keys)):
        if candidate is not None and (kind := kind_of(candidate)) is not None:
            return candidate, kind
    raise UserError(
        f"{folder} holds a {named}, which is no editor of pictures",
        allowed="a pipeline whose call accepts prompt, image and mask_image (in-painting), or prompt and image and no "
        "strength, control image or frames (instruction)",
    )


def weight_files(folder: Path) -> dict[str, list[Path]]:
    """The files with the weights of each part that `model_index.json` names, without variants."""
    parts = {}
    for name, about in read_object(folder / INDEX, {}, "give the folder of a diffusers pipeline").items():
        if isinstance(about, list) and (folder / name).is_dir() and Path(name).name == name:
            files = sorted((folder / name).glob("*.safetensors"))
            if plain := [file for file in files if not any(fnmatch(file.name, variant) for variant in VARIANTS)]:
                parts[name] = plain
    if not parts:
        raise UserError(f"{folder} holds no weights", allowed="parts whose weights are in safetensors files")
    return parts


def elements_of(files: Sequence[Path]) -> int:
    """How many numbers these files hold, from their headers alone."""
    from safetensors import SafetensorError, safe_open

    try:
        total = 0
        for file in files:
            with safe_open(file, framework="pt") as opened:
                total += sum(math.prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
        return total
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file} cannot be read: {first_line(error)}", allowed="a safetensors file") from None


def hash_of(path: Path) -> str:
    """The SHA-256 of a file; the Hub's cache names large files by it."""
    named = path.resolve().name
    return named if path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", named) else sha256(path)


def facts_of(folder: Path) -> dict[str, Any]:
    """What a card says about a pipeline's folder: hashes of its weights and settings, its license, and whether its
    publisher lets only those have it who agreed to terms; None where the model card does not say."""
    from huggingface_hub import metadata_load

    card: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # no model card, or one that is not YAML
        card = metadata_load(folder / "README.md") or {}
    weights = {str(file.relative_to(folder)): hash_of(file) for part in weight_files(folder).values() for file in part}
    settings = {
        str(file.relative_to(folder)): sha256(file)
        for pattern in ("*.json", "*/*.json", "*/*.txt", "*/*.model")
        for file in sorted(folder.glob(pattern))
    }
    return {
        "weights_sha256": weights,
        "settings_sha256": hashlib.sha256(canonical(settings).encode()).hexdigest(),
        "license": card.get("license_name") or card.get("license"),
        "gated": any(str(name).startswith("extra_gated") for name in card) if card else None,
    }


def hub_facts(name: str) -> dict[str, Any]:
    """What the Hugging Face Hub says about a pipeline before anything is downloaded: the bytes that a download takes,
    the license, and who may have it."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import filter_repo_objects

    if Path(name).expanduser().is_dir():
        raise UserError(f"{name} is a folder, so there is nothing to download", run=f"… --renderer diffusers:{name}")
    try:
        info = HfApi().model_info(name, files_metadata=True)
    except Exception as error:
        raise UserError(
            f"the Hugging Face Hub does not answer for '{name}': {first_line(error)}",
            allowed="OWNER/NAME of a pipeline, with an internet connection and, if it is gated, `hf auth login`",
        ) from None
    files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    if INDEX not in files:
        raise UserError(f"'{name}' has no {INDEX}, so it is no pipeline of diffusers")
    needed = filter_repo_objects(files, allow_patterns=NEEDED, ignore_patterns=VARIANTS)
    card = info.card_data.to_dict() if info.card_data else {}
    return {
        "name": name,
        "bytes": sum(files[file] for file in needed),
        "license": card.get("license_name") or card.get("license"),
        "gated": bool(info.gated),
    }


def download(name: str) -> Path:
    """The folder of a pipeline, downloaded; the library continues a download that was interrupted."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=NEEDED, ignore_patterns=VARIANTS))
    except Exception as error:
        given = f"'{name}' could not be downloaded: {first_line(error)}"
        raise UserError(given, run="the same command again") from None


def _config(folder: Path, *parts: str) -> dict[str, Any]:
    """The settings of the first of these parts that there is."""
    for part in parts:
        path = folder / part / "config.json"
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
    return {}


def stated_side(folder: Path, kind: Any) -> int:
    """The side of the pictures that a pipeline was made for, from its settings and the values of its call."""
    usual = inspect.signature(kind.__call__).parameters.get("height")
    if usual is not None and isinstance(usual.default, int):
        return usual.default
    decoder, denoiser = _config(folder, "vae", "movq"), _config(folder, "transformer", "unet")
    blocks = decoder.get("block_out_channels") or decoder.get("dim_mult") or (0,) * 4
    cells = denoiser.get("sample_size") or 128
    return int(cells if isinstance(cells, int) else cells[0]) * 2 ** (len(blocks) - 1)


def decoder_width(folder: Path) -> int:
    decoder = _config(folder, "vae", "movq")
    return int((decoder.get("block_out_channels") or (decoder.get("base_dim", 128),))[0])
