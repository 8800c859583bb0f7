"""Golden files of the DiT. Each safetensors file has the inputs, the expected output and, in its metadata, the case.
Weights come from the formula of dit.dit_weights.

  op velocity : input [T,33,H,W], text [58,96]               -> output [T,16,H,W]   (dit.forward)
  op sample   : noise, condition [T,16,H,W], text [58,96]    -> output [T,16,H,W]   (dit.sample)
  op taps     : the tensors between the layers of the velocity case that "of" names; no inputs, no output

Inputs are BF16, as in every run of the model. Everything else is F32.
"""
import dataclasses

import dit
from golden_file import noise, write

TEXT = 58
CASES = [  # name, layers, op, latent grid (T, H, W), taps too; each for both kinds
    ("image", 4, "velocity", (1, 16, 16), False),              # one window
    ("image_windows", 6, "velocity", (1, 40, 54), False),      # rows and columns cut
    ("frames_2", 4, "velocity", (2, 20, 34), False),           # one window per frame
    ("clip_5", 4, "velocity", (5, 8, 12), True),               # time cut
    ("clip_5_windows", 5, "velocity", (5, 30, 60), False),     # all three axes cut
    ("clip_34", 4, "velocity", (34, 4, 6), False),             # beyond 30 frames the window does not grow
    ("image_sample", 4, "sample", (1, 16, 24), False),
]


def make(out, seed):
    cache = {}
    for kind in ("3b", "7b"):
        for name, layers, op, grid, tapped in CASES:
            name, cfg = f"{kind}_{name}", dit.Config.tiny(kind, layers)
            if cfg not in cache:
                cache.clear()
                cache[cfg] = dit.dit_weights(seed, cfg)
            make_case(out, name, cache[cfg], cfg, op, grid, tapped, seed)


def make_case(out, name, w, cfg, op, grid, tapped, seed):
    t, height, width = grid
    text = noise("text:" + name, (TEXT, cfg.text_width), seed)
    start, condition = (noise(f"{what}:{name}", (t, 16, height, width), seed) for what in ("noise", "condition"))
    case = dict(op=op, seed=seed, grid=list(grid), text_tokens=TEXT, timestep=1000, **dataclasses.asdict(cfg))
    if op == "sample":
        y = dit.sample(w, start.float(), condition.float(), text.float(), cfg)
        return write(out, name, case, noise=start, condition=condition, text=text, output=y)
    x, taps = dit.model_input(start, condition), {}
    y = dit.forward(w, x.float(), text.float(), cfg, taps=taps)
    write(out, name, case, input=x, text=text, output=y)
    if tapped:
        write(out, name + "_taps", dict(case, op="taps", of=name), **taps)
