"""The picture of docs/transforms.md, made by `BatchEdit`, with one edit in each row.

python docs/pictures/make_transforms.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont

from unswayed.edits.mixture import KINDS
from unswayed.transforms import BatchEdit, EditMixture, Scenes

NAMES = ("cat", "chicken", "crab", "dragon", "jaguar", "lemur", "polar_bear")
SIDE, LEFT = 120, 90


def main() -> None:
    scenes = Scenes("sample", SIDE)
    samples = [scenes[place] for place in range(len(scenes)) if scenes.source.ids[place] in NAMES]
    images, masks = (torch.stack([sample[part] for sample in samples]) for part in (0, 1))
    rows = {"original": images}
    for kind in KINDS:
        edit = BatchEdit(EditMixture(weights={kind: 1.0}, probability=1.0))
        rows[kind], _ = edit(images, masks, generator=torch.Generator().manual_seed(3))
    mixture = BatchEdit(EditMixture(probability=1.0, most=3))
    rows["mixture"], _ = mixture(images, masks, generator=torch.Generator().manual_seed(5))
    sheet = Image.new("RGB", (LEFT + len(samples) * (SIDE + 2), len(rows) * (SIDE + 2)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for number, (name, pictures) in enumerate(rows.items()):
        pen.text((4, number * (SIDE + 2) + SIDE // 2 - 8), name, fill="black", font=font)
        for place, picture in enumerate(pictures):
            tile = Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy())
            sheet.paste(tile, (LEFT + place * (SIDE + 2), number * (SIDE + 2)))
    sheet.save(Path(__file__).with_name("transforms.jpg"), quality=84, optimize=True)


if __name__ == "__main__":
    main()
