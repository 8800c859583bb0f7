"""Writes the golden file of an exported model: python3 golden.py FOLDER GOLDEN"""
import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

import degrade
from checkpoint import load
from evaluate import Judge

FRAMES, HEIGHT, WIDTH, SCALE = 5, 9, 13, 4
STRENGTH = 0.75


def waves():
    """A moving pattern in 8-bit steps."""
    t, c, y, x = torch.meshgrid(*(torch.arange(n) for n in (FRAMES, 3, HEIGHT, WIDTH)), indexing="ij")
    return degrade.bytes_of(0.5 + 0.4 * torch.sin(0.9 * x + 0.6 * y + c + 0.5 * t) * torch.cos(0.35 * y - 0.2 * t))


def make(folder, golden):
    """`folder` holds the exported model."""
    w, sizes, _ = load(folder, "cpu")
    small = waves()
    size = SCALE * HEIGHT, SCALE * WIDTH
    out = Judge(w, sizes).run(degrade.resize(small, *size).clamp(0, 1), True)
    lost = small - degrade.resize(out, HEIGHT, WIDTH)
    given = (out + STRENGTH * degrade.resize(lost, *size)).clamp(0, 1)
    tensors = {"input": small, "output": out.half(), "low_band": given.half()}
    save_file({name: value.contiguous() for name, value in tensors.items()}, golden)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the exported model, such as crates/reseed-model/assets/nano")
    parser.add_argument("golden", type=Path, help="the safetensors file to write")
    args = parser.parse_args()
    make(args.folder, args.golden)


if __name__ == "__main__":
    main()
