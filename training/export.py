"""Writes a checkpoint as the engine reads it: python export.py CHECKPOINT FOLDER"""
import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from checkpoint import load
from evaluate import LOW_BAND
from start import shapes

TIME = 256


def stored(value):
    """Matrices and kernels as f16, vectors as they are: they are few, and norms need their digits."""
    return (value.half() if value.dim() > 1 else value.float()).contiguous().cpu()


def time_embedding(width):
    """Zeros: there is one step, and its modulation lies in the layers' own vectors."""
    layers = {"proj_in": (width, TIME), "proj_hid": (width, width), "proj_out": (6 * width, width)}
    for name, (rows, columns) in layers.items():
        yield f"emb_in.{name}.weight", torch.zeros(rows, columns, dtype=torch.float8_e4m3fn)
        yield f"emb_in.{name}.bias", torch.zeros(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    w, sizes, steps = load(args.checkpoint, "cpu")
    vae, dit = shapes(sizes)
    w["encoder.conv_out.weight"][sizes.latent:] = 0
    w["encoder.conv_out.bias"][sizes.latent:] = -30                # no spread: the mean is the latent
    args.folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: stored(w[name]) for name in vae}
    # In bf16 its decoder makes clips flicker: the signal is small beside the constant channel.
    properties = {"groups": "1", "scaling_factor": "1", "decoder": "f32", "steps": str(steps)}
    save_file(tensors, args.folder / "vae.safetensors", properties)
    tensors = {name: stored(w[name]) for name in dit} | dict(time_embedding(sizes.width))
    properties = {"start": "condition", "low_band": str(LOW_BAND), "steps": str(steps)}
    save_file(tensors, args.folder / "dit.safetensors", properties)
    print(sum(f.stat().st_size for f in args.folder.glob("*.safetensors")), "bytes")


if __name__ == "__main__":
    main()
