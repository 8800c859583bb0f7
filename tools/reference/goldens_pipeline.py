"""Golden files of the pipeline. Each safetensors file has the inputs, the expected output and, in its metadata, the
case. Weights of whole-pipeline cases come from the formulas of weights.vae_weights and dit.dit_weights with the seed of
the case.

  op resize    : input U8 [T,h,w,3]                                  -> output F32 [T,3,H,W]         (not clamped)
  op transform : input U8 [T,h,w,3]                                  -> output F32 [T,3,H',W']       (padded, [-1,1])
  op join      : part0, part1, ... BF16 [T_k,3,H,W]                  -> output F32 [N,3,H,W]
  op condition : latent, noise, second_noise BF16 [L,16,h,w]         -> output F32 [L,16,h,w]
  op color     : content, style F32 [T,3,H,W]                        -> F32 [T,3,H,W] for each method, by its name
  op alpha     : alpha U8 [T,h,w,1], rgb BF16 [T,3,H,W]              -> output F32 [T,1,H,W]         (one slice)
  op pipeline  : frames U8 [N,h,w,C], text BF16, noise0, ... BF16    -> output U8 [N,H,W,C], truncated U8 (the public
                 8-bit rule), result F32 [N,C,H,W] in [0,1]
  op taps      : intermediate tensors of the pipeline case that "of" names, all F32: condition0, ..., x0_0, ..., joined
                 (before colour); no inputs
The T frames of color and alpha are one slice. "float64" in a case is the difference of a float64 run: largest, mean,
and the share of values that differ by more than 1e-3. Colour matches ranks, so that single pixels can move far.

plans.json: padding (a clip of t frames, k more -> frame numbers), plans (frames of each batch, as numbers of input
frames; write = output frames of the extended clip, lead-in included), weights (of the earlier batch).
sizes.json: h, w, resolution, max_resolution -> resize steps, true and padded size, each (h, w).
"""
import dataclasses
import json
import pathlib

import dit, pipeline, vae, weights
from golden_file import noise, write
from scene import restored, scene, upscaled

TINY = dict(channels=(8, 16, 32, 32), groups=4)
METHODS = ("lab", "wavelet", "wavelet_adaptive", "hsv", "adain")
CASES = dict(
    resize=[  # name, frames, (h, w) in, (h, w) out
        ("up_2x", 2, (30, 44), (60, 88)),
        ("up_odd", 1, (37, 53), (91, 131)),
        ("down", 1, (120, 90), (60, 45)),
        ("down_odd", 1, (101, 135), (37, 49)),
        ("one_axis", 1, (40, 64), (40, 97)),
        ("wide_and_low", 1, (50, 40), (33, 77)),
    ],
    transform=[  # name, frames, (h, w), resolution, max_resolution
        ("up", 2, (30, 41), 64, 0),
        ("max", 1, (30, 41), 64, 80),
        ("same", 1, (48, 64), 48, 0),
        ("tall_down", 1, (130, 83), 50, 0),
    ],
    plan=[  # frames, batch_size, overlap, uniform, prepend
        (1, 1, 0, False, 0), (1, 5, 0, False, 0), (1, 5, 0, True, 0), (11, 5, 0, False, 0), (11, 5, 2, False, 0),
        (11, 5, 0, True, 0), (11, 5, 2, True, 0), (12, 5, 2, False, 0), (11, 9, 0, False, 0), (11, 9, 3, True, 0),
        (11, 1, 0, False, 0), (11, 5, 5, False, 0), (11, 5, 4, False, 0), (7, 4, 1, False, 0), (3, 13, 0, True, 0),
        (6, 13, 4, False, 0), (10, 5, 1, False, 3), (2, 5, 0, False, 4), (45, 21, 6, True, 2), (17, 17, 0, False, 0),
        (9, 8, 2, True, 0), (30, 6, 0, False, 0),
    ],
    padding=[(t, k) for t in (1, 2, 3, 4, 5, 7) for k in (1, 2, 3, 4, 6, 9)],
    size=[(h, w, r, m)
          for h, w in ((30, 41), (41, 30), (720, 1280), (1080, 1920), (480, 854), (333, 333), (1, 7), (2160, 4096))
          for r, m in ((64, 0), (64, 80), (1080, 0), (1080, 1920), (721, 1000), (2160, 3840))],
    join=[  # name, lengths of the batches, overlap, mode
        ("cut", (5, 5, 3), 0, "smooth"), ("smooth_1", (5, 5), 1, "smooth"), ("smooth_2", (5, 5, 4), 2, "smooth"),
        ("smooth_5", (9, 9, 7), 5, "smooth"), ("reference_1", (5, 3), 1, "reference"),
        ("reference_2", (5, 5, 4), 2, "reference"), ("reference_3", (5, 5), 3, "reference"),
        ("reference_8", (13, 13), 8, "reference"),
    ],
    condition=[("image", (1, 8, 12), 0.3), ("clip", (3, 6, 10), 0.05)],      # name, (L, h, w), scale
    color=[  # name, frames, (h, w), methods
        ("slice_3", 3, (44, 58), METHODS),
        ("image", 1, (40, 56), METHODS),
        ("wide", 1, (128, 132), ("wavelet",)),                                # all five blurs at full reach
    ],
    alpha=[  # name, frames, (h, w) in, (h, w) out, kind, range rule
        ("mask", 2, (26, 33), (62, 78), "mask", "fixed"),
        ("ramp", 2, (26, 33), (62, 78), "ramp", "fixed"),
        ("mask_reference", 1, (33, 41), (66, 82), "mask", "reference"),
        ("ramp_reference", 1, (33, 41), (66, 82), "ramp", "reference"),
    ],
    pipeline=[  # name, kinds, frames, (h, w), channels, options
        ("image", ("3b", "7b"), 1, (48, 64), 3, dict(resolution=96)),
        ("clip", ("3b", "7b"), 11, (21, 31), 3, dict(resolution=40, temporal_overlap=2)),
        ("rgba", ("3b",), 6, (24, 35), 4, dict(resolution=40, max_resolution=52, temporal_overlap=1, prepend_frames=2,
                                                uniform_batch_size=True, color="wavelet", blend="reference")),
    ],
)


def distance(y, exact):
    d = (y - exact).abs().double()
    numbers = dict(max=d.max(), mean=d.mean(), over_1e_3=(d > 1e-3).double().mean())
    return {k: float("%.2g" % v) for k, v in numbers.items()}


def compare(f, *inputs):
    """f in float32, and the distance of a float64 run."""
    y = f(*(v.float() for v in inputs))
    return y, distance(y, f(*(v.double() for v in inputs)))


def floats(frames):
    """[T,h,w,C] U8 -> [T,C,h,w] in [0,1]."""
    return frames.permute(0, 3, 1, 2).double() / 255


def steps_before(out, seed):
    """The steps before the networks, and the joining of batches."""
    for name, n, hw, size in CASES["resize"]:
        x = scene(name, n, *hw, seed)
        y, d = compare(lambda v: pipeline.resize(v, size), floats(x))
        write(out, "resize_" + name, dict(op="resize", seed=seed, size=size, float64=d), input=x, output=y)
    for name, n, hw, r, m in CASES["transform"]:
        x = scene(name, n, *hw, seed)
        y, d = compare(lambda v: pipeline.transform(v, r, m), floats(x))
        s, true, padded = pipeline.sizes(*hw, r, m)
        write(out, "transform_" + name, dict(op="transform", seed=seed, resolution=r, max_resolution=m, steps=s,
                                             true=true, padded=padded, float64=d), input=x, output=y)
    for name, lengths, v, mode in CASES["join"]:
        parts = [noise(f"part{k}:{name}", (t, 3, 6, 8), seed) for k, t in enumerate(lengths)]
        y, d = compare(lambda *p: pipeline.join(p, v, mode), *parts)
        write(out, "join_" + name, dict(op="join", seed=seed, overlap=v, mode=mode, float64=d),
              **{f"part{k}": p for k, p in enumerate(parts)}, output=y)
    for name, (l, h, w), scale in CASES["condition"]:
        x = [noise(f"{what}:{name}", (l, 16, h, w), seed) for what in ("latent", "noise", "second")]
        y, d = compare(lambda *p: pipeline.noised_condition(*p, scale), *x)
        write(out, "condition_" + name, dict(op="condition", seed=seed, scale=scale, float64=d),
              latent=x[0], noise=x[1], second_noise=x[2], output=y)


def steps_after(out, seed):
    """Colour and alpha."""
    for name, n, hw, methods in CASES["color"]:
        style = upscaled(name, n, *hw, seed)
        content = restored(name, style, seed)
        y = {m: compare(pipeline.COLOR[m], content, style) for m in methods}
        case = dict(op="color", seed=seed, methods=methods, float64={m: d for m, (_, d) in y.items()})
        write(out, "color_" + name, case, content=content, style=style, **{m: v for m, (v, _) in y.items()})
    for name, n, hw, size, kind, rule in CASES["alpha"]:
        alpha = scene(name, n, *hw, seed, 4, kind)[..., 3:]
        big = pipeline.resize(pipeline.from_8bit(scene(name, n, *hw, seed)), size).clamp(0, 1) * 2 - 1
        rgb = restored(name, big, seed).bfloat16()
        y, d = compare(lambda a, c: pipeline.alpha_upscale(a, c, rule), floats(alpha), rgb)
        case = dict(op="alpha", seed=seed, range_rule=rule, float64=d)
        write(out, "alpha_" + name, case, alpha=alpha, rgb=rgb, output=y)


def planned(n, size, overlap, uniform, prepend):
    clip = pipeline.lead_in(n, prepend)
    batches, used = pipeline.plan(len(clip), size, overlap, uniform)
    listed = [dict(start=b.start, length=b.end - b.start, padded=len(b.frames), latent_frames=b.latent_frames,
                   frames=[clip[i] for i in b.frames], write=b.write) for b in batches]
    return dict(frames=n, batch_size=size, overlap=overlap, uniform=uniform, prepend=prepend, overlap_used=used,
                batches=listed)


def lists(out):
    """The JSON files."""
    plans = [planned(*c) for c in CASES["plan"]]
    padding = [dict(t=t, k=k, where=where, frames=pipeline.extend(list(range(t)), k, where == "front"))
               for t, k in CASES["padding"] for where in ("end", "front")]
    used = sorted({j[2] for j in CASES["join"]} - {0} | set(range(1, 9)) | {16})
    table = {mode: {v: pipeline.overlap_weights(v, mode).tolist() for v in used} for mode in ("smooth", "reference")}
    sizes = [dict(zip(("h", "w", "resolution", "max_resolution", "steps", "true", "padded"), (*c, *pipeline.sizes(*c))))
             for c in CASES["size"]]
    for name, what in (("plans", dict(padding=padding, plans=plans, weights=table)), ("sizes", sizes)):
        text = json.dumps(what).replace('{"', '\n{"')
        pathlib.Path(out, f"{name}.json").write_text(text + "\n")
        print(name + ".json", len(text) // 1000, "kB")


def whole(out, seed, layers=4):
    vae_w = weights.vae_weights(seed, channels=TINY["channels"])
    double = lambda w: {k: v.double() for k, v in w.items()}
    for kind in ("3b", "7b"):
        cfg = dit.Config.tiny(kind, layers)
        dit_w = dit.dit_weights(seed, cfg)
        for base, kinds, n, (h, w), channels, options in CASES["pipeline"]:
            if kind not in kinds:
                continue
            name = f"pipeline_{kind}_{base}"
            o = pipeline.Options(vae_cfg=vae.Config(**TINY), dit_cfg=cfg, **options)
            frames = scene(base, n, h, w, seed, channels)
            text = noise("text:" + name, (58, cfg.text_width), seed)
            eps = [noise(f"noise{k}:{name}", s, seed) for k, s in enumerate(pipeline.noise_shapes(n, h, w, o))]
            args = text.float(), [e.float() for e in eps]
            args64 = text.double(), [e.double() for e in eps]
            taps, exact, p = {}, {}, o.prepend_frames
            y = pipeline.run_pipeline(frames, vae_w, dit_w, *args, o, taps=taps)
            pipeline.run_pipeline(frames.double() / 255, double(vae_w), double(dit_w), *args64, o, taps=exact)
            case = dict(op="pipeline", seed=seed, vae=TINY, dit=dataclasses.asdict(cfg),
                        options={k: v for k, v in dataclasses.asdict(o).items() if not k.endswith("_cfg")},
                        batches=planned(n, o.batch_size, o.temporal_overlap, o.uniform_batch_size, p)["batches"],
                        float64=distance(taps["result"], exact["result"]))
            write(out, name, case, frames=frames, text=text, **{f"noise{k}": e for k, e in enumerate(eps)}, output=y,
                  truncated=pipeline.to_8bit(taps["result"][p:], "truncate"), result=taps["result"][p:])
            between = {f"condition{k}": c for k, c in enumerate(taps["condition"])}
            between |= {f"x0_{k}": z for k, z in enumerate(taps["x0"])}
            case = dict(op="taps", of=name, float64=distance(taps["joined"], exact["joined"]))
            write(out, name + "_taps", case, **between, joined=taps["joined"])


def make(out, seed):
    lists(out)
    steps_before(out, seed)
    steps_after(out, seed)
    whole(out, seed)
