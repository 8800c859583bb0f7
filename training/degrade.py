"""Parts of the degradations (blur, downscaling, noise, a block codec), and the standard degradation of the figures."""
import functools

import torch
import torch.nn.functional as F

LUMA = torch.tensor([
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
]).view(8, 8).float()
CHROMA = torch.full((8, 8), 99.0)
CHROMA[:4, :4] = torch.tensor([[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]).float()
TO_YCC = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])


@functools.cache
def resampling(n_in, n_out, device):
    """The matrix [n_out, n_in] of antialiased bicubic resampling, as the engine resizes."""
    rows = torch.eye(n_in)[:, None, None, :]                                          # one image per column
    resized = F.interpolate(rows, size=(1, n_out), mode="bicubic", antialias=True, align_corners=False)
    return resized[:, 0, 0].T.contiguous().to(device)


def resize(x, h, w):
    return resampling(x.shape[-2], h, x.device) @ x @ resampling(x.shape[-1], w, x.device).T


def gaussian(n, sigma):
    """Blur matrices [B, n, n], one per sigma; the identity where sigma is zero."""
    i = torch.arange(n, device=sigma.device)
    m = torch.exp(-(i[:, None] - i).square() / (2 * sigma.clamp(min=1e-2).square())[:, None, None])
    return m / m.sum(-1, keepdim=True)


@functools.cache
def cosines(device):
    """The transform of a block of 8x8 pixels in rows, as one matrix [64, 64]."""
    k = torch.arange(8, dtype=torch.float64)
    m = torch.cos((2 * k + 1) * k[:, None] * torch.pi / 16) / 2
    m[0] /= 2 ** 0.5
    return torch.kron(m, m).float().to(device)


@functools.cache
def constant(name, device):
    return {"luma": LUMA, "chroma": CHROMA, "ycc": TO_YCC, "rgb": torch.linalg.inv(TO_YCC)}[name].to(device)


def coded(y, steps):
    """Planes [N, C, H, W] through the transform of 8x8 blocks, quantised by steps [N, C, 8, 8], and back."""
    h, w = y.shape[-2:]
    c = cosines(y.device)
    y = F.pad(y, (0, -w % 8, 0, -h % 8), mode="replicate")
    y = y.unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-3, -2)             # N C rows columns 8 8
    steps = steps.flatten(2)[:, :, None, None]
    y = ((y.flatten(-2) @ c.T) / steps).round() * steps @ c
    return y.unflatten(-1, (8, 8)).transpose(-3, -2).flatten(-2).flatten(-3, -2)[..., :h, :w]


@functools.cache
def doubling(n, device):
    """The matrix [2n, n] of the triangle filter that JPEG decoders double chroma with."""
    m, i = torch.zeros(2 * n, n), torch.arange(n)
    for row, neighbour in ((2 * i, (i - 1).clamp(min=0)), (2 * i + 1, (i + 1).clamp(max=n - 1))):
        m[row, i] += 0.75
        m[row, neighbour] += 0.25
    return m.to(device)


def half_chroma(y, steps):
    """Chroma planes that are coded at half their resolution."""
    h, w = y.shape[-2:]
    y = F.pad(y, (0, w % 2, 0, h % 2), mode="replicate")
    small = coded(F.avg_pool2d(y, 2), steps)
    y = doubling(small.shape[-2], y.device) @ small @ doubling(small.shape[-1], y.device).T
    return y[..., :h, :w]


def block_codec(x, quality, halved=None):
    """x [N, 3, H, W] in [0, 1] after the quantisation of JPEG at a quality [N] from 1 to 100. `halved` [N] says which
    images have chroma at half resolution; none by default."""
    scale = torch.where(quality < 50, 50 / quality, 2 - quality / 50).clamp(min=0.01)
    tables = torch.stack([constant(name, x.device) for name in ("luma", "chroma", "chroma")])
    steps = (tables * scale[:, None, None, None]).round().clamp(1, 255)
    y = torch.einsum("kc,nchw->nkhw", constant("ycc", x.device), x * 255)
    y[:, 0] -= 128
    whole = coded(y, steps).clone()
    if halved is not None:
        whole[:, 1:] = torch.where(halved[:, None, None, None], half_chroma(y[:, 1:], steps[:, 1:]), whole[:, 1:])
    whole[:, 0] += 128
    return (torch.einsum("kc,nchw->nkhw", constant("rgb", x.device), whole) / 255).clamp(0, 1)


def bytes_of(x):
    return (x.clamp(0, 1) * 255).round() / 255


def small(x, scale, sigma, noise, quality):
    """x [N, 3, H, W] in [0, 1], downscaled by `scale`. Each image has its own blur (in pixels of x), noise (of 255) and
    quality; a quality over 100 means no codec."""
    h, w = x.shape[-2] // scale, x.shape[-1] // scale
    down_h = resampling(x.shape[-2], h, x.device) @ gaussian(x.shape[-2], sigma)
    down_w = resampling(x.shape[-1], w, x.device) @ gaussian(x.shape[-1], sigma)
    y = down_h[:, None] @ x @ down_w[:, None].transpose(-1, -2)
    y = bytes_of(y + torch.randn_like(y) * (noise / 255)[:, None, None, None])
    coded = bytes_of(block_codec(y, quality.clamp(max=100)))
    return torch.where((quality > 100)[:, None, None, None], y, coded)


# The standard degradation of the published figures.
SET = dict(sigma=0.3, noise=5.0, quality=65.0)


def set_small(x, scale, seed=7):
    """The standard degradation: blur of 0.3 pixels of the small image, noise of 5 and quality 65."""
    ones = torch.ones(x.shape[0], device=x.device)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return small(x, scale, SET["sigma"] * scale * ones, SET["noise"] * ones, SET["quality"] * ones)
