"""The networks: a causal video VAE and a one-step transformer, in the layout that the engine reads.

Weights are a flat dict keyed as in the checkpoint. A clip is [B*T, C, H, W] (channels last in memory) and a number T:
the frames of a clip are consecutive. Every temporal convolution reads the first frame repeated before a clip.
"""
import math
from dataclasses import dataclass, asdict

import torch
import torch.nn.functional as F

VAE_EPS, DIT_EPS = 1e-6, 1e-5
HEAD, PATCH = 128, 2
FINE = 2                                 # levels of the decoder at the frame's size and at half of it
FINE_PARTS = ("decoder.up_blocks.2.", "decoder.up_blocks.3.", "decoder.conv_norm_out.", "decoder.conv_out.")


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model. `groups` is one: a norm covers all channels of a frame."""
    channels: tuple = (16, 32, 96, 96)
    layers: int = 1                # residual blocks of an encoder level
    decoder_layers: int = 1        # and of a decoder level
    latent: int = 88
    width: int = 256
    heads: int = 2
    hidden: int = 640
    blocks: int = 2
    text: int = 4
    text_width: int = 16

    def asdict(self):
        return asdict(self)

    @staticmethod
    def of(w):
        """The sizes of given weights."""
        count = lambda name: next(i for i in range(99) if name.format(i) not in w)
        rows = lambda name: w[name + ".weight"].shape[0]
        return Sizes(
            channels=tuple(rows(f"encoder.down_blocks.{i}.resnets.0.conv1") for i in range(4)),
            layers=count("encoder.down_blocks.0.resnets.{}.conv1.weight"),
            decoder_layers=count("decoder.up_blocks.0.resnets.{}.conv1.weight"),
            latent=w["decoder.conv_in.weight"].shape[1],
            width=rows("vid_in.proj"),
            heads=rows("blocks.0.attn.proj_qkv.all") // (3 * HEAD),
            hidden=rows("blocks.0.mlp.all.proj_in"),
            blocks=count("blocks.{}.attn.proj_qkv.all.weight"),
            text=w["positive_conditioning"].shape[0],
            text_width=w["positive_conditioning"].shape[1])


# ---- norm and SiLU fused, forward and backward in one or two passes each

def norm_forward(x, gain, bias):
    """silu(gain * (x - mean) / std + bias), statistics over a frame's channels and pixels."""
    xf = x.float()
    var, mean = torch.var_mean(xf, (1, 2, 3), correction=0, keepdim=True)
    rstd = torch.rsqrt(var + VAE_EPS)
    z = (xf - mean) * rstd * gain.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)
    return (z * torch.sigmoid(z)).to(x.dtype), mean, rstd


def norm_backward(grad, x, gain, bias, mean, rstd):
    xh = (x.float() - mean) * rstd
    z = xh * gain.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)
    s = torch.sigmoid(z)
    dz = grad.float() * (s * (1 + z * (1 - s)))
    a, b = dz.sum((2, 3)), (dz * xh).sum((2, 3))                   # per frame and channel
    n = x.shape[1] * x.shape[2] * x.shape[3]
    mean_d = (a * gain).sum(1).view(-1, 1, 1, 1) / n
    mean_dx = (b * gain).sum(1).view(-1, 1, 1, 1) / n
    dx = rstd * (dz * gain.view(1, -1, 1, 1) - mean_d - xh * mean_dx)
    return dx.to(x.dtype), b.sum(0), a.sum(0)


class NormSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain, bias):
        y, mean, rstd = norm_forward(x, gain, bias)
        ctx.save_for_backward(x, gain, bias, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, grad):
        return norm_backward(grad, *ctx.saved_tensors)


class CompiledNormSilu(torch.autograd.Function):
    """The same with one kernel per pass instead of a dozen, for steps that are not compiled as a whole."""
    forward_step = backward_step = None

    @classmethod
    def compile(cls):
        torch._dynamo.config.cache_size_limit = 64
        cls.forward_step = staticmethod(torch.compile(norm_forward, dynamic=True))
        cls.backward_step = staticmethod(torch.compile(norm_backward, dynamic=True))

    @staticmethod
    def forward(ctx, x, gain, bias):
        y, mean, rstd = CompiledNormSilu.forward_step(x, gain, bias)
        ctx.save_for_backward(x, gain, bias, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, grad):
        return CompiledNormSilu.backward_step(grad, *ctx.saved_tensors)


# ---- the VAE

class Vae:
    def __init__(self, w, sizes):
        self.w, self.sizes, self.levels = w, sizes, len(sizes.channels)

    def norm(self, name, x):
        if not torch.is_grad_enabled():
            return norm_forward(x, self.w[name + ".weight"], self.w[name + ".bias"])[0]
        whole = torch.compiler.is_compiling() or CompiledNormSilu.forward_step is None
        return (NormSilu if whole else CompiledNormSilu).apply(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def conv(self, name, x, t, stride=1, time_stride=1, pad=1):
        weight, bias = self.w[name + ".weight"], self.w[name + ".bias"].to(x.dtype)
        if weight.shape[2] == 1 or t == 1:                       # a still: all taps read one frame
            return F.conv2d(x, plane(weight.sum(2), x), bias, stride, pad)
        clip = x.unflatten(0, (-1, t))
        clip = torch.cat([clip[:, :1], clip[:, :1], clip], 1)
        if torch.compiler.is_compiling():
            return stacked(clip, weight, bias, stride, time_stride, pad)
        clip = clip.transpose(1, 2)
        kernel = weight.to(x.dtype).contiguous(memory_format=torch.channels_last_3d)
        y = F.conv3d(clip, kernel, bias, (time_stride, stride, stride), (0, pad, pad))
        return y.transpose(1, 2).flatten(0, 1)

    def resnet(self, name, x, t):
        h = self.conv(name + ".conv1", self.norm(name + ".norm1", x), t)
        h = self.conv(name + ".conv2", self.norm(name + ".norm2", h), t)
        if name + ".conv_shortcut.weight" in self.w:
            x = self.conv(name + ".conv_shortcut", x, t, pad=0)
        return x + h

    def down(self, name, x, t, time):
        """Pads one row at the bottom and one column at the right; frame 0 stays alone, then pairs become one frame."""
        x = F.pad(x, (0, 1, 0, 1))
        y = self.conv(name + ".conv", x, t, stride=2, time_stride=2 if time else 1, pad=0)
        return y, (t + 1) // 2 if time else t

    def up(self, name, x, t, time):
        z = 2 if time else 1
        y = self.conv(name + ".upscale_conv", x, t, pad=0)
        n, c, h, w = y.shape
        c //= 4 * z
        y = y.view(n, 2, 2, z, c, h, w).permute(0, 3, 5, 1, 6, 2, 4).reshape(n * z, 2 * h, 2 * w, c).permute(0, 3, 1, 2)
        if time:                                                 # frame 0 stays one frame
            y = y.unflatten(0, (-1, 2 * t))
            y = torch.cat([y[:, :1], y[:, 2:]], 1).flatten(0, 1)
            t = 2 * t - 1
        return self.conv(name + ".conv", y, t), t

    def mid(self, name, x, t):
        return self.resnet(name + ".resnets.1", self.resnet(name + ".resnets.0", x, t), t)

    def head(self, half, h, t):
        return self.conv(half + ".conv_out", self.norm(half + ".conv_norm_out", h), t)

    def encode(self, x, t):
        """Frames in [-1, 1] to the means of their latents."""
        h, t = self.encoder_trunk(x, t)
        return self.head("encoder", h, t)[:, :self.sizes.latent]

    def encoder_trunk(self, x, t):
        h = self.conv("encoder.conv_in", x, t)
        for i in range(self.levels):
            for j in range(self.sizes.layers):
                h = self.resnet(f"encoder.down_blocks.{i}.resnets.{j}", h, t)
            if i < self.levels - 1:
                h, t = self.down(f"encoder.down_blocks.{i}.downsamplers.0", h, t, time=i >= self.levels - 3)
        return self.mid("encoder.mid_block", h, t), t

    def decode(self, z, t):
        h, t = self.decoder_trunk(z, t)
        return self.head("decoder", h, t)

    def decoder_trunk(self, z, t):
        return self.fine(*self.coarse(z, t))

    def coarse(self, z, t):
        """The layers of the decoder whose tensors are smaller than half of the frame."""
        h = self.mid("decoder.mid_block", self.conv("decoder.conv_in", z, t), t)
        return self.levels_up(range(self.levels - FINE), h, t)

    def fine(self, h, t):
        """The other levels."""
        return self.levels_up(range(self.levels - FINE, self.levels), h, t)

    def levels_up(self, levels, h, t):
        for i in levels:
            for j in range(self.sizes.decoder_layers):
                h = self.resnet(f"decoder.up_blocks.{i}.resnets.{j}", h, t)
            if i < self.levels - 1:
                h, t = self.up(f"decoder.up_blocks.{i}.upsamplers.0", h, t, time=i < 2)
        return h, t


def stacked(clip, weight, bias, stride, time_stride, pad):
    """A convolution over time as one over planes, with three frames stacked in channels. It is faster if the stacking
    is fused with what comes before."""
    t, last = clip.shape[1] - 2, clip.permute(0, 1, 3, 4, 2)
    x = torch.cat([last[:, k:k + t:time_stride] for k in range(3)], -1).flatten(0, 1).permute(0, 3, 1, 2)
    return F.conv2d(x, plane(weight.transpose(1, 2).flatten(1, 2), x), bias, stride, pad)


def plane(kernel, x):
    return kernel.to(x.dtype).contiguous(memory_format=torch.channels_last)


# ---- the transformer

def rms(x, gain=None):
    y = F.rms_norm(x.float(), (x.shape[-1],), eps=DIT_EPS)
    return y if gain is None else y * gain


def cell(grid):
    """Size of a full window: the plane, scaled to the area of 720p, is cut in three along both axes."""
    t, h, w = grid
    s = math.sqrt(45 * 80 / (h * w))
    return math.ceil(min(t, 30) / 4), math.ceil(round(h * s) / 3), math.ceil(round(w * s) / 3)


def cuts(length, size, shifted):
    first = size // 2 if shifted and size < length else size
    edges = [0] + [e for e in range(first, length, size) if e > 0] + [length]
    return [slice(a, b) for a, b in zip(edges, edges[1:])]


def rotations(size, text, device):
    """Cosines and sines [N, 1, 63] of the tokens of a window, then of the text. Video comes after the text in time."""
    freqs = 10000.0 ** (-torch.arange(21, dtype=torch.float64) / 21)
    t, h, w = torch.meshgrid(*(torch.arange(n) for n in size), indexing="ij")
    video = torch.stack([t + text, h, w], -1).flatten(0, 2)
    places = torch.cat([video, torch.arange(text)[:, None].expand(-1, 3)])
    angles = (places[:, :, None].double() * freqs).flatten(1)[:, None]
    return angles.cos().float().to(device), angles.sin().float().to(device)


def rotate(x, cos, sin):
    n = 2 * cos.shape[-1]
    a, b = x[..., 0:n:2], x[..., 1:n:2]
    return torch.cat([torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), x[..., n:]], -1)


class Dit:
    """Starts from the condition: the restored latent is the condition less the velocity."""
    rotary = {}

    def __init__(self, w, sizes):
        self.w, self.sizes = w, sizes

    def linear(self, name, x, dtype):
        bias = self.w.get(name + ".bias")
        return F.linear(x.to(dtype), self.w[name + ".weight"].to(dtype), None if bias is None else bias.to(dtype))

    def modulate(self, i, x, slot):
        return rms(x) * self.w[f"blocks.{i}.ada.all.{slot}_scale"] + self.w[f"blocks.{i}.ada.all.{slot}_shift"]

    def qkv(self, p, x, dtype):
        q, k, v = self.linear(p + ".proj_qkv.all", x, dtype).unflatten(-1, (3, self.sizes.heads, HEAD)).unbind(-3)
        return rms(q, self.w[p + ".norm_q.all.weight"]), rms(k, self.w[p + ".norm_k.all.weight"]), v

    def windows(self, i, x, y, full, dtype):
        """x [B, T, H, W, D], y [B, L, D]: each window attends over its tokens and the text."""
        p, shifted = f"blocks.{i}.attn", i % 2 == 1
        xs, ys = self.qkv(p, x, dtype), self.qkv(p, y, dtype)
        out, texts, b, text = torch.empty_like(xs[2]), [], x.shape[0], y.shape[1]
        axes = [cuts(n, c, shifted) for n, c in zip(x.shape[1:4], full)]
        for t in axes[0]:
            for h in axes[1]:
                for w in axes[2]:
                    parts = [v[:, t, h, w] for v in xs]
                    size = tuple(parts[0].shape[1:4])
                    key = (size, text, x.device)
                    if key not in Dit.rotary:
                        Dit.rotary[key] = rotations(size, text, x.device)
                    q, k, v = (torch.cat([v.flatten(1, 3), u], 1) for v, u in zip(parts, ys))
                    q, k = (rotate(z, *Dit.rotary[key]).to(dtype) for z in (q, k))
                    a = F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, v))).transpose(1, 2)
                    out[:, t, h, w] = a[:, :-text].unflatten(1, size)
                    texts.append(a[:, -text:])
        mean = torch.stack(texts).float().mean(0)
        return (self.linear(p + ".proj_out.all", z.flatten(-2), dtype) for z in (out, mean))

    def mlp(self, i, x, dtype):
        p, z = f"blocks.{i}.mlp.all", self.modulate(i, x, "mlp")
        h = F.silu(self.linear(p + ".proj_in_gate", z, dtype)) * self.linear(p + ".proj_in", z, dtype)
        return x + self.linear(p + ".proj_out", h, dtype) * self.w[f"blocks.{i}.ada.all.mlp_gate"]

    def restore(self, z, t, full=None):
        """Latents [B*T, C, H, W] to restored latents. `full` is the window size; the grid decides by default."""
        n, c, h, w = z.shape
        dtype, s = z.dtype, self.sizes
        pixels = torch.cat([z, z, torch.ones_like(z[:, :1])], 1)
        cells = pixels.view(n // t, t, 2 * c + 1, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 4, 6, 2).flatten(4)
        x = self.linear("vid_in.proj", cells, dtype).float()
        y = self.linear("txt_in", self.w["positive_conditioning"][None], dtype).float().expand(n // t, -1, -1)
        full = full or cell((t, h // 2, w // 2))
        for i in range(s.blocks):
            last = i == s.blocks - 1
            xa, ya = self.modulate(i, x, "attn"), rms(y) if last else self.modulate(i, y, "attn")
            xa, ya = self.windows(i, xa, ya, full, dtype)
            gate = self.w[f"blocks.{i}.ada.all.attn_gate"]
            x = self.mlp(i, x + xa * gate, dtype)
            if not last:
                y = self.mlp(i, y + ya * gate, dtype)
        x = rms(x, self.w["vid_out_norm.weight"]) * self.w["vid_out_ada.out_scale"] + self.w["vid_out_ada.out_shift"]
        v = self.linear("vid_out.proj", x, dtype).view(n, h // 2, w // 2, 2, 2, c)
        return z - v.permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w).contiguous(memory_format=torch.channels_last)
