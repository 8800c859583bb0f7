"""Blends the low frequencies of the input back into the result, by a strength that is estimated from every input frame,
and limits the result to the range of the input around it.

Clean input needs its low frequencies back, because the latents lose a part of them. Noisy or compressed input does not.
The estimator is three convolutions of stride two on the frame in [0, 1], the mean of the frame, a linear layer and the
logistic function. Its last features lie on the grid of the blocks of JPEG.
"""
import math

import torch
import torch.nn.functional as F

import degrade

WIDTH, LAYERS = 16, 3
REACH = 15                               # pixels that a feature sees; smaller frames repeat their last row and column
FIRST = 0.8                              # strength before the training
LIMIT, AROUND, BEYOND = 2 / 255, 2, 0.5  # how far results may leave the range of the pixels around; share of the range


def shapes():
    """Name to shape. The tensors are stored in f32 in the file of the transformer."""
    found = {}
    for i in range(LAYERS):
        found[f"low_band.{i}.weight"], found[f"low_band.{i}.bias"] = (WIDTH, 3 if i == 0 else WIDTH, 3, 3), (WIDTH,)
    return found | {"low_band.out.weight": (1, WIDTH), "low_band.out.bias": (1,)}


def start(device, seed=1):
    """Differences of pixels, large enough for faint noise; a strength that does not depend on the frame."""
    generator, w = torch.Generator().manual_seed(seed), {}
    for name, shape in shapes().items():
        value = torch.zeros(shape)
        if len(shape) == 4:
            value = torch.randn(shape, generator=generator) * math.sqrt(2 / math.prod(shape[1:]))
        if name == "low_band.0.weight":
            value = 6 * (value - value.mean((1, 2, 3), keepdim=True))
        w[name] = value.to(device)
    w["low_band.out.bias"] += math.log(FIRST / (1 - FIRST))
    return w


def strengths(w, small):
    """The strength of each frame [N, 3, h, w] in [0, 1]."""
    x, missing = small, [max(REACH - n, 0) for n in small.shape[-2:]]
    if any(missing):
        x = F.pad(x, (0, missing[1], 0, missing[0]), mode="replicate")
    for i in range(LAYERS):
        x = F.relu(F.conv2d(x, w[f"low_band.{i}.weight"], w[f"low_band.{i}.bias"], stride=2))
    return torch.sigmoid(F.linear(x.mean((2, 3)), w["low_band.out.weight"], w["low_band.out.bias"]))[:, 0]


def blend(out, small, strength):
    """Results [N, 3, H, W] and inputs [N, 3, h, w]; one strength, or one for every frame."""
    if torch.is_tensor(strength):
        strength = strength.view(-1, 1, 1, 1)
    lost = small - degrade.resize(out, *small.shape[-2:])
    return out + strength * degrade.resize(lost, *out.shape[-2:])


def limited(out, small):
    """Results no further from the range of 5x5 input pixels than LIMIT and a share of that range: without ghosts."""
    padded = F.pad(small, (AROUND,) * 4, mode="replicate")
    high, low = F.max_pool2d(padded, 2 * AROUND + 1, 1), -F.max_pool2d(-padded, 2 * AROUND + 1, 1)
    margin = BEYOND * (high - low) + LIMIT
    low, high = (F.interpolate(v, size=out.shape[-2:], mode="nearest") for v in (low - margin, high + margin))
    return torch.minimum(torch.maximum(out, low), high)


def finished(out, small, strength):
    """As the engine finishes a frame."""
    return limited(blend(out, small, strength), small).clamp(0, 1)
