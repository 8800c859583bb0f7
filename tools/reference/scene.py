"""Synthetic clips for golden files: frames with edges, text, motion and grain."""
import numpy as np
import torch
import pipeline, weights
from golden_file import noise


def scene(name, n, h, w, seed, channels=3, alpha="mask"):
    """[n,h,w,channels] uint8: colour gradients, a checkerboard, rows of letter-like bitmaps, thin diagonals, a
    disc and a bar that move, and a little grain. Alpha: the outline of the disc with a soft edge, or a ramp."""
    u = lambda what, k: weights.uniform(f"{what}:{name}", k, seed)
    y, x = np.mgrid[0:h, 0:w].astype(np.float64)
    size, out = min(h, w), []
    p = 0.5 + 0.5 * u("scene", 16)
    letters = u("letters", 4096) > -0.1
    grain = u("grain", n * h * w * 3).reshape(n, h, w, 3) * 2.5 / 255
    for t in range(n):
        v = np.stack([0.15 + 0.6 * x / w + 0.1 * np.sin(6 * y / h + p[0]),
                      0.2 + 0.5 * y / h + 0.1 * np.cos(9 * x / w + p[1]),
                      0.75 - 0.5 * (x / w) * (y / h) - 0.15 * p[2]], -1)
        def paint(mask, color): v[:] = v + mask[..., None] * (np.array(color) - v)
        c = max(2, size // 12)
        board = (y > 0.62 * h) & (x < 0.45 * w)
        paint(board & ((x // c + y // c) % 2 == 0), [0.85, 0.15 + 0.2 * p[3], 0.1])
        paint(board & ((x // c + y // c) % 2 == 1), [0.1, 0.3, 0.25 + 0.4 * p[4]])
        row, col = (y - 2) // 9, (x - 3) // 6                                   # a letter has 7 x 5 pixels
        inside = (row >= 0) & (y < 0.34 * h) & (col >= 0) & ((y - 2) % 9 < 7) & ((x - 3) % 6 < 5)
        bit = letters[((row * 31 + col) * 35 + ((y - 2) % 9) * 5 + (x - 3) % 6).astype(int) % 4096]
        paint(inside & bit, [0.95, 0.92, 0.8] if p[5] > 0.5 else [0.05, 0.05, 0.2])
        paint((np.abs((x + 2 * y) % (size * 0.8) - 4) < 0.6) & (x > 0.5 * w), [0.98, 0.98, 0.95])
        cx, cy = (0.3 + 0.3 * p[6]) * w + 1.7 * t, (0.45 + 0.15 * p[7]) * h + 0.6 * t
        disc = np.clip(0.22 * size - np.hypot(x - cx, y - cy) + 0.5, 0, 1)
        paint(disc, [0.95, 0.55, 0.1])
        bar = np.clip(2.5 - np.abs(x - (0.85 * w - 1.3 * t)), 0, 1) * (y > 0.4 * h)
        paint(bar, [0.1, 0.75, 0.5])
        v = np.clip(v + grain[t], 0, 1)
        if channels == 4:
            a = 0.1 + 0.8 * x / w * (1 - 0.3 * y / h)
            if alpha == "mask": a = np.clip(0.3 * size - np.hypot(x - cx, y - cy) + 0.5, 0, 1)
            v = np.concatenate([v, a[..., None]], -1)
        out.append(np.floor(v * 255 + 0.5))
    return torch.from_numpy(np.stack(out).astype(np.uint8))


def restored(name, frames, seed):
    """frames [T,3,H,W] in [-1,1] -> a plausible result of a network: another contrast, a colour cast, more saturation
    and new detail, at some places outside [-1,1]."""
    grey = frames.mean(1, keepdim=True)
    x = 1.12 * (grey + 1.25 * (frames - grey)) + torch.tensor([0.09, -0.04, -0.11])[:, None, None]
    return x + 0.06 * noise("detail:" + name, x.shape, seed).float()


def upscaled(name, n, h, w, seed):
    """[n,3,h,w] in [-1,1]: a scene of two thirds the size, resized like a colour reference."""
    small = scene(name, n, 2 * h // 3, 2 * w // 3, seed)
    return pipeline.resize(pipeline.from_8bit(small), (h, w)).clamp(0, 1) * 2 - 1
