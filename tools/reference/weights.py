"""Formula weights: a full-size checkpoint without a file. Any language can compute the same numbers from a tensor's
name, its shape and a seed.

  h    = FNV-1a 64 of the tensor's name (UTF-8), XOR (seed * 0x9E3779B97F4A7C15)     (mod 2^64)
  r_i  = splitmix64 finaliser of h + (i + 1) * 0x9E3779B97F4A7C15                   (i = flat row-major index)
  v_i  = (r_i >> 40) / 2^23 - 1                                                       in [-1, 1)
  2-D and up       : v * sqrt(3 / fan_in), fan_in = product of all dimensions but the first
  1-D, *.weight     : 1 + 0.2 v          (norm gains)
  1-D, anything else: 0.1 v              (biases)
Computed in float64, rounded once to float32.
"""
import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def fnv1a(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def uniform(name, n, seed):
    h = np.uint64(fnv1a(name) ^ ((seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF))
    with np.errstate(over="ignore"):
        s = h + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * GOLDEN
        s = (s ^ (s >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        s = (s ^ (s >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        s = s ^ (s >> np.uint64(31))
    return (s >> np.uint64(40)).astype(np.float64) / 2.0 ** 23 - 1.0


def tensor(name, shape, seed):
    v = uniform(name, int(np.prod(shape)), seed)
    if len(shape) >= 2:
        v = v * np.sqrt(3.0 / np.prod(shape[1:]))
    elif name.endswith(".weight"):
        v = 1.0 + 0.2 * v
    else:
        v = 0.1 * v
    return v.astype(np.float32).reshape(shape)


def vae_shapes(channels=(128, 256, 512, 512), layers=2, latent=16, image=3, temporal_stages=2):
    """Every tensor of the VAE checkpoint, in order: name -> shape."""
    s = {}
    def conv(n, co, ci, k): s[n + ".weight"] = (co, ci, *k); s[n + ".bias"] = (co,)
    def norm(n, c): s[n + ".weight"] = (c,); s[n + ".bias"] = (c,)
    def res(n, ci, co):
        norm(n + ".norm1", ci); conv(n + ".conv1", co, ci, (3, 3, 3))
        norm(n + ".norm2", co); conv(n + ".conv2", co, co, (3, 3, 3))
        if ci != co: conv(n + ".conv_shortcut", co, ci, (1, 1, 1))
    def mid(n, c):
        norm(n + ".attentions.0.group_norm", c)
        for l in ("to_q", "to_k", "to_v", "to_out.0"):
            s[f"{n}.attentions.0.{l}.weight"] = (c, c); s[f"{n}.attentions.0.{l}.bias"] = (c,)
        res(n + ".resnets.0", c, c); res(n + ".resnets.1", c, c)
    n, top = len(channels), channels[-1]
    conv("encoder.conv_in", channels[0], image, (3, 3, 3))
    prev = channels[0]
    for i, c in enumerate(channels):
        for j in range(layers):
            res(f"encoder.down_blocks.{i}.resnets.{j}", prev if j == 0 else c, c)
        if i < n - 1:
            kt = 3 if i >= n - 1 - temporal_stages else 1
            conv(f"encoder.down_blocks.{i}.downsamplers.0.conv", c, c, (kt, 3, 3))
        prev = c
    mid("encoder.mid_block", top)
    norm("encoder.conv_norm_out", top); conv("encoder.conv_out", 2 * latent, top, (3, 3, 3))
    conv("decoder.conv_in", top, latent, (3, 3, 3))
    mid("decoder.mid_block", top)
    prev = top
    for i, c in enumerate(reversed(channels)):
        for j in range(layers + 1):
            res(f"decoder.up_blocks.{i}.resnets.{j}", prev if j == 0 else c, c)
        if i < n - 1:
            z = 2 if i < temporal_stages else 1
            p = f"decoder.up_blocks.{i}.upsamplers.0"
            conv(p + ".upscale_conv", 4 * z * c, c, (1, 1, 1)); conv(p + ".conv", c, c, (3, 3, 3))
        prev = c
    norm("decoder.conv_norm_out", channels[0]); conv("decoder.conv_out", image, channels[0], (3, 3, 3))
    return s


def vae_weights(seed, **config):
    import torch
    return {k: torch.from_numpy(tensor(k, v, seed)) for k, v in vae_shapes(**config).items()}
