"""The targets of the model on the validation set: python3 targets.py MODEL --data DIR [--low-band S] [--json FILE]

MODEL is a checkpoint or an exported model. Prints the gain over bicubic of the same input, in dB, and how still clips
hold. JPEG is that of libjpeg, with chroma at half resolution.
"""
import argparse
import io
import json
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import data
import degrade
import evaluate
import low_band
from arguments import add_data, data_file
from checkpoint import load

FRAMES, NEW = 17, 4                      # of a clip; of a batch, without the one that it shares
SQUARE, MARGIN, GREY, CANVAS = 48, 16, 128 / 255, 256      # of the moving square, in pixels of the output


def downscaled(x, scale):
    return degrade.bytes_of(degrade.resize(x, x.shape[-2] // scale, x.shape[-1] // scale))


def libjpeg(x, quality):
    """Frames [T, 3, H, W] through the real codec."""
    def one(frame):
        pixels = (frame.permute(1, 2, 0) * 255).round().byte().cpu().numpy()
        coded = io.BytesIO()
        Image.fromarray(pixels).save(coded, "JPEG", quality=quality)
        return torch.from_numpy(np.array(Image.open(coded))).permute(2, 0, 1).float() / 255
    return torch.stack([one(frame) for frame in x]).to(x.device)


def noisy(x, sigma, seed=7):
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).to(x.device)
    return degrade.bytes_of(x + noise * sigma / 255)


# Name: the kind of material, the scale, what happens to the small frames (given the originals), and the target in dB.
CASES = {
    "photographs 4x clean": ("photos", 4, lambda x, lo: lo, 1.7),
    "photographs 4x degraded": ("photos", 4, lambda x, lo: degrade.set_small(x, 4), 1.0),
    "photographs 4x JPEG 15": ("photos", 4, lambda x, lo: libjpeg(lo, 15), 1.0),
    "photographs 2x JPEG 15": ("photos", 2, lambda x, lo: libjpeg(lo, 15), 1.0),
    "photographs 2x noise 20": ("photos", 2, lambda x, lo: noisy(lo, 20), 2.5),
    "photographs 2x clean": ("photos", 2, lambda x, lo: lo, 0.0),
    "clips 4x": ("clips", 4, lambda x, lo: lo, 1.2),
    "clips 2x": ("clips", 2, lambda x, lo: lo, 0.0),
}


class Restorer:
    def __init__(self, judge, band):
        self.judge, self.band = judge, band

    def __call__(self, small, size):
        """The result, and bicubic."""
        up = evaluate.bicubic(small, size)
        out = self.judge.clip(up, True)
        return degrade.bytes_of(low_band.finished(out, small, self.strengths(small))), up

    def strengths(self, small):
        return self.judge.strengths(small) if self.band is None else torch.full((len(small),), self.band).to(small)


def change(x):
    """Mean change between frames, of 255."""
    return (x[1:] - x[:-1]).abs().mean().item() * 255


def unevenness(out, x, frames):
    """Largest deviation of the relative sharpness of a frame from the mean of so many frames, in percent, without the
    first frame of the clip."""
    relative = (evaluate.sharpness(out) / evaluate.sharpness(x))[1:].unflatten(0, (-1, frames))
    return ((relative / relative.mean(1, keepdim=True) - 1).abs().max() * 100).item()


def square(speed):
    """A white square on grey that moves to the right, and where its ghosts would be: well outside of it."""
    at = torch.arange(CANVAS)
    frames, outside = [], []
    for t in range(FRAMES):
        left = (8 + speed * t) % (CANVAS - SQUARE)
        inside = lambda margin, start: (at >= start - margin) & (at < start + SQUARE + margin)
        box = lambda margin: inside(margin, (CANVAS - SQUARE) // 2)[:, None] & inside(margin, left)
        frames.append(torch.where(box(0), 1.0, GREY).expand(3, -1, -1))
        outside.append(~box(MARGIN))
    return torch.stack(frames), torch.stack(outside)[:, None]


def ghosts(restore, device, scale, speed):
    """Largest error of 255 outside of the square, after the first frame."""
    x, outside = (v.to(device) for v in square(speed))
    out, _ = restore(downscaled(x, scale), x.shape[-2:])
    return ((out - x).abs() * outside)[1:].max().item() * 255


def rounding(judge, photos, device, dtype, count=4):
    """PSNR of the decoder in a precision of 16 bits against f32, in dB: mean over the first photographs."""
    found = []
    for x in list(photos.values())[:count]:
        x = x[..., :x.shape[-2] // 16 * 16, :x.shape[-1] // 16 * 16].to(device)
        z = judge.latents(x, True)
        found.append(evaluate.psnr(judge.decode(z, 1, dtype), judge.decode(z, 1, torch.float32)))
    return float(np.mean(found))


def pans(photos, count=4, frames=FRAMES, side=224, step=4):
    """A camera that moves over the first photographs."""
    for photo in list(photos.values())[:count]:
        top = (photo.shape[-2] - side) // 2
        yield torch.cat([photo[..., top:top + side, t * step:t * step + side] for t in range(frames)])


def measure(restore, photos, clips, device, quick=False):
    """Rows of name, value, target, whether larger is better, and further figures."""
    items, rows = {"photos": photos, "clips": clips}, []
    for name, (kind, scale, small, goal) in CASES.items():
        figures, strengths = [], []
        for x in list(items[kind].values())[::3 if quick else 1]:
            x = x[:FRAMES, :, :x.shape[-2] // 4 * 4, :x.shape[-1] // 4 * 4].to(device)
            lo = small(x, downscaled(x, scale))
            out, up = restore(lo, x.shape[-2:])
            strengths.append(restore.strengths(lo).mean().item())
            row = [evaluate.psnr(out, x), evaluate.psnr(up, x), evaluate.ssim(out, x), evaluate.ssim(up, x)]
            if kind == "clips":
                row += [change(out) / change(x), evaluate.flicker(out, x), evaluate.flicker(up, x)]
                row += [unevenness(out, x, frames) for frames in (NEW, FRAMES - 1)]
            figures.append(row)
        mean = np.mean(figures, 0)
        more = f"{mean[0]:.2f} dB, bicubic {mean[1]:.2f}; ssim {mean[2]:.4f}, {mean[3]:.4f}; "
        more += f"low band {min(strengths):.2f} to {max(strengths):.2f}"
        rows.append((f"{name}, gain in dB", mean[0] - mean[1], goal, True, more))
        if kind == "clips":
            rows.append((f"{name}, change of original", mean[4], 1.0, False, f"flicker {mean[5]:.2f}, {mean[6]:.2f}"))
            for place, column in (("batch", 7), ("clip", 8)):
                worst = max(f[column] for f in figures)
                rows.append((f"{name}, sharpness in a {place}, %", worst, 2.0, False, ""))
        print(line(*rows[-1]), flush=True)
    for scale in (2, 4):
        for speed in (12, 24):
            value = ghosts(restore, device, scale, speed)
            rows.append((f"ghosts {scale}x, {speed} pixels a frame", value, 4.0, False, "of 255"))
    for scale in (2, 4):
        uneven = []
        for x in pans(photos):
            x = x.to(device)
            out, _ = restore(downscaled(x, scale), x.shape[-2:])
            uneven.append([unevenness(out, x, frames) for frames in (NEW, FRAMES - 1)])
        for place, worst in zip(("batch", "clip"), np.max(uneven, 0)):
            rows.append((f"pans {scale}x, sharpness in a {place}, %", worst, 2.0, False, ""))
    for dtype, goal in ((torch.float16, 60.0), (torch.bfloat16, 40.0)):
        value = rounding(restore.judge, photos, device, dtype)
        rows.append((f"decoder in {str(dtype)[6:]} against float32", value, goal, True, "dB"))
    return rows


def line(name, value, goal, larger, more):
    reached = value >= goal if larger else value <= goal
    sign, answer = ">=" if larger else "<=", "yes" if reached else "NO"
    return f"{name:40} {value:8.2f}  target {sign} {goal:.1f}  {answer:3}  {more}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    add_data(parser)
    parser.add_argument("--low-band", type=float, help="instead of the estimate for every frame")
    parser.add_argument("--quick", action="store_true", help="a third of the set")
    parser.add_argument("--bf16", action="store_true", help="as a GPU in training: activations in bf16")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    tar, began = data_file(parser, args, "val.tar"), time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.allow_tf32 = False
    w, sizes, steps = load(args.model, device)
    judge = evaluate.Judge(w, sizes, torch.bfloat16 if args.bf16 else torch.float32)
    rows = measure(Restorer(judge, args.low_band), *data.validation(tar), device, args.quick)
    print(f"\n{args.model}: {steps} steps, low band {args.low_band}, {time.time() - began:.0f}s")
    print("\n".join(line(*row) for row in rows))
    if args.json:
        args.json.write_text(json.dumps({row[0]: row[1] for row in rows}, indent=1))


if __name__ == "__main__":
    main()
