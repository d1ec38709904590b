"""The readers of records: JSON, TOML, and lists of labels."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

from fuzzing import Reader, placed, small_png
from mutations import as_parquet, damaged, damaged_json


def sidecar() -> Reader:
    from unswayed.models.deployed import read_sidecar
    from unswayed.specs import Spec

    transform = {
        "resize": 256,
        "crop": 224,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "interpolation": "bicubic",
    }
    whole = {"transform": transform, "labels": ["cat", "dog"], "label_offset": 1, "layout": "NCHW", "output": "y"}
    named = {"transform": transform, "labels": {"name": "own", "classes": ["cat", "dog"]}}

    def read(data: bytes) -> None:
        path = placed("model.onnx.json", data).with_suffix("")
        transform, *_ = read_sidecar(path, Spec.parse(f"onnx:{path}"))
        assert transform.geometry.window(300, 400)

    return Reader([json.dumps(one).encode() for one in (whole, named)], read, damaged_json)


def chat_replies() -> Reader:
    from unswayed.labels import own
    from unswayed.models.chat_server import read_reply
    from unswayed.models.questions import CHOICE, interpret, question

    space = own(["cat", "dog", "bird"])
    top = [{"token": "A", "logprob": -0.1}, {"token": " B", "logprob": -3.0}]
    content = [{"token": "A", "logprob": -0.1, "top_logprobs": top}]
    choice = {"message": {"content": "A"}, "finish_reason": "stop", "logprobs": {"content": content}}
    refused = {"message": {"content": None, "refusal": "No."}, "finish_reason": "length"}

    def read(data: bytes) -> None:
        reply = read_reply(data.decode("utf-8", "replace"))
        answer = interpret(reply, question(CHOICE, space, [0, 0, 1]), space)
        assert len(answer.classes) == len(answer.scores) and answer.outcome
        assert not (answer.scores > 1).any()

    whole = [{"choices": [one], "usage": {"total_tokens": 7}} for one in (choice, refused)]
    return Reader([json.dumps(one).encode() for one in whole], read, damaged_json)


def rows() -> Reader:
    from dataclasses import asdict

    from unswayed.benchmark.rows import Row, read_rows, record

    row = asdict(Row("dog", "size-0.1", parameters={"chain": [{"edit": "size", "rate": 0.1}]}, path="images/a.png"))

    def read(data: bytes) -> None:
        root = placed("benchmark/rows/dog.json", data).parent.parent
        for one in read_rows(root, "dog"):
            record(one)

    return Reader([json.dumps({"source_id": "dog", "rows": [row, row]}).encode()], read, damaged_json)


def labels() -> Reader:
    from unswayed.models.label_mapping import read_labels
    from unswayed.sources.labeled import label_space, name_remarks, read_table

    def read(data: bytes) -> None:
        kind = data[:1]
        if kind == b"J":
            read_labels(str(placed("labels.json", data[1:])))
            return
        rows = read_table(placed("labels.csv" if kind == b"C" else "labels.txt", data[1:]))
        name_remarks(label_space(row.label for row in rows))

    def mutate(data: bytes, draw: random.Random) -> bytes:
        change = damaged_json if data[:1] == b"J" else damaged
        return data[:1] + change(data[1:], draw)

    files = [b"Cfile,label,mask\na.jpg,cat,m.png\nb.jpg,207,\n", b"Ta.jpg\tn02510455\nb.jpg 12\n", b'J["cat", "dog"]']
    return Reader([*files, b'J{"name": "own", "classes": ["cat", "dog"]}'], read, mutate)


def edit_records() -> Reader:
    from unswayed.rendering.photograph import Request, chain_of, read_record
    from unswayed.sources.pictures import read_mask

    requests = [
        Request(chain_of({"size": "0.1", "background": "random"}), renderer="paste"),
        Request(chain_of({"background": "adversarial"}), guide="lite:0", steps=5, label=3),
    ]
    files = []
    for request in requests:
        record = {"request": request.to_json(), "id": "dog", "image": {"path": "dog.jpg", "sha256": "0"}, "files": {}}
        record |= {
            "mask_png": base64.b64encode(small_png()).decode(),
            "rendered_by": {},
            "versions": {},
            "notes": ["n"],
        }
        files.append(json.dumps({**record, "picture_sha256": "0"}).encode())

    def read(data: bytes) -> None:
        read_mask(read_record(placed("record.json", data))[2])

    return Reader(files, read, damaged_json)


def benchmark_card() -> Reader:
    import polars as pl

    from unswayed.benchmark.plan import decisive
    from unswayed.benchmark.rows import read_card
    from unswayed.evaluation.facts import Facts, _with_manifest
    from unswayed.evaluation.inputs import guides_of
    from unswayed.files.records import differences
    from unswayed.labels import LabelSpace

    recipe = {"name": "r", "edits": [{"name": "size-0.1", "parameters": {"chain": [{"edit": "size"}], "folder": "x"}}]}
    card = {"kind": "build", "source": {"spec": "sample", "scenes": 3}, "recipe": recipe, "frame": "center", "runs": 1}
    card |= {"labels": {"name": "own", "classes": ["cat", "dog"]}, "removal": {"spec": "opencv", "name": "opencv-1"}}
    card |= {"renderer": {"guide": {"name": "lite:0"}}, "grown": [{"runs": 1}], "seed": 0, "size": 256}
    manifest = pl.DataFrame({"edit": ["original", "size-0.1"]})

    def read(data: bytes) -> None:
        found = read_card(placed("card/benchmark.json", data).parent)
        LabelSpace.from_json(found["labels"])
        guides_of(found)
        differences(decisive(found), decisive(card))
        _with_manifest(Facts(benchmark=found), manifest)

    return Reader([json.dumps(card).encode()], read, damaged_json)


def model_cards() -> Reader:
    from unswayed.evaluation.facts import _classes, find_benchmark
    from unswayed.evaluation.model_cards import identity_differences, identity_in, read_cards

    identity = {"sha256": "0", "settings": {"seed": 1}, "labels": "x", "edits": {"size-0.1": "y"}}
    identity |= {"photographs": {"count": 1, "sha256": "z"}, "pictures": {"count": 2, "sha256": "z"}}
    card = {"model": "m", "spec": "lite:0", "weights_sha256": "0", "labels": {"name": "own", "classes": ["cat"]}}
    card |= {"benchmark": {"path": "bench", "identity": identity}, "white_box": False, "fingerprint": "f", "rows": 1}
    card |= {"originals": {"n": 1, "accuracy": 0.5}, "transform": {"crop": 224}, "versions": {"torch": "2"}}
    placed("cards/m.parquet", as_parquet({"model": ["m"]}))

    def read(data: bytes) -> None:
        folder = placed("cards/m.json", data).parent
        found = read_cards(folder)
        find_benchmark(folder, found), _classes(found)
        for one in found.values():
            identity_differences(identity_in(one), identity, ("there", "now"))

    return Reader([json.dumps(card).encode()], read, damaged_json)


def repaired() -> Reader:
    """The cards of repaired models; most of them name no network, because building one takes milliseconds."""
    import numpy as np
    import timm

    from unswayed.labels import own
    from unswayed.models import Classifier, Transform
    from unswayed.models.repaired import CARD, open_repaired, save_repaired
    from unswayed.specs import Spec

    folder = placed(f"repaired/{CARD}", b"").parent
    network = timm.create_model("test_efficientnet", num_classes=2)
    model = Classifier(network, Transform(), own(["cat", "dog"]), "test", device="cpu")
    save_repaired(folder, model, model, {"seed": 0, "settings": {"epochs": 1}}, np.zeros(1, np.uint64))
    whole = (folder / CARD).read_bytes()
    nameless = json.dumps({**json.loads(whole), "architecture": {}}).encode()

    def read(data: bytes) -> None:
        placed(f"repaired/{CARD}", data)
        open_repaired(Spec.parse(f"repaired:{folder}"), device="cpu")

    return Reader([whole], read, damaged_json, (nameless,) * 2)


def heads() -> Reader:
    """The card, the weights and the record of training of a head; its base is opened once, which takes long."""
    from unittest import mock

    import numpy as np
    import torch

    from unswayed.labels import own
    from unswayed.models import Classifier, Transform
    from unswayed.models import heads as module
    from unswayed.models.opening import check_head
    from unswayed.specs import Spec

    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2))
    base = Classifier(network, Transform(), own(["cat", "dog"]), "lite:0", device="cpu")
    card = {"base": "lite:0", "base_weights_sha256": base.weights_hash, "labels": own(["cat", "dog"]).to_json()}
    weights = torch.zeros(2, 3), torch.zeros(2)
    folder = placed("head/head.json", b"").parent
    module.Head(base, own(["cat", "dog"]), *weights, card, np.arange(3, dtype=np.uint64)).save(folder)
    whole = {name: (folder / name).read_bytes() for name in ("head.json", "head.safetensors", module.FILE)}

    def read(data: bytes) -> None:
        for number, (name, content) in enumerate(whole.items()):
            placed(f"head/{name}", data[1:] if data[0] == number else content)
        check_head(f"head:{folder}")
        with mock.patch.object(module, "open_base", return_value=base):
            module.trained_on(module.open_head(Spec.parse(f"head:{folder}")).origin)

    def mutate(data: bytes, draw: random.Random) -> bytes:
        return data[:1] + (damaged if data[0] else damaged_json)(data[1:], draw)

    return Reader([bytes([number]) + content for number, content in enumerate(whole.values())], read, mutate)


def repair_results() -> Reader:
    """What `unswayed repair` wrote and a report shows."""
    from unswayed.views.report.extras import RESULT, repair_section

    numbers = {"before": 5.0, "control": 9.5, "repaired": 4.0, "difference": -5.5, "low": -9.0, "high": None}
    rows = [{"measure": "drop", "pictures": pictures, "n": 5, **numbers} for pictures in ("size-0.05", "average")]
    result = {"verdict": "cannot tell", "reason": "few", "model": "lite:0", "rows": rows}
    result["photographs"] = {"train": 20, "train_with_mask": 18}

    def read(data: bytes) -> None:
        str(repair_section(placed(f"repaired-model/{RESULT}", data).parent, None).body)  # type: ignore[arg-type]

    return Reader([json.dumps(result).encode()], read, damaged_json)


def groups() -> Reader:
    """Groups of a model's classes in JSON, weights and ranges of the edits to train with, and limits of a gate."""
    from unswayed.analyses.drops.limits import read_rules
    from unswayed.labels import imagenet, own
    from unswayed.models.label_mapping import map_labels, read_groups
    from unswayed.repair.settings import read_mixture

    limits = 'level = 0.9\nmodels = ["a"]\n[max-drop]\n"size-0.05" = 25\n[min-accuracy]\noriginal = 75\n'
    limits += '[min-threshold]\nsize = "0.04@80"\n[baseline]\npath = "b"\nmargin = 5\nmeasure = "drop"\n'
    mixture = {"weights": {"background": 2, "size": 1}, "size": [0.02, 0.2], "direction": [-20, 20], "most": 2}
    classes = {"dog": ["Labrador retriever", "n02099601", 209], "cat": [281, "tiger cat"]}

    def read(data: bytes) -> None:
        kind, data = data[:1], data[1:]
        if kind == b"L":
            read_rules(placed("gate.toml", data))
        elif kind == b"M":
            read_mixture(placed("mixture.json", data))
        else:
            map_labels(imagenet(), own(["dog", "cat"]), [0, 1], read_groups(placed("groups.json", data)))

    def mutate(data: bytes, draw: random.Random) -> bytes:
        return data[:1] + (damaged if data[:1] == b"L" else damaged_json)(data[1:], draw)

    files = [f"L{limits}", f"M{json.dumps(mixture)}", f"G{json.dumps(classes)}"]
    return Reader([file.encode() for file in files], read, mutate)


def recipes() -> Reader:
    from unswayed.edits.recipes import open_recipe

    text = 'name = "r"\nedits = ["size=0.02:0.5:4", "size=0.05,0.1 x direction=-20,20"]\n'
    text += '[[item]]\nname = "a"\nchain = [{edit = "size", rate = 0.05}, {edit = "position", x = 1, y = 0}]\n'
    return Reader([text.encode()], lambda data: open_recipe(str(placed("recipe.toml", data))))


def processors() -> Reader:
    """The settings of transformers' image processors, whose classes read anything."""
    from unswayed.files.whole import parse_json
    from unswayed.models.from_transformers import _transform
    from unswayed.specs import Spec

    class Processor:
        """An image processor as the library makes it of a file, of which only the settings are read."""

        def __init__(self, data: bytes) -> None:
            self.settings = parse_json(data, "preprocessor_config.json")

        def to_dict(self) -> Any:
            return self.settings

    files = [
        {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3},
        {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 64}, "do_center_crop": True}
        | {"crop_size": {"height": 56, "width": 56}, "rescale_factor": 0.004, "resample": 3, "image_std": [0.3] * 3},
        {"image_processor_type": "PoolFormerImageProcessor", "size": {"shortest_edge": 64}, "crop_pct": 0.9},
        {"data_config": {"input_size": [3, 64, 64], "crop_pct": 0.9, "mean": [0.5] * 3, "crop_mode": "center"}},
    ]
    spec = Spec.parse("transformers:folder?crop=32&mean=0.5&std=0.5")
    whole = [json.dumps(settings).encode() for settings in files]
    return Reader(whole, lambda data: _transform(spec, Processor(data)), damaged_json)
