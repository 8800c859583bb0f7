"""Writes a checkpoint in the format of the engine: python3 export.py CHECKPOINT FOLDER [--sharp CHECKPOINT]

With --sharp-of OTHER instead, the setting `sharp` is that of another exported model: what it adds to that model's
weights is added to these. That suits a model that was trained further. With --share S, the weights are a mean of both
models, with a share of S of the checkpoint: it keeps more of what the other one does well.
"""
import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import low_band
from checkpoint import load
from model import FINE_PARTS
from start import deeper, shapes

TIME = 256


def stored(value, zeros=2):
    """Matrices and kernels in f16, vectors in f32: they are small, and norms need the precision. The last bits of f16
    are zero: without them the program is smaller."""
    return (shortened(value.half(), zeros) if value.dim() > 1 else value.float()).contiguous().cpu()


def shortened(value, zeros):
    """Rounded to values whose last bits are zero."""
    bits, step = value.view(torch.int16), 1 << zeros
    return ((bits & 0x7fff) + step // 2 & -step | bits & -0x8000).view(torch.half)


def estimator(w):
    """The estimator of the low band, in f32: a job computes it on the host."""
    return {name: w[name].float().contiguous().cpu() for name in low_band.shapes()}


def time_embedding(width):
    """Zeros: the model has one step, and the vectors of the layers hold its modulation."""
    layers = {"proj_in": (width, TIME), "proj_hid": (width, width), "proj_out": (6 * width, width)}
    for name, (rows, columns) in layers.items():
        yield f"emb_in.{name}.weight", torch.zeros(rows, columns, dtype=torch.float8_e4m3fn)
        yield f"emb_in.{name}.bias", torch.zeros(rows)


def moved(folder, w):
    """The weights of the setting `sharp` of an exported model, by what they add to those of the model."""
    before, sharp = load(folder, "cpu")[0], load_file(folder / "sharp.safetensors")
    return {name: w[name] + value.float() - before[name] for name, value in sharp.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    setting = parser.add_mutually_exclusive_group()
    setting.add_argument("--sharp", type=Path, help="checkpoint of sharp.py, written beside the others")
    setting.add_argument("--sharp-of", type=Path, help="folder of an exported model")
    parser.add_argument("--share", type=float, default=1.0, help="of the checkpoint, beside the model of --sharp-of")
    args = parser.parse_args()
    if args.share != 1 and not args.sharp_of:
        parser.error("--share needs the other model: --sharp-of")
    w, sizes, steps = load(args.checkpoint, "cpu")
    if args.share != 1:
        before, _ = deeper(*load(args.sharp_of, "cpu")[:2], sizes.blocks)
        w = {name: torch.lerp(before[name], value, args.share) for name, value in w.items()}
    vae, dit = shapes(sizes)
    w["encoder.conv_out.weight"][sizes.latent:] = 0
    w["encoder.conv_out.bias"][sizes.latent:] = -30                # no variance: the mean is the latent
    args.folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: stored(w[name]) for name in vae}
    properties = {"groups": "1", "scaling_factor": "1", "steps": str(steps)}
    save_file(tensors, args.folder / "vae.safetensors", properties)
    tensors = {name: stored(w[name], zeros=3) for name in dit} | dict(time_embedding(sizes.width)) | estimator(w)
    properties = {"start": "condition", "limit": str(low_band.LIMIT), "steps": str(steps)}
    save_file(tensors, args.folder / "dit.safetensors", properties)
    if args.sharp or args.sharp_of:
        sharp, _, steps = load(args.sharp, "cpu") if args.sharp else (moved(args.sharp_of, w), sizes, steps)
        tensors = {name: stored(sharp[name]) for name in vae if name.startswith(FINE_PARTS)}
        save_file(tensors, args.folder / "sharp.safetensors", {"steps": str(steps)})
    print(sum(f.stat().st_size for f in args.folder.glob("*.safetensors")), "bytes")


if __name__ == "__main__":
    main()
