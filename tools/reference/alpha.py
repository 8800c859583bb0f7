"""Upscaling of an alpha channel, guided by the restored colours."""
import torch
import torch.nn.functional as F
from color import unit
from resize import resize


def edge_map(x):
    """[T,3,H,W] in [0,1] -> [T,1,H,W] in [0,1]: magnitude of the Sobel gradient of the 8-bit grey frame, relative to
    the largest of the frame, in steps of 1/255 (rounded down, like the 8-bit frame). A flat frame gives zeros."""
    r, g, b = (x * 255).clamp(0, 255).long().unbind(1)
    grey = (9798 * r + 19235 * g + 3735 * b + 16384) >> 15
    p = F.pad(grey.double()[:, None], (1, 1, 1, 1), mode="reflect")
    smooth = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    slope = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    gx, gy = (F.conv2d(p, torch.outer(*k)[None, None]) for k in ((smooth, slope), (slope, smooth)))
    e = torch.sqrt(gx ** 2 + gy ** 2)
    top = e.amax((1, 2, 3), keepdim=True)
    return (torch.floor(e / torch.where(top > 0, top, 1) * 255) / 255).to(x.dtype)


def guided_filter(guide, x, r, eps=0.002):
    """guide, x [T,1,H,W]: in each (2r+1)^2 box x is fitted by a linear function of the guide, and the fits are
    averaged. Outside the frame are zeros, which count."""
    box = lambda q: F.avg_pool2d(q, 2 * r + 1, 1, r)
    mean_g, mean_x = box(guide), box(x)
    a = (box(guide * x) - mean_g * mean_x) / (box(guide * guide) - mean_g * mean_g + eps)
    return box(a) * guide + box(mean_x - a * mean_g)


def alpha_upscale(alpha, rgb, range_rule="fixed"):
    """alpha [T,1,h,w] in [0,1], of the input; rgb [T,3,H,W] in [-1,1], the result of the network before colour
    -> [T,1,H,W] in [0,1]. Takes all T frames of a slice: alpha is a mask if nearly all of its values are near 0 or 1.
    (Alpha is resized to the cropped size, although the frames were cropped to it.)

    range_rule "fixed": the guide is (rgb + 1) / 2, clamped. "reference", the public rule, guesses: a slice without
    negative values is not moved, and a slice whose minimum is below -1 is moved twice for the edges. (The public
    implementation fails on a batch with temporal padding and on a batch blended with the batch before it.)"""
    guess = lambda x: (x + 1) / 2 if x.min() < 0 else x
    g = guess(rgb) if range_rule == "reference" else unit(rgb)
    e = edge_map(guess(g))
    near = F.max_pool2d(e, 3, 1, 1)
    a = resize(alpha, rgb.shape[-2:]).clamp(0, 1)
    grey = g.mean(1, keepdim=True)
    if ((alpha < 0.1) | (alpha > 0.9)).sum() / alpha.numel() <= 0.95:
        return guided_filter(grey, a, r=3).clamp(0, 1)
    binary = lambda x: (x > 0.5).to(x.dtype)
    f = guided_filter(grey, a, r=2)
    k = (e / 0.25).clamp(0, 1)
    f = torch.where(near < 0.05, binary(f), f * (1 - k) + torch.sigmoid(12 * (f - 0.5)) * k)
    f = torch.where((f > 0.3) & (f < 0.7) & (e <= 0.15), binary(f), f)
    return f.clamp(0, 1)
