"""Makes the images of the model card from the folder of `peers.py`: crops by several programs, and originals.

    python crops.py --data SET --peers DIR --out ../docs/pictures/

`--data` is the set as a folder. Real-ESRGAN restores only the crops and eight pixels around them.
"""
import argparse
import pathlib

import peers
from PIL import Image

SIDE = 160  # of a crop, in pixels of the result
SCALE = 4
AROUND = 8  # pixels of the input
GAP = 4
PEERS = ("bicubic", "nano", "realesrgan-x4plus", "original")
SETTINGS = ("bicubic", "nano", "nano-sharp", "original")
# Columns, and rows: case, name, left, top.
SHEETS = {
    "nano-worst.jpg": (
        PEERS,
        ("4x-degraded", "A_scipy_face", 260, 140),
        ("4x-degraded", "A_c0031", 140, 120),
        ("4x-degraded", "A_c0018", 100, 160),
    ),
    "nano-peers.jpg": (
        PEERS,
        ("4x", "A_c0012", 120, 80),
        ("4x", "A_c0022", 160, 120),
        ("4x-degraded", "A_sk_coffee", 200, 120),
    ),
    "nano-sharp.jpg": (
        SETTINGS,
        ("4x", "A_c0012", 120, 80),
        ("4x", "A_scipy_face", 260, 140),
        ("4x-degraded", "A_sk_coffee", 200, 120),
    ),
}


def crop(args, column, case, name, left, top):
    box = (left, top, left + SIDE, top + SIDE)
    if column == "original":
        return Image.open(next((args.data / "img").glob(f"{name}.*"))).convert("RGB").crop(box)
    if column in SETTINGS[1:]:
        return Image.open(args.peers / column / case / "img" / f"{name}.png").convert("RGB").crop(box)
    small = Image.open(args.peers / "inputs" / case / "img" / f"{name}.png").convert("RGB")
    small = small.crop([side // SCALE + (AROUND if i > 1 else -AROUND) for i, side in enumerate(box)])
    inner = (SCALE * AROUND, SCALE * AROUND, SCALE * AROUND + SIDE, SCALE * AROUND + SIDE)
    if column == "bicubic":
        return small.resize((SCALE * small.width, SCALE * small.height), Image.BICUBIC).crop(inner)
    return peers.real_esrgan(peers.REAL_ESRGAN[column], small, SCALE).crop(inner)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--peers", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--sheet", action="append", choices=SHEETS, help="image to make; default: all")
    args = parser.parse_args()
    step = SIDE + GAP
    for file, (columns, *rows) in SHEETS.items():
        if args.sheet and file not in args.sheet:
            continue
        sheet = Image.new("RGB", (len(columns) * step - GAP, len(rows) * step - GAP), "white")
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                sheet.paste(crop(args, column, *row), (x * step, y * step))
        sheet.save(args.out / file, quality=82)


if __name__ == "__main__":
    main()
