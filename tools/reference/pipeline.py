"""Executable specification of the pipeline around the two networks: plain float32 PyTorch, written for reading.

8-bit frames in, 8-bit frames out. In between, clips are [T, C, H, W] as in vae.py and dit.py:

  frames [N,H,W,C] -> [0,1] -> lead-in -> batches of 4n+1 -> resize, pad, [-1,1] -> VAE encode -> one DiT step
  -> VAE decode -> trim, crop -> join the batches -> alpha, colour (slice by slice) -> [0,1] -> 8-bit

Colour correction is in color.py, alpha in alpha.py. Nothing here draws random numbers: noise is an input.

Arithmetic is float32 throughout, or float64 where inputs and weights are. The public implementation ("reference" in the
options below) works in bf16. It rounds the frames before the resize, the result of each resize, the normalised frames,
latents and noise, the activations of the networks, the decoded clip, the blend weights and the blend, the result of
each colour step, and the final [0,1] clip; its colour reference comes from frames that are not rounded. This file
rounds nothing.
"""
import math
from dataclasses import dataclass, field
import torch
import torch.nn.functional as F
import dit, vae
from alpha import alpha_upscale
from color import COLOR, unit
from resize import resize


@dataclass(frozen=True)
class Options:
    resolution: int = 1080               # shorter edge of the result
    max_resolution: int = 0              # limit of the longer edge; 0 = none
    batch_size: int = 5                  # frames per batch; best 4n+1, others are padded to it
    temporal_overlap: int = 0            # frames that a batch shares with the batch before it
    uniform_batch_size: bool = False     # pad the last batch to batch_size too
    prepend_frames: int = 0              # mirrored frames before the clip, removed from the result
    blend: str = "smooth"                # of the shared frames; "reference" = the public weights
    color: str = "lab"                   # lab, wavelet, wavelet_adaptive, hsv, adain, none
    alpha_range: str = "fixed"           # of the image that guides alpha; "reference" = the public guess
    rounding: str = "nearest"            # to 8 bits; "truncate" = the public rule
    input_noise: float = 0.0             # 0..1, on the pixels before encoding
    latent_noise: float = 0.0            # 0..1, on the condition
    encode_tile: tuple = None            # (size, overlap) in pixels, of square VAE tiles; None = whole frames
    decode_tile: tuple = None
    vae_cfg: vae.Config = field(default_factory=vae.Config)
    dit_cfg: dit.Config = field(default_factory=dit.Config.b3)


# ---- sizes

def resize_steps(h, w, resolution, max_resolution=0):
    """Sizes (h, w) to resample to, in order: none, one or two. First the shorter edge becomes `resolution` and the
    longer edge follows, rounded down. If the longer edge then exceeds the limit, both shrink (halves round to even);
    this resamples the resampled frame. The rule is the same for upscaling and downscaling."""
    short, long = min(h, w), max(h, w)
    scaled = int(resolution * long / short)
    first = (resolution, scaled) if h < w else (scaled, resolution)
    steps = [] if first == (h, w) else [first]
    if 0 < max_resolution < max(first):
        s = max_resolution / max(first)
        second = (round(first[0] * s), round(first[1] * s))
        if second != first: steps.append(second)
    return steps


def sizes(h, w, resolution, max_resolution=0):
    """(steps, true, padded): the result is the resized frame, cropped to even edges at the bottom and the right. The
    networks receive it padded to multiples of 16."""
    steps = resize_steps(h, w, resolution, max_resolution)
    h, w = steps[-1] if steps else (h, w)
    return steps, (h // 2 * 2, w // 2 * 2), (-(-h // 16) * 16, -(-w // 16) * 16)


# ---- resize, pad, normalise

def pad16(x):
    """Zeros at the bottom and the right, up to multiples of 16."""
    h, w = x.shape[-2:]
    return F.pad(x, (0, -w % 16, 0, -h % 16))


def transform(x, resolution, max_resolution=0):
    """[T,3,H,W] in [0,1] -> [T,3,H',W'] in [-1,1], H' and W' multiples of 16. The padding is black, -1."""
    for size in resize_steps(*x.shape[-2:], resolution, max_resolution):
        x = resize(x, size)
    return pad16(x.clamp(0, 1)) * 2 - 1


def add_input_noise(x, noise, scale):
    """x, noise [T,3,H,W]: after `transform`, padding included. noise is standard normal."""
    return x + 0.025 * scale * noise


# ---- batches

def extend(frames, k, front=False):
    """A list of frames with k mirrored frames at its end (or front). The turning frame is not repeated:
    [0,1,2,3] + 2 -> [0,1,2,3,2,1]. From k = len(frames) on: all frames except frame 0 in reverse, turning frame
    included, then the last frame as often as needed: [0,1] + 3 -> [0,1,1,1,1], [0,1,2] + 4 -> [0,1,2,2,1,2,2].
    At the front: [0,1,2,3] + 2 -> [2,1,0,1,2,3], [0,1,2] + 4 -> [2,2,2,1,0,1,2]."""
    t = len(frames)
    if k <= 0: return list(frames)
    if k >= t:
        back, copies = frames[:0:-1], [frames[-1]] * (k - t + 1)
        more = copies + back if front else back + copies
    else:
        more = frames[k:0:-1] if front else frames[::-1][1:k + 1]
    return more + frames if front else frames + more


@dataclass(frozen=True)
class Batch:
    start: int          # first frame of the batch
    end: int            # one past its last frame
    frames: list        # input of the VAE: 4n+1 frames of the clip, [start, end) and then padding
    write: tuple        # (first, one past last) frame of its output slice, without frames of the batch before it

    @property
    def latent_frames(self): return (len(self.frames) - 1) // 4 + 1


def plan(n, batch_size, overlap=0, uniform=False):
    """Batches of a clip of n frames (lead-in included), and the overlap in use (0 if the given one leaves no step). A
    batch without new frames is left out. Only the last batch can be shorter."""
    if overlap >= batch_size: overlap = 0
    batches = []
    for start in range(0, n, batch_size - overlap):
        end = min(start + batch_size, n)
        if start > 0 and end - start <= overlap: break
        frames = list(range(start, end))
        if uniform: frames = extend(frames, batch_size - len(frames))
        frames = extend(frames, (1 - len(frames)) % 4)
        batches.append(Batch(start, end, frames, (start + overlap if start else 0, end)))
    return batches, overlap


def lead_in(n, prepend):
    """Frame numbers of the extended clip: `prepend` mirrored frames, then the n frames of the input."""
    return extend(list(range(n)), prepend, front=True)


# ---- the latent side

def encode(w, x, o):
    """[T,3,H,W] in [-1,1], T = 4n+1 -> [n+1,16,H/8,W/8]: the mean of the posterior, scaled. No sampling."""
    m = (vae.encode_tiled(w, x, o.vae_cfg, (o.encode_tile[0],) * 2, (o.encode_tile[1],) * 2) if o.encode_tile
         else vae.encode(w, x, o.vae_cfg))
    return vae.split_moments(m)[0] * o.vae_cfg.scaling_factor


def decode(w, z, o):
    """[n+1,16,h,w], scaled -> [4n+1,3,8h,8w], about [-1,1], not clamped."""
    z = z / o.vae_cfg.scaling_factor
    if o.decode_tile: return vae.decode_tiled(w, z, o.vae_cfg, (o.decode_tile[0],) * 2, (o.decode_tile[1],) * 2)
    return vae.decode(w, z, o.vae_cfg)


def shifted_time(t, frames, height, width):
    """Timestep t of 0..1000 shifted for the number of pixels: more pixels, more noise."""
    if frames > 1: (x1, y1), (x2, y2), x = (256 * 256 * 37, 1.0), (1280 * 720 * 145, 5.0), frames * height * width
    else:          (x1, y1), (x2, y2), x = (256 * 256, 1.0), (1024 * 1024, 3.2), height * width
    shift = y1 + (y2 - y1) * (x - x1) / (x2 - x1)
    s = t / 1000
    return 1000 * shift * s / (1 + (shift - 1) * s)


def noised_condition(latent, noise, second_noise, scale):
    """All [L,16,h,w]. The condition for latent_noise = scale, mixed with 0.1 noise + 0.05 second_noise; `noise` is the
    noise of the sampler. The public implementation shifts the timestep with a wrong shape, (h, w, 16) instead of
    (L, h, w). The shape is the same here because it decides the strength of a given scale. (The public implementation
    also rounds 1000 * scale to bf16.)"""
    h, w = latent.shape[-2:]
    b = shifted_time(1000 * scale, (h - 1) * 4 + 1, 8 * w, 8 * 16) / 1000
    return (1 - b) * latent + b * (0.1 * noise + 0.05 * second_noise)


# The condition tensor and the sampler are dit.model_input and dit.sample:
#   DiT input [L,33,h,w] = noise (16), condition (16), ones (1);   x0 = noise - velocity(t = 1000).


# ---- joining batches

def overlap_weights(v, mode):
    """[v]: the weight of the EARLIER batch in each of the v shared frames; the later one has the rest.
      smooth    : raised cosine over all v frames, 1 just before the first and 0 just after the last:
                  1/2 + 1/2 cos(pi (i+1)/(v+1)). v=1 .5; v=2 .75 .25; v=3 .854 .5 .146
      reference : raised cosine over the middle third of the span from first to last, 1 before, 0 after.
                  v=2: 1 0 and v=1: 1. For v = 1, 2 and 4 it is a cut."""
    i = torch.arange(v, dtype=torch.float64)
    if mode == "smooth": u = (i + 1) / (v + 1)
    elif mode == "reference": u = i if v < 3 else (3 * i / (v - 1) - 1).clamp(0, 1)
    else: raise ValueError(mode)
    return 0.5 + 0.5 * torch.cos(math.pi * u)


def join(parts, overlap, mode):
    """parts: [T_k,3,H,W] each, padding removed; consecutive ones share `overlap` frames. -> [N,3,H,W]"""
    clip = parts[0]
    for part in parts[1:]:
        if overlap:
            w = overlap_weights(overlap, mode).to(clip.dtype)[:, None, None, None]
            shared = clip[-overlap:] * w + part[:overlap] * (1 - w)
            clip, part = torch.cat([clip[:-overlap], shared]), part[overlap:]
        clip = torch.cat([clip, part])
    return clip


# ---- 8 bits

def from_8bit(frames):
    """[N,H,W,C] uint8 -> [N,C,H,W] in [0,1]. Float input is in [0,1] already."""
    x = frames.permute(0, 3, 1, 2)
    return x.float() / 255 if x.dtype == torch.uint8 else x


def to_8bit(x, rounding="nearest"):
    """[N,C,H,W] in [0,1] -> [N,H,W,C] uint8. nearest: floor(255 x + 1/2); truncate (the public rule): floor(255 x)."""
    x = x * 255 + (0.5 if rounding == "nearest" else 0.0)
    return x.floor().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)


# ---- the whole pipeline

def noise_shapes(n, h, w, o):
    """[L,16,h',w'] for each batch of an input of n frames h x w."""
    hp, wp = sizes(h, w, o.resolution, o.max_resolution)[2]
    batches, _ = plan(n + o.prepend_frames, o.batch_size, o.temporal_overlap, o.uniform_batch_size)
    return [(b.latent_frames, o.vae_cfg.latent, hp // 8, wp // 8) for b in batches]


def run_pipeline(frames, vae_weights, dit_weights, text_embedding, noise_per_batch, options=Options(),
                 second_noise_per_batch=None, input_noise_per_batch=None, taps=None):
    """frames [N,H,W,3 or 4] uint8 -> the same number of frames, [N,H',W',3 or 4] uint8.
    text_embedding [58, text_width]. noise_per_batch: standard normal, shapes from noise_shapes (the public
    implementation draws the same noise for every batch of a shape). The other two are for latent_noise (same shapes)
    and input_noise ([T,3,H,W] as encoded). The dict `taps` receives lists per batch: condition, x0, decoded; and the
    clips joined (before colour, [-1,1]) and result ([0,1]), both [T,C,H',W'] with the lead-in."""
    o = options
    note = (lambda **k: None) if taps is None else taps.update
    clip = from_8bit(frames)
    n, (h, w) = len(clip), clip.shape[-2:]
    clip = clip[lead_in(n, o.prepend_frames)]
    rgb, alpha = clip[:, :3], clip[:, 3:]
    _, (th, tw), _ = sizes(h, w, o.resolution, o.max_resolution)
    batches, overlap = plan(len(clip), o.batch_size, o.temporal_overlap, o.uniform_batch_size)
    view = lambda x: transform(x, o.resolution, o.max_resolution)

    conditions, latents, decoded = [], [], []
    for k, b in enumerate(batches):
        x = view(rgb[b.frames])
        if o.input_noise: x = add_input_noise(x, input_noise_per_batch[k], o.input_noise)
        c = encode(vae_weights, x, o)
        if o.latent_noise:
            c = noised_condition(c, noise_per_batch[k], second_noise_per_batch[k], o.latent_noise)
        z = dit.sample(dit_weights, noise_per_batch[k], c, text_embedding, o.dit_cfg)
        y = decode(vae_weights, z, o)[:b.end - b.start, :, :th, :tw]
        conditions.append(c); latents.append(z); decoded.append(y)

    joined = join(decoded, overlap, o.blend)
    result = []
    for a, b in (x.write for x in batches):
        y = COLOR[o.color](joined[a:b], view(rgb[a:b])[..., :th, :tw])
        y = unit(y)
        if alpha.shape[1]:
            y = torch.cat([y, alpha_upscale(alpha[a:b], joined[a:b], o.alpha_range)], 1)
        result.append(y)
    result = torch.cat(result)
    note(condition=conditions, x0=latents, decoded=decoded, joined=joined, result=result)
    return to_8bit(result[o.prepend_frames:], o.rounding)
