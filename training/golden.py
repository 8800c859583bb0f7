"""Writes the golden file of an exported model: python3 golden.py FOLDER GOLDEN"""
import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import degrade
import low_band
from checkpoint import load
from evaluate import Judge

FRAMES, HEIGHT, WIDTH, SCALE = 5, 9, 13, 4
STRENGTH = 0.75
PHOTO = Path(__file__).resolve().parent.parent / "crates/reseed-media/assets/demo/photo.jpg"
LARGER = 3, 3, 85, 61                    # frames whose strength is estimated from several bands of rows


def waves():
    """A moving pattern in 8-bit steps."""
    t, c, y, x = torch.meshgrid(*(torch.arange(n) for n in (FRAMES, 3, HEIGHT, WIDTH)), indexing="ij")
    return degrade.bytes_of(0.5 + 0.4 * torch.sin(0.9 * x + 0.6 * y + c + 0.5 * t) * torch.cos(0.35 * y - 0.2 * t))


def grainy():
    """The photograph of the demo, reduced, with more noise from frame to frame, in 8-bit steps."""
    t, c, y, x = torch.meshgrid(*(torch.arange(n) for n in LARGER), indexing="ij")
    noise = (x * 7919 + y * 104729 + c * 1299709) * 2654435761 % 1009 / 1009 - 0.5
    photo = np.array(Image.open(PHOTO).convert("RGB"))
    still = degrade.resize(torch.from_numpy(photo).permute(2, 0, 1).float() / 255, *LARGER[2:])
    return degrade.bytes_of(still + 0.06 * t * noise)


def make(folder, golden):
    """`folder` holds the exported model."""
    w, sizes, _ = load(folder, "cpu")
    small = waves()
    size = SCALE * HEIGHT, SCALE * WIDTH
    seen = degrade.resize(small, *size).clamp(0, 1)
    out, fine = Judge(w, sizes).run(seen, True), load_file(folder / "sharp.safetensors")
    sharp = Judge(w | {name: value.float() for name, value in fine.items()}, sizes).run(seen, True)
    larger, strengths = grainy(), low_band.strengths(w, small)
    tensors = {"input": small, "output": out.half(), "sharp": sharp.half(), "strengths": strengths, "larger": larger,
               "larger_strengths": low_band.strengths(w, larger)}
    for name, strength in (("low_band", STRENGTH), ("estimated", strengths)):
        tensors[name] = low_band.finished(out, small, strength).half()
    save_file({name: value.contiguous() for name, value in tensors.items()}, golden)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the exported model; `tools/nano unpack` writes the embedded one")
    parser.add_argument("golden", type=Path, help="the safetensors file to write")
    args = parser.parse_args()
    make(args.folder, args.golden)


if __name__ == "__main__":
    main()
