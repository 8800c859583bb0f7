"""Figures on the validation set: python3 evaluate.py CHECKPOINT --data DIR [--json FILE]"""
import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F

import degrade
import low_band
from arguments import add_data, data_file
from checkpoint import load
from model import Dit, Vae

FIXED = 0.92                             # low band of models without an estimator


def psnr(a, b):
    """Mean over frames."""
    return (-10 * torch.log10((a - b).square().mean((1, 2, 3)))).mean().item()


def luma(x):
    return torch.einsum("c,nchw->nhw", degrade.constant("ycc", x.device)[0], x)[:, None]


def ssim(a, b):
    """On luma, with a Gaussian window of 11 and a standard deviation of 1.5."""
    a, b = luma(a), luma(b)
    g = torch.exp(-(torch.arange(11, device=a.device) - 5.0).square() / 4.5)
    g = g / g.sum()
    blur = lambda x: F.conv2d(F.conv2d(x, g.view(1, 1, 1, -1)), g.view(1, 1, -1, 1))
    ma, mb = blur(a), blur(b)
    va, vb, cov = blur(a * a) - ma * ma, blur(b * b) - mb * mb, blur(a * b) - ma * mb
    c1, c2 = 0.01 ** 2, 0.03 ** 2
    return ((2 * ma * mb + c1) * (2 * cov + c2) / ((ma * ma + mb * mb + c1) * (va + vb + c2))).mean().item()


def sharpness(x):
    """Of each frame: root mean square of the differences between neighbouring pixels of luma."""
    y = luma(x)[:, 0]
    right, below = y[:, :-1, 1:] - y[:, :-1, :-1], y[:, 1:, :-1] - y[:, :-1, :-1]
    return ((right.square() + below.square()).mean((1, 2)) + 1e-10).sqrt()


def flicker(a, b):
    """Mean difference of the differences between frames, of 255."""
    return ((a[1:] - a[:-1]) - (b[1:] - b[:-1])).abs().mean().item() * 255 if len(a) > 1 else 0.0


class Judge:
    def __init__(self, w, sizes, dtype=torch.float32):
        self.w, self.vae, self.dit, self.dtype = w, Vae(w, sizes), Dit(w, sizes), dtype

    @torch.no_grad()
    def strengths(self, small):
        """The low band of each frame."""
        if "low_band.out.weight" not in self.w:
            return torch.full((len(small),), FIXED, device=small.device)
        return low_band.strengths(self.w, small)

    @torch.no_grad()
    def run(self, x, restore):
        """Frames [T, 3, H, W] in [0, 1] through the model, padded as the engine pads."""
        t, _, h, w = x.shape
        return self.decode(self.latents(x, restore), t, self.dtype)[..., :h, :w]

    @torch.no_grad()
    def latents(self, x, restore):
        t, _, h, w = x.shape
        padded = F.pad(x * 2 - 1, (0, -w % 16, 0, -h % 16), value=-1.0).to(self.dtype)
        z = self.vae.encode(padded.contiguous(memory_format=torch.channels_last), t)
        return self.dit.restore(z, (t + 3) // 4) if restore else z

    @torch.no_grad()
    def decode(self, z, t, dtype):
        return (self.vae.decode(z.to(dtype), (t + 3) // 4).float() / 2 + 0.5).clamp(0, 1)

    def clip(self, x, restore, batch=5):
        """In the batches of the engine: neighbours share a frame, which is that of the earlier batch."""
        parts = []
        for i in range(0, max(len(x) - 1, 1), batch - 1):
            part = x[i:i + batch]
            more = -(len(part) - 1) % 4
            seen = torch.cat([part, part[:-1].flip(0)[:more]]) if more else part
            parts.append(self.run(seen, restore)[1 if i else 0:len(part)])
        return torch.cat(parts)


def bicubic(small, size):
    return degrade.resize(small, *size).clamp(0, 1)


def measure(out, x):
    return dict(psnr=psnr(out, x), ssim=ssim(out, x), flicker=flicker(out, x))


def table(judge, photos, clips, frames=13):
    """Means over the whole set: {case: {method: {figure: mean}}}."""
    rows = {}

    def note(case, method, figures):
        rows.setdefault(case, {}).setdefault(method, []).append(figures)

    for kind, items in (("photos", photos), ("clips", clips)):
        for x in items.values():
            x = x[:frames, :, :x.shape[-2] // 4 * 4, :x.shape[-1] // 4 * 4]
            note(f"{kind} reconstruction", "nano", measure(judge.clip(x, False), x))
            for scale in (2, 4):
                for state in ("clean", "degraded"):
                    lo = degrade.set_small(x, scale) if state == "degraded" else degrade.bytes_of(
                        degrade.resize(x, x.shape[-2] // scale, x.shape[-1] // scale))
                    up = bicubic(lo, x.shape[-2:])
                    out = judge.clip(up, True)
                    case = f"{kind} {scale}x {state}"
                    blended = low_band.finished(out, lo, judge.strengths(lo))
                    for method, y in (("bicubic", up), ("nano", out), ("low band", blended)):
                        note(case, method, measure(y, x))
    mean = lambda figures: {k: sum(f[k] for f in figures) / len(figures) for k in figures[0]}
    return {case: {m: mean(f) for m, f in methods.items()} for case, methods in rows.items()}


def show(rows):
    for case, methods in rows.items():
        for method, f in methods.items():
            figures = f"{f['psnr']:6.2f} dB  ssim {f['ssim']:.4f}  flicker {f['flicker']:.2f}"
            print(f"{case:24} {method:9} {figures}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    add_data(parser)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    tar = data_file(parser, args, "val.tar")
    import data                          # needs pillow, which the golden file does not
    device = "cuda" if torch.cuda.is_available() else "cpu"
    w, sizes, _ = load(args.checkpoint, device)
    photos, clips = ({k: v.to(device) for k, v in s.items()} for s in data.validation(tar))
    rows = table(Judge(w, sizes), photos, clips)
    show(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
