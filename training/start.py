"""Initial weights: a VAE that is a linear transform code, and a transformer that changes nothing.

The transform is a tree of principal components: 2x2 pixels, then 2x2 of those in two frames, then the same again.
Residual branches end in zeros, so that at the start only the tree acts. Norms would remove amplitudes: one channel of
every tensor is a constant so large that it dominates the statistics, and the norms hardly act. SiLU is nearly linear
around its inflection.
"""
import math

import torch

from model import HEAD, Vae

INFLECTION = 2.3994                      # where silu'' is zero
VALUE = INFLECTION / (1 + math.exp(-INFLECTION))
SLOPE = 1 / (1 + math.exp(-INFLECTION)) * (1 + INFLECTION * (1 - 1 / (1 + math.exp(-INFLECTION))))
ANCHOR = 4.0                             # the constant channel, in roots of the number of channels
REACH = 1.0                              # of nearly all of a signal, to either side of the inflection


def shapes(s):
    """Every tensor of the VAE and of the transformer: name to shape."""
    vae, dit, c = {}, {}, s.channels

    def conv(name, out, into, *taps):
        vae[name + ".weight"], vae[name + ".bias"] = (out, into, *taps), (out,)

    def norm(name, n):
        vae[name + ".weight"] = vae[name + ".bias"] = (n,)

    def resnet(name, into, out):
        norm(name + ".norm1", into)
        conv(name + ".conv1", out, into, 3, 3, 3)
        norm(name + ".norm2", out)
        conv(name + ".conv2", out, out, 3, 3, 3)
        if into != out:
            conv(name + ".conv_shortcut", out, into, 1, 1, 1)

    def mid(name):
        resnet(name + ".resnets.0", c[-1], c[-1])
        resnet(name + ".resnets.1", c[-1], c[-1])

    conv("encoder.conv_in", c[0], 3, 3, 3, 3)
    for i, width in enumerate(c):
        for j in range(s.layers):
            resnet(f"encoder.down_blocks.{i}.resnets.{j}", c[max(i - 1, 0)] if j == 0 else width, width)
        if i < 3:
            conv(f"encoder.down_blocks.{i}.downsamplers.0.conv", width, width, 3 if i > 0 else 1, 3, 3)
    mid("encoder.mid_block")
    norm("encoder.conv_norm_out", c[3])
    conv("encoder.conv_out", 2 * s.latent, c[3], 3, 3, 3)
    conv("decoder.conv_in", c[3], s.latent, 3, 3, 3)
    mid("decoder.mid_block")
    for i, width in enumerate(reversed(c)):
        for j in range(s.decoder_layers):
            resnet(f"decoder.up_blocks.{i}.resnets.{j}", c[min(4 - i, 3)] if j == 0 else width, width)
        if i < 3:
            name = f"decoder.up_blocks.{i}.upsamplers.0"
            conv(name + ".upscale_conv", (8 if i < 2 else 4) * width, width, 1, 1, 1)
            conv(name + ".conv", width, width, 3, 3, 3)
    norm("decoder.conv_norm_out", c[0])
    conv("decoder.conv_out", 3, c[0], 3, 3, 3)

    d, inner = s.width, s.heads * HEAD
    dit["vid_in.proj.weight"], dit["vid_in.proj.bias"] = (d, 4 * (2 * s.latent + 1)), (d,)
    dit["txt_in.weight"], dit["txt_in.bias"] = (d, s.text_width), (d,)
    dit["positive_conditioning"] = (s.text, s.text_width)
    for i in range(s.blocks):
        p = f"blocks.{i}"
        dit[p + ".attn.proj_qkv.all.weight"] = (3 * inner, d)
        dit[p + ".attn.proj_out.all.weight"], dit[p + ".attn.proj_out.all.bias"] = (d, inner), (d,)
        dit[p + ".attn.norm_q.all.weight"] = dit[p + ".attn.norm_k.all.weight"] = (HEAD,)
        dit[p + ".mlp.all.proj_in_gate.weight"] = dit[p + ".mlp.all.proj_in.weight"] = (s.hidden, d)
        dit[p + ".mlp.all.proj_out.weight"] = (d, s.hidden)
        for slot in ("attn", "mlp"):
            for part in ("shift", "scale", "gate"):
                dit[f"{p}.ada.all.{slot}_{part}"] = (d,)
    dit["vid_out_norm.weight"] = dit["vid_out_ada.out_shift"] = dit["vid_out_ada.out_scale"] = (d,)
    dit["vid_out.proj.weight"], dit["vid_out.proj.bias"] = (4 * s.latent, d), (4 * s.latent,)
    return vae, dit


def start(sizes, samples, seed=1):
    """Weights of both networks. `samples` [B, 5, 3, H, W] in [-1, 1] are clips and stills."""
    generator = torch.Generator().manual_seed(seed)
    vae, dit = shapes(sizes)
    w = {name: vae_tensor(name, shape, generator) for name, shape in vae.items()}
    w |= {name: dit_tensor(name, shape, generator) for name, shape in dit.items()}
    w = {name: value.to(samples.device) for name, value in w.items()}
    lay_tree(w, sizes, samples)
    return w


def vae_tensor(name, shape, generator):
    if ".norm" in name or "norm_out" in name:
        return torch.cat([torch.full((shape[0] - 1,), ANCHOR * name.endswith("weight")), torch.zeros(1)])
    if ".conv1." in name:
        return anchored(name, shape, generator)
    return torch.zeros(shape)


def anchored(name, shape, generator):
    """A random convolution whose last channel is the constant that dominates the next norm."""
    if name.endswith("bias"):
        value = torch.zeros(shape)
        value[-1] = ANCHOR * math.sqrt(shape[0])
        return value
    value = torch.randn(shape, generator=generator) / math.sqrt(math.prod(shape[1:]))
    value[-1] = 0
    return value


def free(name, shape):
    """Mask of the values that training may change in a VAE tensor: neither constants nor their neighbours."""
    mask = torch.ones(shape)
    if name.endswith(("conv_out.weight", "conv_out.bias")):
        return mask
    phases = 1 if "upscale_conv" not in name else 4 if "up_blocks.2" in name else 8
    mask.view(phases, shape[0] // phases, -1)[:, -1] = 0
    parts = ("conv_shortcut.w", "downsamplers.0.conv.w", "upscale_conv.w", "upsamplers.0.conv.w")
    if any(part in name for part in parts):
        mask[:, -1] = 0
    return mask


def dit_tensor(name, shape, generator):
    if name.endswith(("_scale", "_gate")) or "norm" in name:
        return torch.ones(shape)
    if name == "positive_conditioning":
        return torch.randn(shape, generator=generator)
    closing = ("proj_out.all.weight", "mlp.all.proj_out.weight", "vid_out.proj.weight")
    if len(shape) == 1 or name.endswith(closing):
        return torch.zeros(shape)
    return torch.randn(shape, generator=generator) / math.sqrt(shape[1])


def blocks(v, time):
    """[B, T, C, H, W] to [B, T', z*2*2*C, H/2, W/2]: frame 0 counts twice, then pairs; order z, row, column, c."""
    b, t, c, h, w = v.shape
    if time:
        v = torch.cat([v[:, :1], v], 1).unflatten(1, (-1, 2))
    else:
        v = v.unsqueeze(2)
    v = v.unflatten(-1, (w // 2, 2)).unflatten(-3, (h // 2, 2))                       # B T z C H r W q
    return v.permute(0, 1, 2, 5, 7, 3, 4, 6).flatten(2, 5)


def principal(x, keep):
    """The orthonormal rows with the most energy of x [B, T, N, H, W], and the energy of each."""
    rows = x.permute(0, 1, 3, 4, 2).flatten(0, 3).double()
    values, vectors = torch.linalg.eigh(rows.T @ rows / rows.shape[0])
    order = values.argsort(descending=True)[:keep]
    return vectors[:, order].T.float(), values[order].clamp(min=1e-12).sqrt().float()


def lay_tree(w, s, samples):
    c, v, scale = s.channels, samples, torch.ones(3, device=samples.device)
    analyses, syntheses = [], []
    for i in range(3):
        x = blocks(v, time=i > 0)
        basis, spread = principal(x, min(x.shape[2], c[i] - 2))
        v = torch.einsum("kn,btnhw->btkhw", basis, x)
        inner = scale.repeat(x.shape[2] // len(scale))                               # scales of the stored channels
        scale = 0.7 * (spread / spread[0]).sqrt() / spread
        analyses.append(scale[:, None] * basis / inner)
        syntheses.append((inner[:, None] * basis.T) / scale)
    for half in ("encoder", "decoder"):
        w[half + ".conv_in.bias"][-1] = ANCHOR * math.sqrt(w[half + ".conv_in.bias"].shape[0])
    for name, value in w.items():
        if name.endswith("conv_shortcut.weight"):
            pass_on(value, math.sqrt(value.shape[0] / value.shape[1]))
        if name.endswith("upsamplers.0.conv.weight"):
            value[:, :, 2, 1, 1] = torch.eye(value.shape[0], device=value.device)
    w["encoder.conv_in.weight"][:3, :, 2, 1, 1] = torch.eye(3, device=samples.device)
    for i, a in enumerate(analyses):
        kernel = w[f"encoder.down_blocks.{i}.downsamplers.0.conv.weight"]
        taps = 2 if i > 0 else 1
        a = a.unflatten(1, (taps, 2, 2, -1)).permute(0, 4, 1, 2, 3)                   # out, in, time, row, column
        kernel[:a.shape[0], :a.shape[1], -taps:, :2, :2] = a
        kernel[-1, -1, -1, 0, 0] = 1
    for i, b in enumerate(reversed(syntheses)):
        kernel = w[f"decoder.up_blocks.{i}.upsamplers.0.upscale_conv.weight"]
        taps, width = (2 if i < 2 else 1), kernel.shape[1]
        b = b.unflatten(0, (taps, 2, 2, -1)).permute(1, 2, 0, 3, 4)                   # row, column, time, out, in
        phases = kernel.view(2, 2, taps, width, width)
        phases[..., :b.shape[3], :b.shape[4]] = b
        phases[..., -1, -1] = 1
    with torch.no_grad():
        vae, t = Vae(w, s), samples.shape[1]
        x = samples[::len(samples) // 16].flatten(0, 1).contiguous(memory_format=torch.channels_last)
        h, latents = vae.encoder_trunk(x, t)
        mean, spread, reach = straighten(w, "encoder", h, s.latent)
        close(w, "encoder", reach / spread, torch.zeros_like(mean))
        w["decoder.conv_in.weight"][:s.latent, :, 2, 1, 1] = torch.diag(spread)
        w["decoder.conv_in.bias"][:s.latent] = mean
        h, _ = vae.decoder_trunk(vae.encode(x, t), latents)
        mean, _, reach = straighten(w, "decoder", h, 3)
        close(w, "decoder", reach, mean)


def pass_on(kernel, anchor):
    """A shortcut between widths: signals pass, the constant grows with the width."""
    shared = min(kernel.shape[:2]) - 2
    kernel[:shared, :shared, 0, 0, 0] = torch.eye(shared, device=kernel.device)
    kernel[-1, -1] = anchor


def straighten(w, half, h, n):
    """Sets the last norm so that the first n channels of h lie at the inflection of SiLU; returns their means, standard
    deviations and ranges. The channel before the last is empty: it shows the shift by the mean of the frame."""
    signal = h[:, :n].transpose(0, 1).flatten(1)
    mean, spread = signal.mean(1), signal.std(1)
    reach = torch.quantile((signal - mean[:, None]).abs(), 0.999, 1)
    frame_mean, frame_std = h.mean((1, 2, 3)).mean(), h.var((1, 2, 3)).mean().sqrt()
    gain, bias = w[half + ".conv_norm_out.weight"], w[half + ".conv_norm_out.bias"]
    gain[:n] = REACH * frame_std / reach
    gain[-2] = gain[:n].min()
    bias[:n] = INFLECTION + gain[:n] * (frame_mean - mean) / frame_std
    bias[-2] = INFLECTION + gain[-2] * frame_mean / frame_std
    return mean, spread, reach


def close(w, half, reach, mean):
    """Sets the last convolution to invert that, to a given mean and range."""
    gain, norm = reach / (SLOPE * REACH), w[half + ".conv_norm_out.weight"]
    n = len(gain)
    shared = gain * norm[:n] / norm[-2]
    kernel = w[half + ".conv_out.weight"]
    kernel[range(n), range(n), 2, 1, 1] = gain
    kernel[:n, -2, 2, 1, 1] = -shared
    w[half + ".conv_out.bias"][:n] = mean - (gain - shared) * VALUE
