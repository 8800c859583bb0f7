"""Executable specification of the causal video VAE: plain float32 PyTorch, written for reading.

One function per layer. Weights are a flat dict with the keys of the public checkpoint (ema_vae_fp16.safetensors).
Tensors are [T, C, H, W] (one clip, time first), so a frame is x[t].

Streaming: every temporal convolution caches the last `k - stride` frames of its input. A clip that is decoded slice by
slice with these caches equals the clip decoded in one piece. `State()` starts a clip.
"""
import math
from dataclasses import dataclass, field
import torch
import torch.nn.functional as F


@dataclass
class Config:
    channels: tuple = (128, 256, 512, 512)
    layers_per_block: int = 2
    groups: int = 32
    latent: int = 16
    image: int = 3
    temporal_stages: int = 2          # stages that also halve/double time
    eps: float = 1e-6
    slice_frames: int = 4             # pixel frames per slice after the first; latent frames = /4
    scaling_factor: float = 0.9152


@dataclass
class State:
    """The temporal cache of each convolution, by layer name. Empty at the start of a clip."""
    frames: dict = field(default_factory=dict)
    started: bool = False


def causal_conv(w, name, x, state, stride=(1, 1, 1), pad=None):
    """3-D convolution that never looks ahead. Earlier frames come from the temporal cache; at the start of a clip the
    first frame is repeated. Space is zero-padded by (k-1)/2 unless `pad` overrides it."""
    weight, bias = w[name + ".weight"], w.get(name + ".bias")
    kt, kh, kw = weight.shape[2:]
    st, sh, sw = stride
    if kt > 1:
        cache = state.frames.get(name)
        if cache is None:
            cache = x[:1].expand(kt - 1, -1, -1, -1)
        x = torch.cat([cache, x])
        state.frames[name] = x[x.shape[0] - (kt - st):].clone()
    ph, pw = ((kh - 1) // 2, (kw - 1) // 2) if pad is None else pad
    y = F.conv3d(x.transpose(0, 1)[None], weight, bias, stride=stride, padding=(0, ph, pw))
    return y[0].transpose(0, 1)


def group_norm(w, name, x, cfg):
    """Statistics per frame and group, over the frame's whole plane."""
    return F.group_norm(x, cfg.groups, w[name + ".weight"], w[name + ".bias"], cfg.eps)


def resnet(w, p, x, state, cfg):
    h = F.silu(group_norm(w, p + ".norm1", x, cfg))
    h = causal_conv(w, p + ".conv1", h, state)
    h = F.silu(group_norm(w, p + ".norm2", h, cfg))
    h = causal_conv(w, p + ".conv2", h, state)
    if p + ".conv_shortcut.weight" in w:
        x = causal_conv(w, p + ".conv_shortcut", x, state)
    return x + h


def attention(w, p, x, cfg):
    """Single-head self-attention over each frame's pixels, with a residual."""
    t, c, hh, ww = x.shape
    h = F.group_norm(x.reshape(t, c, hh * ww), cfg.groups, w[p + ".group_norm.weight"],
                     w[p + ".group_norm.bias"], cfg.eps).transpose(1, 2)
    lin = lambda n, v: F.linear(v, w[p + n + ".weight"], w[p + n + ".bias"])
    q, k, v = lin(".to_q", h), lin(".to_k", h), lin(".to_v", h)
    a = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(c), -1) @ v
    return x + lin(".to_out.0", a).transpose(1, 2).reshape(t, c, hh, ww)


def mid_block(w, p, x, state, cfg):
    x = resnet(w, p + ".resnets.0", x, state, cfg)
    x = attention(w, p + ".attentions.0", x, cfg)
    return resnet(w, p + ".resnets.1", x, state, cfg)


def downsample(w, p, x, state, time):
    """Strided convolution; the plane gets one row of padding at the bottom and one column at the right."""
    x = F.pad(x, (0, 1, 0, 1))
    return causal_conv(w, p + ".conv", x, state, stride=(2 if time else 1, 2, 2), pad=(0, 0))


def upsample(w, p, x, state, time):
    """1x1x1 convolution to 4 (or 8) times the channels, pixel shuffle into space (and time), then a 3x3x3 causal
    convolution. Packed channel order: (row phase, column phase, time phase, channel)."""
    z = 2 if time else 1
    y = causal_conv(w, p + ".upscale_conv", x, state)
    t, cc, hh, ww = y.shape
    c = cc // (4 * z)
    y = y.reshape(t, 2, 2, z, c, hh, ww).permute(0, 3, 4, 5, 1, 6, 2).reshape(t * z, c, hh * 2, ww * 2)
    if time and not state.started:      # the first latent frame yields one frame, not two
        y = torch.cat([y[:1], y[2:]])
    return causal_conv(w, p + ".conv", y, state)


def encoder(w, x, state, cfg):
    n = len(cfg.channels)
    h = causal_conv(w, "encoder.conv_in", x, state)
    for i in range(n):
        for j in range(cfg.layers_per_block):
            h = resnet(w, f"encoder.down_blocks.{i}.resnets.{j}", h, state, cfg)
        if i < n - 1:
            h = downsample(w, f"encoder.down_blocks.{i}.downsamplers.0", h, state,
                           time=i >= n - 1 - cfg.temporal_stages)
    h = mid_block(w, "encoder.mid_block", h, state, cfg)
    h = F.silu(group_norm(w, "encoder.conv_norm_out", h, cfg))
    return causal_conv(w, "encoder.conv_out", h, state)


def decoder(w, z, state, cfg):
    n = len(cfg.channels)
    h = causal_conv(w, "decoder.conv_in", z, state)
    h = mid_block(w, "decoder.mid_block", h, state, cfg)
    for i in range(n):
        for j in range(cfg.layers_per_block + 1):
            h = resnet(w, f"decoder.up_blocks.{i}.resnets.{j}", h, state, cfg)
        if i < n - 1:
            h = upsample(w, f"decoder.up_blocks.{i}.upsamplers.0", h, state, time=i < cfg.temporal_stages)
    h = F.silu(group_norm(w, "decoder.conv_norm_out", h, cfg))
    return causal_conv(w, "decoder.conv_out", h, state)


def _sliced(step, x, per_slice):
    """First slice = frame 0 plus `per_slice` frames, then `per_slice` frames each."""
    state, out = State(), []
    cuts = [0] + list(range(1 + per_slice, x.shape[0], per_slice)) + [x.shape[0]]
    for a, b in zip(cuts, cuts[1:]):
        out.append(step(x[a:b], state))
        state.started = True
    return torch.cat(out)


def encode(w, x, cfg=Config(), sliced=True):
    """x [T,3,H,W] in [-1,1], T = 4n+1 -> moments [n+1, 2*latent, H/8, W/8] (mean, then logvar)."""
    per = cfg.slice_frames if sliced else x.shape[0]
    return _sliced(lambda s, st: encoder(w, s, st, cfg), x, per)


def decode(w, z, cfg=Config(), sliced=True):
    """z [n+1, latent, h, w] (unscaled) -> [4n+1, 3, 8h, 8w]."""
    per = max(1, cfg.slice_frames // 2 ** cfg.temporal_stages) if sliced else z.shape[0]
    return _sliced(lambda s, st: decoder(w, s, st, cfg), z, per)


def split_moments(m):
    mean, logvar = m.chunk(2, dim=1)
    return mean, logvar.clamp(-30.0, 20.0)


def sample(m, noise):
    """A sample of the posterior: mean + exp(logvar / 2) * noise."""
    mean, logvar = split_moments(m)
    return torch.addcmul(mean, torch.exp(0.5 * logvar), noise)


# ---- spatial tiles

def _ramp(n):
    """Raised cosine from 0 to 1 over n steps, both ends included."""
    return 0.5 - 0.5 * torch.cos(torch.linspace(0, 1, n) * math.pi) if n > 0 else torch.zeros(0)


def tiles(size, tile, overlap):
    """(start, end) of the tiles along one axis. A tile inside the overlap of the tile before it is dropped."""
    stride = max(1, tile - overlap)
    return [(a, min(a + tile, size)) for a in range(0, size, stride)
            if not (a > 0 and min(a + tile, size) - a <= overlap)]


def _blend(shape, pieces, ramp_h, ramp_w):
    """pieces: (y0, y1, x0, x1, tensor [T,C,y1-y0,x1-x0]). Weighted sum over weight sum."""
    total, weight = torch.zeros(shape), torch.zeros(shape[-2:])
    for y0, y1, x0, x1, v in pieces:
        wy, wx = torch.ones(y1 - y0), torch.ones(x1 - x0)
        oy, ox = min(len(ramp_h), y1 - y0 - 1), min(len(ramp_w), x1 - x0 - 1)
        if oy > 0 and y0 > 0: wy[:oy] = ramp_h[:oy]
        if oy > 0 and y1 < shape[-2]: wy[-oy:] = 1 - ramp_h[:oy]
        if ox > 0 and x0 > 0: wx[:ox] = ramp_w[:ox]
        if ox > 0 and x1 < shape[-1]: wx[-ox:] = 1 - ramp_w[:ox]
        m = wy[:, None] * wx[None, :]
        total[..., y0:y1, x0:x1] += v * m
        weight[y0:y1, x0:x1] += m
    return total / weight.clamp(min=1e-6)


def decode_tiled(w, z, cfg=Config(), tile=(512, 512), overlap=(64, 64)):
    """tile and overlap in output pixels (height, width)."""
    f = 2 ** (len(cfg.channels) - 1)
    lt = [max(1, t // f) for t in tile]
    lo = [max(0, min(o // f, t - 1)) for o, t in zip(overlap, lt)]
    H, W = z.shape[-2:]
    if H <= lt[0] and W <= lt[1]:
        return decode(w, z, cfg)
    pieces = [(y0 * f, y1 * f, x0 * f, x1 * f, decode(w, z[..., y0:y1, x0:x1], cfg))
              for y0, y1 in tiles(H, lt[0], lo[0]) for x0, x1 in tiles(W, lt[1], lo[1])]
    shape = (pieces[0][4].shape[0], cfg.image, H * f, W * f)
    return _blend(shape, pieces, _ramp(overlap[0]), _ramp(overlap[1]))


def encode_tiled(w, x, cfg=Config(), tile=(512, 512), overlap=(64, 64)):
    f = 2 ** (len(cfg.channels) - 1)
    if x.shape[-2] <= tile[0] and x.shape[-1] <= tile[1]:
        return encode(w, x, cfg)
    lt = [max(1, t // f) for t in tile]
    lo = [max(0, min(o // f, t - 1)) for o, t in zip(overlap, lt)]
    H, W = (x.shape[-2] + f - 1) // f, (x.shape[-1] + f - 1) // f
    pieces = [(y0, y1, x0, x1, encode(w, x[..., y0 * f:y1 * f, x0 * f:x1 * f], cfg))
              for y0, y1 in tiles(H, lt[0], lo[0]) for x0, x1 in tiles(W, lt[1], lo[1])]
    shape = (pieces[0][4].shape[0], 2 * cfg.latent, H, W)
    return _blend(shape, pieces, _ramp(lo[0]), _ramp(lo[1]))
