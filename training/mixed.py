"""Random degradations of training inputs: what real files have, in mixed orders, batched on the device.

A clip is downscaled, and around that blurred, made noisy, interlaced and compressed. Every clip draws its own mix;
noise is drawn for every frame. Shapes never depend on the draw, so that a step can be recorded as a CUDA graph.
"""
import torch
import torch.nn.functional as F

import degrade

# Shares of the clips, in this order: only downscaled, near the standard degradation, only compressed, only noisy. The
# rest is mixed.
CLEAN, NEAR, CODED, NOISY = 0.14, 0.22, 0.54, 0.03
WORST_NOISE = 25.0
OFF = 101.0                              # a quality that means no codec


class Draw:
    """Random numbers, one per clip, spread over its frames."""

    def __init__(self, clips, frames, device):
        self.clips, self.frames, self.device = clips, frames, device

    def unit(self):
        return torch.rand(self.clips, device=self.device).repeat_interleave(
            self.frames, output_size=self.clips * self.frames)

    def between(self, low, high):
        return low + (high - low) * self.unit()

    def chance(self, share):
        return self.unit() < share


def wide(v):
    return v[:, None, None, None]


def settings(draw, scale):
    """Blur in pixels of the original, noise of 255 and quality of every frame, and which frames are clean."""
    kind = draw.unit()
    edges = [CLEAN, CLEAN + NEAR, CLEAN + NEAR + CODED, CLEAN + NEAR + CODED + NOISY]
    clean, near = kind < edges[0], (kind >= edges[0]) & (kind < edges[1])
    coded, noisy = (kind >= edges[1]) & (kind < edges[2]), (kind >= edges[2]) & (kind < edges[3])
    mixed = kind >= edges[3]
    zero = torch.zeros_like(kind)
    sigma = torch.where(near, draw.between(0.15, 0.45), zero)
    sigma = torch.where(mixed, draw.between(0, 0.9) * draw.chance(0.6), sigma) * scale
    noise = torch.where(near, draw.between(2.5, 7.5), zero)
    noise = torch.where(noisy, draw.between(2, WORST_NOISE), noise)
    noise = torch.where(mixed, draw.unit() * draw.unit() * WORST_NOISE * draw.chance(0.8), noise)
    quality = torch.where(near, draw.between(50, 80), torch.full_like(kind, OFF))
    quality = torch.where(coded | mixed & draw.chance(0.7), 10 + 85 * draw.unit() ** 2.4, quality)
    return sigma, noise, quality, clean, mixed


def add_noise(y, level, draw):
    """Grey and coloured noise; for a part of the clips it is coarse in colour, for a part it grows in the shadows."""
    n, _, h, w = y.shape
    fine = torch.randn_like(y)
    grey = torch.randn(n, 1, h, w, device=y.device)
    coarse = torch.randn(n, 3, (h + 1) // 2, (w + 1) // 2, device=y.device)
    coarse = F.interpolate(coarse, scale_factor=2)[..., :h, :w]
    coarse = coarse - coarse.mean(1, keepdim=True)
    tint = wide(draw.unit() * draw.chance(0.4))
    noise = torch.lerp(fine, 0.6 * grey + 0.8 * coarse, tint)
    shadows = wide(draw.unit() * draw.chance(0.3))
    gain = 1 + shadows * (0.6 - 1.2 * y.mean(1, keepdim=True))
    return y + noise * gain * wide(level) / 255


def interlaced(y, t, share, draw):
    """Odd rows from the next frame; in stills, odd rows moved sideways."""
    clip = y.unflatten(0, (-1, t))
    other = torch.roll(y, 2, 3) if t == 1 else torch.cat([clip[:, 1:], clip[:, -1:]], 1).flatten(0, 1)
    odd = (torch.arange(y.shape[2], device=y.device) % 2 == 1).view(1, 1, -1, 1)
    return torch.where(odd & wide(draw.chance(share)), other, y)


def codec(y, quality, draw, halved=0.75):
    """The block codec at a quality, or nothing where it is off; chroma at half resolution for a part of the clips."""
    coded = degrade.block_codec(y, quality.clamp(max=100), draw.chance(halved))
    return torch.where(wide(quality > 100), y, degrade.bytes_of(coded))


def random_small(x, t, scale):
    """x [B*T, 3, H, W] in [0, 1] to degraded inputs at a `scale`-th of its size."""
    draw = Draw(x.shape[0] // t, t, x.device)
    h, w = x.shape[-2] // scale, x.shape[-1] // scale
    clean = degrade.bytes_of(degrade.resize(x, h, w))
    sigma, noise, quality, untouched, mixed = settings(draw, scale)
    # A part was compressed or noisy before it was made smaller.
    early = mixed & draw.chance(0.3)
    before = torch.where(early & draw.chance(0.6), draw.between(25, 92), torch.full_like(quality, OFF))
    first = add_noise(x, noise * 1.5 * (early & draw.chance(0.5)), draw)
    first = codec(degrade.bytes_of(first), before, draw)
    down_h = degrade.resampling(x.shape[-2], h, x.device) @ degrade.gaussian(x.shape[-2], sigma)
    down_w = degrade.resampling(x.shape[-1], w, x.device) @ degrade.gaussian(x.shape[-1], sigma)
    y = down_h[:, None] @ first @ down_w[:, None].transpose(-1, -2)
    y = interlaced(y, t, 0.03, draw)
    y = degrade.bytes_of(add_noise(y, noise, draw))
    y = codec(y, quality, draw)
    # Compressed twice.
    y = codec(y, torch.where(mixed & draw.chance(0.15), draw.between(40, 90), torch.full_like(quality, OFF)), draw)
    return torch.where(wide(untouched), clean, y)

