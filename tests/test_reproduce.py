"""Every command of docs/reproduce.md runs, on miniature data in the official layouts.

The page has one `## PAPER` section per paper. Each section sets shell variables in an `export NAME=value` block and
then uses them in its commands: every inline code span that starts with `unswayed ` is a command. The commands of one
section run in the order of the page, in one working folder, in this process.

A command that runs may still use the wrong data. `FACTS` says for every command that makes results which data, split,
framing, convention, reference and settings it must state, `EXPORTS` what the models must be, and `STORED` what the
written cards must say. A page in which one of them is changed fails.

To add a paper, write a function `(folder) -> variables` that writes the miniature layouts below `folder` and returns a
value for every variable that the section exports, and enter it in `PAPERS` under the section's heading. `SHORTER` lists
settings of the page that only cost time; the tests run the commands with the second value instead of the first.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import run_cli
from paper_layouts import imagenet_x, rival10
from unswayed.benchmark.importing import OFFICIAL
from unswayed.labels import imagenet
from unswayed.sources import open_source
from unswayed.sources.imagenet_s import subset_classes

DATA = Path(__file__).parent / "data"
PAGE = Path(__file__).parent.parent / "docs" / "reproduce.md"
SHORTER: dict[str, str] = {
    "--norm both": "--norm linf --levels 210 --resamples 20",
    "--steps 100": "--steps 3",
    "--pixels 256": "--pixels 64",
    "--epochs 300": "--epochs 1",
    "--epochs 30": "--epochs 1",
}
# Two photographs cannot show that a repair helps.
VERDICTS = {"repair": 3}


def sections(page: str | None = None) -> dict[str, str]:
    """The text of each section of the page, by its heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text() if page is None else page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str) -> list[str]:
    """Every command of a section, in order."""
    return re.findall(r"`(unswayed [^`]+)`", text)


def imagenet_e(folder: Path) -> dict[str, str]:
    """ImageNet-S with two photographs, the official ImageNet-E release made of them, and ImageNet-C's layout."""
    scenes = [scene for scene in open_source("sample") if scene.label is not None][:2]
    root, release = folder / "ImageNetS919", folder / "ImageNet-E"
    classes, lines = subset_classes("919"), []
    for number, scene in enumerate(scenes, start=1):
        wnid, stem = imagenet().wnids[scene.label], f"ILSVRC2012_val_{number:08}"
        numbers = np.zeros((*scene.mask.shape, 3), np.uint8)
        numbers[scene.mask > 0.5] = (*divmod(classes.index(wnid) + 1, 256)[::-1], 0)
        for split in ("validation", "train-semi"):
            for kind in (split, f"{split}-segmentation"):
                (root / kind / wnid).mkdir(parents=True, exist_ok=True)
            # The photographs of the two splits are not the same files.
            picture = scene.image if split == "validation" else np.fliplr(scene.image)
            Image.fromarray(picture).save(root / split / wnid / f"{stem}.JPEG")
            colors = numbers if split == "validation" else np.fliplr(numbers)
            Image.fromarray(colors).save(root / f"{split}-segmentation" / wnid / f"{stem}.png")
        for edit in OFFICIAL:
            (release / edit).mkdir(parents=True, exist_ok=True)
            suffix = "JPEG" if edit in ("ori", "full") else "png"
            Image.fromarray(scene.image).resize((256, 256)).save(release / edit / f"{stem}.{suffix}")
        lines.append(f"{stem}.JPEG\t{scene.label}\n")
    (release / "labels.txt").write_text("".join(lines))
    for severity, scene in itertools.product("15", scenes):
        place = folder / "c" / "fog" / severity / imagenet().wnids[scene.label]
        place.mkdir(parents=True)
        Image.fromarray(scene.image).save(place / "ILSVRC2012_val_00000001.JPEG")
    (folder / "models.csv").write_text("model,training,budget\nresnet50,plain,0\nvit,robust,4\nclip,robust,8\n")
    # A small network of guided-diffusion's build, for pictures of 64 pixels.
    state = json.loads((DATA / "adm_mini.json").read_text())
    shutil.copy(DATA / "adm_mini_weights.safetensors", folder / "adm_weights.safetensors")
    (folder / "adm.json").write_text(json.dumps({"config": {**state["config"], "image_size": 64}}))
    return {
        "IMAGENET_S": str(root),
        "IMAGENET_E": shutil.make_archive(str(folder / "ImageNet-E"), "zip", folder, "ImageNet-E"),
        "ADM": str(folder / "adm_weights.safetensors"),
        "GUIDE": "lite:0",
        "RESNET50": "lite:0",
        "SIN": "lite:1",
        "DEBIASED": "lite:2",
        "VIT": "lite:1",
        "CLIP": "lite:2",
        "CLIP_TUNED": "lite:1",
        "HYBRID": "lite:0",
        "MODELS": str(folder / "models.csv"),
        "IMAGENET_A": str(root / "validation"),
        "IMAGENET": str(root / "train-semi"),
        "IMAGENET_VAL": str(root / "validation"),
        "IMAGENET_C": str(folder / "c"),
    }


PAPERS: dict[str, Callable[[Path], dict[str, str]]] = {
    "ImageNet-E": imagenet_e,
    "RIVAL10": rival10,
    "ImageNet-X": imagenet_x,
}


# What a command must state, by its verb and its output or table: its source, and the values of options.
FACTS: dict[str, dict[str, dict[str, str | None]]] = {
    "ImageNet-E": {
        "build -o built": {
            "source": "imagenet-s:$IMAGENET_S?split=validation", "--classes": "imagenet-e", "--network": "$ADM",
            "--guidance": "released", "--steps": "100", "--pixels": "256", "--frame": "squash", "--guide": "$GUIDE",
        },
        "build -o high": {
            "source": "imagenet-s:$IMAGENET_S?split=validation", "--classes": "imagenet-e", "--network": "$ADM",
            "--recipe": "background(band=high)=complex", "--guidance": "released", "--frame": "squash",
        },
        "build -o built-l": {"source": "imagenet-s:$IMAGENET_S?split=validation", "--recipe": "imagenet-e-l"},
        "evaluate -o built-l-predictions": {"source": "built-l", "--transform": "paper"},
        "import -o official": {"source": "$IMAGENET_E"},
        "evaluate -o official-predictions": {"source": "official", "--transform": "paper"},
        # Drops are against the release's own originals, the default.
        "analyze -o table-1.tex": {"source": "official-predictions", "--reference": None},
        "evaluate -o built-predictions": {"source": "built", "--transform": "paper"},
        "report -o report.html": {"source": "official-predictions", "--trust": ""},
        "analyze attributes": {"--table": "attributes", "--reference": None},
        "analyze -o classes.csv": {"source": "official-predictions", "--by": "class", "--edit": "size-0.05"},
        "analyze -o budget.svg": {"--against": "budget", "--groups": "$MODELS"},
        "distribution -o distribution background": {"source": "built"},
        "distribution -o shift scores": {"source": "official", "-m": "$RESNET50"},
        "distribution -o shift adaptation": {"source": "official", "-m": "$RESNET50"},
        "evaluate -o a-predictions": {"source": "images:$IMAGENET_A"},
        "evaluate -o c-predictions": {"source": "images:$IMAGENET_C"},
        "analyze corruptions": {"source": "c-predictions"},
        "build -o textures": {
            "source": "imagenet-s:$IMAGENET_S?split=validation", "--recipe": "textures", "--classes": "imagenet-e",
        },
        "repair -o repaired": {
            "source": "imagenet-s:$IMAGENET_S?split=train-semi", "--also": "images:$IMAGENET",
            "--test": "images:$IMAGENET_VAL", "--benchmark": "official", "-m": "$RESNET50",
        },
        "repair -o hybrid": {
            "source": "imagenet-s:$IMAGENET_S?split=train-semi", "--also": "images:$IMAGENET",
            "--benchmark": "official", "-m": "$HYBRID",
        },
    },
    "RIVAL10": {
        **{
            f"fit-head -o heads/{name}": {
                "source": "rival10:$RIVAL10?split=train", "--preset": "released", "--frame": "squash",
                "--ablate": "background" if name == "gray" else None,
            }
            for name in ("resnet50", "robust", "simclr", "deit", "clip", "gray")
        },
        **{
            f"sensitivity -o noise {table}".strip(): {
                "source": "rival10:$RIVAL10?split=test", "--frame": "squash", "--convention": "released",
                "--norm": "both",
            }
            for table in ("", "drops")
        },
        **{
            f"sensitivity -o noise {table}": {
                "source": "rival10:$RIVAL10?split=test", "--frame": "squash", "--convention": "released",
                "--norm": "both", "--saliency": "gradcam", "--class-by": "predicted", "--measure": measure,
            }
            for table, measure in (("saliency-class", "iou"), ("suspects", "density_difference"))
        },
    },
    "ImageNet-X": {
        "factors real": {"source": "$PREDICTIONS", "--annotations": "$IMAGENETX"},
        "factors real-standard": {"source": "$PREDICTIONS", "--annotations": "$IMAGENETX"},
        "factors calibration": {"source": "$PREDICTIONS", "--annotations": "$IMAGENETX"},
        "factors scatter.pdf": {"--sets": "imagenet_testbed,modelvshuman,base", "--groups": "published"},
        "factors augmentations.pdf": {"source": "$RESULTS", "--groups": "augmentations"},
        "factors correlation-train.pdf": {"--partition": "train", "--which": "multi"},
        "factors correlation-val.pdf": {"--which": "multi", "--annotations": "$IMAGENETX"},
        "factors types.pdf": {"source": "$RESULTS", "--groups": "published", "--table": "model-types"},
    },
}  # fmt: skip
# What the models of a section must be: the paper's prompt and class names, and the preprocessing of the training.
EXPORTS: dict[str, dict[str, str]] = {
    "ImageNet-E": {
        "CLIP": "open_clip:ViT-B-16/openai?names=openai&prompt=a photo of a {}.",
        "CLIP_TUNED": "timm:vit_base_patch16_clip_224.openai_ft_in1k",
        "RESNET50": "timm:resnet50.tv_in1k",
        "HYBRID": "timm:hybrid_resnet50_vits?weights=none&backbone_pretrained=True",
        "GUIDE": "256x256_classifier.pt",
        "IMAGENET": "/data/imagenet/train",
        "IMAGENET_VAL": "/data/imagenet/val",
    },
    "RIVAL10": {
        "RESNET50": "timm:resnet50.tv_in1k",
        "ROBUST": "timm:resnet50?checkpoint=/data/resnet50_l2_eps3.ckpt",
        "SIMCLR": "timm:resnet50?checkpoint=/data/simclr_imagenet.ckpt",
        "DEIT": "timm:deit_small_patch16_224.fb_in1k",
        "CLIP": "open_clip:ViT-B-16/openai",
    },
    "ImageNet-X": {},
}
# What the files that a command wrote must say, as (file, path in its JSON, value).
STORED: dict[str, list[tuple[str, str, object]]] = {
    "ImageNet-E": [
        ("built/benchmark.json", "frame", "squash"),
        ("built/benchmark.json", "renderer.guidance", "released"),
        ("official-predictions/resnet50.json", "transform.resize", 256),
        ("official-predictions/resnet50.json", "transform.crop", 224),
        ("built-l-predictions/resnet50.json", "transform.crop", 224),
    ],
    "RIVAL10": [
        ("noise/noise/resnet50.json", "settings.convention", "released"),
        ("noise/noise/resnet50.json", "settings.frame", "squash"),
        ("noise/noise/resnet50.json", "settings.transform.mean", [0.0, 0.0, 0.0]),
        ("heads/resnet50/head.json", "normalized", False),
        ("heads/gray/head.json", "ablated", "background"),
        ("heads/clip/head.json", "normalized", False),
        ("noise/noise/deit.json", "settings.convention", "released"),
    ],
    "ImageNet-X": [],
}


def parsed(command: str) -> tuple[str, dict[str, str]]:
    """The key of a command in FACTS, and what it states: its source and its options."""
    words = shlex.split(command)[1:]
    stated, rest = {"source": ""}, words[1:]
    while rest:
        word, *rest = rest
        if not word.startswith("-"):
            stated["source"] = word
        else:
            stated[word] = rest.pop(0) if rest and not rest[0].startswith("-") else ""
    table = stated.get("--figure") or f"-o {stated['-o']} {stated.get('--table', '')}" if "-o" in stated else ""
    made = table or stated.get("--figure") or stated.get("--table") or stated.get("--right", "")
    return f"{words[0]} {made}".strip(), stated


def wrong_facts(page: str) -> list[str]:
    """What commands and exports of the page state other than the papers require."""
    wrong = []
    for paper, text in sections(page).items():
        known = [parsed(command) for command in commands(text)]
        for key, facts in FACTS[paper].items():
            stated = [options for name, options in known if name == key]
            if not stated:
                wrong.append(f"{paper}: there is no command {key}")
            wrong += [
                f"{paper}: {key} has {name} {options.get(name)}, not {value}"
                for options in stated
                for name, value in facts.items()
                if options.get(name) != value
            ]
        exports = dict(re.findall(r"^export (\w+)=('[^']*'|\S+)", text, re.MULTILINE))
        for name, value in EXPORTS[paper].items():
            if exports.get(name, "").strip("'") != value:
                wrong.append(f"{paper}: {name} is {exports.get(name)}, not {value}")
    return wrong


def test_the_page_states_the_data_splits_conventions_and_models_of_the_papers():
    assert wrong_facts(PAGE.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("split=validation", "split=train-semi"),
        ("split=train-semi", "split=validation"),
        ("?split=test", "?split=train"),
        (" --test images:$IMAGENET_VAL", ""),
        ("--test images:$IMAGENET_VAL", "--test images:$IMAGENET"),
        (" --convention released", ""),
        ("--convention released", "--convention default"),
        ("--preset released", "--preset default"),
        ("--frame squash", "--frame object"),
        ("--transform paper", "--transform own"),
        ("--guidance released", "--guidance calibrated"),
        ("--classes imagenet-e", "--classes 0"),
        ("prompt=a photo of a {}.", "templates=openai"),
        ("names=openai&", ""),
        ("deit_small_patch16_224.fb_in1k", "vit_small_patch16_224.augreg_in1k"),
        (" --trust", ""),
        ("--table attributes", "--table attributes --reference source"),
        ("band=high", "band=all"),
        ("timm:resnet50.tv_in1k ", "timm:resnet50 "),
        ("/data/imagenet/train", "/data/imagenet/val"),
        ("--partition train ", ""),
        ("--benchmark official", "--benchmark built"),
        ("weights=none&backbone_pretrained=True", "weights=none"),
        ("-o table-1.tex", "--reference source -o table-1.tex"),
        ("openai_ft_in1k", "laion2b_ft_in1k"),
        ("--by class --edit size-0.05", "--by class"),
        ("images:$IMAGENET_C", "images:$IMAGENET_A"),
        (" --ablate background", ""),
        ("--class-by predicted", "--class-by label"),
        ("--measure iou", "--measure dice"),
        ("--right real-standard", "--right real"),
        ("--sets imagenet_testbed,modelvshuman,base", "--sets base"),
    ],
)
def test_a_changed_fact_of_the_page_is_found(old, new):
    """In whichever command or export it is changed; the text around them may say what it likes."""
    page = PAGE.read_text()
    spans = [match.span() for match in re.finditer(r"`unswayed [^`]+`|^export .*$", page, re.MULTILINE)]
    places = [
        match.start()
        for match in re.finditer(re.escape(old), page)
        if any(first <= match.start() < last for first, last in spans)
    ]
    assert places
    for start in places:
        assert wrong_facts(page[:start] + new + page[start + len(old) :]), page[start - 150 : start + 80]


def test_every_section_has_its_miniature_data():
    assert set(PAPERS) == set(sections())
    assert all(commands(text) for text in sections().values())


@pytest.mark.parametrize("paper", PAPERS)
def test_every_command_of_the_page_runs(paper, tmp_path):
    text = sections()[paper]
    variables = PAPERS[paper](tmp_path / "data")
    assert set(re.findall(r"^export (\w+)=", text, re.MULTILINE)) == set(variables)
    (tmp_path / "work").mkdir()
    with contextlib.chdir(tmp_path / "work"), pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        for command in commands(text):
            for long, short in SHORTER.items():
                command = command.replace(long, short)
            result = run_cli(*shlex.split(os.path.expandvars(command))[1:])
            assert result.exit_code == VERDICTS.get(command.split()[1], 0), f"{command}\n{result.output}"
        for file, names, value in STORED[paper]:
            stored = json.loads(Path(file).read_text())
            for name in names.split("."):
                stored = stored[name]
            assert stored == value, f"{file}: {names}"
