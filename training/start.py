"""Initial weights: a VAE that is a linear transform code, and a transformer that changes nothing.

The transform is a tree of principal components: 2x2 pixels, then 2x2 of those in two frames, then the same again.
Residual branches end in zeros, so that at the start only the tree acts. Norms would remove amplitudes: one channel of
every tensor is a constant so large that it dominates the statistics, and the norms hardly act. Convolutions write the
constant with their bias and never read it, so that it costs other channels no precision. The encoder ends at the
inflection of SiLU, where it is nearly linear. The decoder ends in pairs of opposite channels: silu(z) - silu(-z) = z.
"""
import math
from dataclasses import replace

import torch

import low_band
from model import HEAD, Vae

INFLECTION = 2.3994                      # where silu'' is zero
VALUE = INFLECTION / (1 + math.exp(-INFLECTION))
SLOPE = 1 / (1 + math.exp(-INFLECTION)) * (1 + INFLECTION * (1 - 1 / (1 + math.exp(-INFLECTION))))
ANCHOR = 4.0                             # the constant channel, in roots of the number of channels
REACH = 1.0                              # of nearly all of a signal, to either side of the inflection
PAIR_GAIN = 2.0                          # of the opposite channels before the last SiLU


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
    return w | low_band.start(samples.device)


def vae_tensor(name, shape, generator):
    if ".norm" in name or "norm_out" in name:
        # The bias undoes the subtraction of the mean, which is that of the constant.
        value = ANCHOR if name.endswith("weight") else ANCHOR / math.sqrt(shape[0])
        return torch.cat([torch.full((shape[0] - 1,), value), torch.zeros(1)])
    value = torch.zeros(shape)
    if ".conv1.weight" in name:
        value = torch.randn(shape, generator=generator) / math.sqrt(math.prod(shape[1:]))
        value[-1] = 0
    if name.endswith(WRITERS):
        value[-1] = ANCHOR * math.sqrt(shape[0])
    return value


# Biases that write the constant: of every convolution whose result is not added to a tensor that has it.
WRITERS = tuple(part + ".bias" for part in ("conv1", "conv_in", "conv_shortcut", "downsamplers.0.conv",
                                            "upsamplers.0.conv"))


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


def deeper(w, sizes, blocks, seed=1):
    """The weights and sizes of a transformer with more layers. The new ones lie before the last and change nothing.
    Their number is even, so that every layer keeps its kind of windows."""
    added = blocks - sizes.blocks
    if added < 0 or added % 2:
        raise SystemExit(f"{blocks} layers after {sizes.blocks}: only an even number of layers can be added")
    last, place = f"blocks.{sizes.blocks - 1}.", f"blocks.{blocks - 1}."
    w = {place + name[len(last):] if name.startswith(last) else name: value for name, value in w.items()}
    sizes, generator = replace(sizes, blocks=blocks), torch.Generator().manual_seed(seed)
    new = {name: shape for name, shape in shapes(sizes)[1].items() if name not in w}
    return w | {name: dit_tensor(name, shape, generator).to(w["txt_in.bias"]) for name, shape in new.items()}, sizes


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
    for name, value in w.items():
        if name.endswith(("conv_shortcut.weight", "upsamplers.0.conv.weight")):
            pass_on(value)
    opposite = w["decoder.up_blocks.3.resnets.0.conv_shortcut.weight"]
    opposite[3:6] = -opposite[:3]
    w["encoder.conv_in.weight"][:3, :, 2, 1, 1] = torch.eye(3, device=samples.device)
    for i, a in enumerate(analyses):
        kernel = w[f"encoder.down_blocks.{i}.downsamplers.0.conv.weight"]
        taps = 2 if i > 0 else 1
        a = a.unflatten(1, (taps, 2, 2, -1)).permute(0, 4, 1, 2, 3)                   # out, in, time, row, column
        kernel[:a.shape[0], :a.shape[1], -taps:, :2, :2] = a
    for i, b in enumerate(reversed(syntheses)):
        kernel = w[f"decoder.up_blocks.{i}.upsamplers.0.upscale_conv.weight"]
        taps, width = (2 if i < 2 else 1), kernel.shape[1]
        b = b.unflatten(0, (taps, 2, 2, -1)).permute(1, 2, 0, 3, 4)                   # row, column, time, out, in
        phases = kernel.view(2, 2, taps, width, width)
        phases[..., :b.shape[3], :b.shape[4]] = b
    with torch.no_grad():
        vae, t = Vae(w, s), samples.shape[1]
        x = samples[::len(samples) // 16].flatten(0, 1).contiguous(memory_format=torch.channels_last)
        h, latents = vae.encoder_trunk(x, t)
        mean, spread, reach = straighten(w, h, s.latent)
        close(w, reach / spread)
        w["decoder.conv_in.weight"][:s.latent, :, 2, 1, 1] = torch.diag(spread)
        w["decoder.conv_in.bias"][:s.latent] = mean
        h, _ = vae.decoder_trunk(vae.encode(x, t), latents)
        close_pairs(w, h)


def pass_on(kernel):
    """A convolution that hands all signals on, up to the smaller width."""
    shared = min(kernel.shape[:2]) - 2
    kernel[:shared, :shared, -1, kernel.shape[3] // 2, kernel.shape[4] // 2] = torch.eye(shared, device=kernel.device)


def moments(h):
    """Mean and standard deviation of a frame."""
    return h.mean((1, 2, 3)).mean(), h.var((1, 2, 3)).mean().sqrt()


def straighten(w, h, n):
    """Sets the last norm of the encoder so that the first n channels of h lie at the inflection of SiLU; returns their
    means, standard deviations and ranges. The channel before the last is empty: it shows the shift by the mean of the
    frame."""
    signal = h[:, :n].transpose(0, 1).flatten(1)
    mean, spread = signal.mean(1), signal.std(1)
    reach = torch.stack([torch.quantile(row[::7], 0.999) for row in (signal - mean[:, None]).abs()])
    frame_mean, frame_std = moments(h)
    gain, bias = w["encoder.conv_norm_out.weight"], w["encoder.conv_norm_out.bias"]
    gain[:n] = REACH * frame_std / reach
    gain[-2] = gain[:n].min()
    bias[:n] = INFLECTION + gain[:n] * (frame_mean - mean) / frame_std
    bias[-2] = INFLECTION + gain[-2] * frame_mean / frame_std
    return mean, spread, reach


def close(w, reach):
    """Sets the last convolution of the encoder to invert that, to a mean of zero and a given range."""
    gain, norm = reach / (SLOPE * REACH), w["encoder.conv_norm_out.weight"]
    n = len(gain)
    shared = gain * norm[:n] / norm[-2]
    kernel = w["encoder.conv_out.weight"]
    kernel[range(n), range(n), 2, 1, 1] = gain
    kernel[:n, -2, 2, 1, 1] = -shared
    w["encoder.conv_out.bias"][:n] = -(gain - shared) * VALUE


def close_pairs(w, h):
    """Sets the last norm and convolution of the decoder to hand on the difference of its opposite channels."""
    mean, std = moments(h)
    w["decoder.conv_norm_out.weight"][:6] = PAIR_GAIN * std
    w["decoder.conv_norm_out.bias"][:6] = PAIR_GAIN * mean
    kernel = w["decoder.conv_out.weight"]
    kernel[range(3), range(3), 2, 1, 1] = 1 / PAIR_GAIN
    kernel[range(3), range(3, 6), 2, 1, 1] = -1 / PAIR_GAIN
