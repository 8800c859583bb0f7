"""Golden files of the VAE. Each safetensors file has the input, the expected output and, in its metadata, the case.
Weights come from the formula of weights.py."""
import torch
import vae, weights
from golden_file import write

TINY = dict(channels=(8, 16, 32, 32), groups=4)
NANO = dict(channels=(32, 64, 96, 96), groups=32)
FULL = dict(channels=(128, 256, 512, 512), groups=32)
CASES = [  # name, config, op, frames, height, width, tile, overlap
    ("tiny_decode_image", TINY, "decode", 1, 40, 56, None, None),
    ("tiny_decode_5", TINY, "decode", 5, 32, 48, None, None),
    ("tiny_decode_17", TINY, "decode", 17, 32, 32, None, None),
    ("tiny_decode_tiled", TINY, "decode", 5, 160, 224, (96, 96), (32, 32)),
    ("tiny_decode_tiled_uneven", TINY, "decode", 9, 136, 200, (64, 96), (16, 24)),
    ("tiny_decode_tiled_no_overlap", TINY, "decode", 5, 96, 128, (64, 64), (0, 0)),
    ("tiny_encode_image", TINY, "encode", 1, 40, 56, None, None),
    ("tiny_encode_5", TINY, "encode", 5, 32, 48, None, None),
    ("tiny_encode_17", TINY, "encode", 17, 32, 32, None, None),
    ("tiny_encode_tiled", TINY, "encode", 5, 160, 224, (96, 96), (32, 32)),
    ("nano_decode_9", NANO, "decode", 9, 48, 64, None, None),
    ("nano_encode_9", NANO, "encode", 9, 48, 64, None, None),
    ("full_decode_image", FULL, "decode", 1, 64, 96, None, None),
    ("full_decode_9", FULL, "decode", 9, 48, 64, None, None),
    ("full_encode_9", FULL, "encode", 9, 48, 64, None, None),
]


def make(out, seed):
    cache = {}
    for name, sizes, op, frames, height, width, tile, overlap in CASES:
        channels = sizes["channels"]
        if channels not in cache:
            cache.clear()                       # the full weights are large
            cache[channels] = weights.vae_weights(seed, channels=channels)
        w, cfg = cache[channels], vae.Config(**sizes)
        if op == "encode":
            shape = (frames, 3, height, width)
        else:
            shape = ((frames - 1) // 4 + 1, 16, height // 8, width // 8)
        x = weights.uniform("input:" + name, torch.Size(shape).numel(), seed)
        x = torch.from_numpy(x).float().reshape(shape)
        if op == "decode":
            x = x * 1.7320508                   # unit variance
        run = getattr(vae, op + ("_tiled" if tile else ""))
        y = run(w, x, cfg, tile, overlap) if tile else run(w, x, cfg)
        case = dict(op=op, channels=list(channels), groups=sizes["groups"], seed=seed, tile=tile, overlap=overlap)
        write(out, name, case, input=x, output=y)
