"""Makes the images of the model card from the folder of `peers.py`: crops by bicubic, nano, Real-ESRGAN, and originals.

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
# (case, name, left, top)
SHEETS = {
    "nano-worst.jpg": (
        ("4x-degraded", "A_c0170", 40, 100),
        ("4x-degraded", "A_scipy_face", 260, 140),
        ("4x-degraded", "A_c0031", 140, 120),
    ),
    "nano-peers.jpg": (
        ("4x", "A_c0012", 120, 80),
        ("4x", "A_c0022", 160, 120),
        ("4x-degraded", "A_sk_coffee", 200, 120),
    ),
}


def crops(args, case, name, left, top):
    box = (left, top, left + SIDE, top + SIDE)
    original = Image.open(next((args.data / "img").glob(f"{name}.*"))).convert("RGB").crop(box)
    nano = Image.open(args.peers / "nano" / case / "img" / f"{name}.png").convert("RGB").crop(box)
    small = Image.open(args.peers / "inputs" / case / "img" / f"{name}.png").convert("RGB")
    small = small.crop([side // SCALE + (AROUND if i > 1 else -AROUND) for i, side in enumerate(box)])
    inner = (SCALE * AROUND, SCALE * AROUND, SCALE * AROUND + SIDE, SCALE * AROUND + SIDE)
    bicubic = small.resize((SCALE * small.width, SCALE * small.height), Image.BICUBIC).crop(inner)
    other = peers.real_esrgan(peers.REAL_ESRGAN["realesrgan-x4plus"], small, SCALE).crop(inner)
    return bicubic, nano, other, original


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--peers", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    step = SIDE + GAP
    for file, rows in SHEETS.items():
        sheet = Image.new("RGB", (4 * step - GAP, len(rows) * step - GAP), "white")
        for y, row in enumerate(rows):
            for x, crop in enumerate(crops(args, *row)):
                sheet.paste(crop, (x * step, y * step))
        sheet.save(args.out / file, quality=82)


if __name__ == "__main__":
    main()
