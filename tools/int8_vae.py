"""What 8-bit products would cost in the decoder of the VAE: PSNR against f32, emulated in PyTorch.

    python3 tools/int8_vae.py --photographs FOLDER [--table FILE.md]

Products of activations and weights are those of integers up to 127, exactly summed. Only the convolutions that follow
a norm are rounded: they have most of the products, and the norm gives their input a known scale. Two decoders: formula
weights at full size (a range of 4), and nano with latents of photographs (a range of 2). Needs torch, numpy, pillow and
safetensors.
"""
import argparse
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/reference"))
import vae  # noqa: E402
import weights  # noqa: E402

FLOAT_CONV, ATTENTION = vae.causal_conv, vae.attention
DEVIATIONS = 5
LEAST_SILU = 0.2785                      # the size of its minimum


def rounded(x, step):
    return (x / step).round().clamp(-127, 127) * step


def largest(x, *dims):
    return x.abs().amax(dims, keepdim=True).clamp(min=1e-12)


def hadamard(n):
    """An orthogonal matrix of ±1/√g in blocks of the largest power of two g that divides n."""
    g = n & -n
    h = torch.ones(1, 1)
    while h.shape[0] < g:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return torch.block_diag(*[h / math.sqrt(g)] * (n // g))


def one_scale(x, weight, _norm=None):
    """One scale for each frame, and one for each output channel of the weights."""
    return rounded(x, largest(x, 1, 2, 3) / 127), rounded(weight, largest(weight, 1, 2, 3, 4) / 127)


def folded_scales(x, weight, scale):
    """Scales of input channels, which the weights take over."""
    folded = weight * scale.reshape(1, -1, 1, 1, 1)
    return rounded(x / scale, 1 / 127), rounded(folded, largest(folded, 1, 2, 3, 4) / 127)


def channel_scales(x, weight, _norm):
    return folded_scales(x, weight, largest(x, 0, 2, 3))


def norm_scales(x, weight, norm):
    """The scales of channels that a gain and a shift give to values within some standard deviations: no maxima of the
    data are needed."""
    gain, shift = norm
    ends = torch.stack([shift + DEVIATIONS * gain, shift - DEVIATIONS * gain])
    scale = torch.nn.functional.silu(ends).abs().amax(0).clamp(min=LEAST_SILU)
    return folded_scales(x, weight, scale.reshape(1, -1, 1, 1))


def rotated(x, weight, _norm):
    """The channels rotated by a Hadamard matrix, with one scale for each frame."""
    h = hadamard(x.shape[1])
    x, weight = torch.einsum("tchw,cd->tdhw", x, h), torch.einsum("ocxyz,cd->odxyz", weight, h)
    return one_scale(x, weight)


WAYS = {"one scale a frame": one_scale, "scales of channels": channel_scales,
        "scales of channels from gain and shift": norm_scales, "rotated channels": rotated}


def follows_norm(name):
    return ".resnets." in name and name.endswith((".conv1", ".conv2"))


class Decoder:
    """A decoder whose layers can be rounded."""

    def __init__(self, w, config, latent, peak):
        self.w, self.config, self.latent, self.peak = w, config, latent, peak
        self.products, self.layers, self.way = {}, (), None
        self.wanted = self.run((), None)
        self.names = {name for name in self.products if follows_norm(name)}

    def conv(self, w, name, x, state, **options):
        if name in self.layers:
            norm = name.replace(".conv", ".norm")
            x, weight = self.way(x, w[name + ".weight"], (w[norm + ".weight"], w[norm + ".bias"]))
            w = {name + ".weight": weight, name + ".bias": w.get(name + ".bias")}
        y = FLOAT_CONV(w, name, x, state, **options)
        taps = self.w[name + ".weight"][0].numel()
        self.products[name] = self.products.get(name, 0) + y.numel() * taps
        return y

    def run(self, layers, way):
        self.products, self.layers, self.way = {}, layers, way
        vae.causal_conv = self.conv
        vae.attention = lambda w, p, x, cfg: ATTENTION(w, p, x, cfg) if p + ".to_q.weight" in w else x
        return vae.decode(self.w, self.latent, self.config, sliced=False)

    def psnr(self, way):
        error = (self.run(self.names, way) - self.wanted).pow(2).mean()
        return 10 * math.log10(self.peak ** 2 / error)

    def share(self):
        """Of the products, those in 8 bits."""
        return sum(map(self.products.get, self.names)) / sum(self.products.values())


def formula():
    generator = torch.Generator().manual_seed(1)
    latent = torch.randn((2, 16, 7, 9), generator=generator)
    return Decoder(weights.vae_weights(1), vae.Config(), latent, 4)


def nano(folder):
    with tempfile.TemporaryDirectory() as unpacked:
        subprocess.run([ROOT / "tools/nano", "unpack", unpacked], check=True)
        w = {name: value.float() for name, value in load_file(pathlib.Path(unpacked) / "vae.safetensors").items()}
    sizes = dict(channels=(16, 32, 96, 96), groups=1, latent=88, scaling_factor=1.0)
    latents = []
    for path in sorted(pathlib.Path(folder).glob("*.[jp][pn]g"))[:4]:
        pixels = torch.from_numpy(np.asarray(Image.open(path).convert("RGB"))[:256, :256].copy()).float()
        image = pixels.permute(2, 0, 1)[None] / 127.5 - 1
        clip = torch.cat([image.roll(2 * t, 3) for t in range(5)])[..., :192, 16:208]
        vae.causal_conv = FLOAT_CONV
        vae.attention = lambda w, p, x, cfg: x
        moments = vae.encode(w, clip, vae.Config(layers_per_block=1, **sizes), sliced=False)
        latents.append(moments[:, :88])
    return Decoder(w, vae.Config(layers_per_block=0, **sizes), torch.cat(latents, 3), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", required=True, help="folder with photographs, JPEG or PNG, 256x256 or more")
    parser.add_argument("--table", help="Markdown file to write")
    args = parser.parse_args()
    with torch.no_grad():
        decoders = [formula(), nano(args.photographs)]
        shares = [f"{decoder.share():.0%}" for decoder in decoders]
        lines = ["| scales of activations | formula weights | nano |", "|---|---|---|",
                 f"| share of 8-bit products | {' | '.join(shares)} |"]
        for name, way in WAYS.items():
            lines.append(f"| {name} | {' | '.join(f'{decoder.psnr(way):.1f} dB' for decoder in decoders)} |")
    print("\n".join(lines))
    if args.table:
        pathlib.Path(args.table).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
