"""Executable specification of the SeedVR2 DiT, 3B and 7B: plain float32 PyTorch, written for reading.

One function per layer. Weights are a flat dict with the keys of the public checkpoints. Latents are [T, C, H, W] as in
vae.py (H and W even); tokens keep their grid, [T, H/2, W/2, D]; text is [L, D]. Two streams run through every block:
video x and text y. They interact only in the window attention.

Arithmetic is float32 throughout, without rounding to half types. Arguments and values of sin and cos are computed in
float64 and rounded once. With float64 weights and inputs the whole run is float64.
"""
import math
from dataclasses import dataclass
import torch
import torch.nn.functional as F
import weights

SLOT = {"attn": 0, "mlp": 1}
SHIFT, SCALE, GATE = 0, 1, 2


@dataclass(frozen=True)
class Config:
    """`kind` decides everything that is not a size:
                    3b                                        7b
      MLP           SwiGLU, no biases                         GELU (tanh), biases
      RoPE          21 frequencies an axis, text too          10 frequencies an axis, video only
      last layer    text normalised but not modulated         as any other
      head          RMS norm, modulation, linear              linear only
    Layers before mm_layers have separate weights for video ("vid") and text ("txt"). Later layers have one set ("all")
    for both. In 7b every layer has separate weights; in 3b the last layers are shared.
    """
    kind: str
    width: int                    # D, of both streams
    heads: int
    layers: int
    mm_layers: int
    text_width: int = 5120        # of the text embedding that comes in
    head_dim: int = 128
    latent: int = 16
    eps: float = 1e-5

    def __post_init__(self):
        assert self.mm_layers == self.layers if self.kind == "7b" else self.mm_layers < self.layers

    @staticmethod
    def b3(): return Config("3b", width=2560, heads=20, layers=32, mm_layers=10)

    @staticmethod
    def b7(): return Config("7b", width=3072, heads=24, layers=36, mm_layers=36)

    @staticmethod
    def tiny(kind, layers=4, heads=2):
        """For tests: the same structure with heads of 128, text width 96 and, in 3b, two layers that are not shared."""
        return Config(kind, width=128 * heads, heads=heads, layers=layers,
                      mm_layers=2 if kind == "3b" else layers, text_width=96)

    @property
    def channels(self):
        """Input channels: noise, condition, one constant."""
        return 2 * self.latent + 1

    @property
    def hidden(self):
        """MLP width: 4D, or for SwiGLU two thirds of that (rounded down), then up to a multiple of 256."""
        return 4 * self.width if self.kind == "7b" else -(-(8 * self.width // 3) // 256) * 256

    def branches(self, layer):
        """Names of the weight sets for (video, text) in a layer."""
        return ("vid", "txt") if layer < self.mm_layers else ("all", "all")


# ---- small pieces

def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def rms(x, eps, gain=None):
    """x / sqrt(mean(x^2) + eps) over the last axis, times an optional gain."""
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)
    return x if gain is None else x * gain


def patch_in(w, vid):
    """[T, 33, H, W] -> [T, H/2, W/2, D]. A token is a 2x2 patch; its features are ordered (row in the patch, column in
    the patch, channel), channel fastest."""
    t, c, h, wd = vid.shape
    cells = vid.reshape(t, c, h // 2, 2, wd // 2, 2).permute(0, 2, 4, 3, 5, 1)
    return linear(w, "vid_in.proj", cells.reshape(t, h // 2, wd // 2, 4 * c))


def patch_out(w, x):
    """[T, H/2, W/2, D] -> [T, 16, H, W], features ordered as in patch_in."""
    y = linear(w, "vid_out.proj", x)
    t, h, wd, f = y.shape
    return y.reshape(t, h, wd, 2, 2, f // 4).permute(0, 5, 1, 3, 2, 4).reshape(t, f // 4, 2 * h, 2 * wd)


def time_embedding(w, t, cfg):
    """Timestep -> [D, 2, 3], indexed [channel, attn|mlp, shift|scale|gate]: the six values of a channel are adjacent in
    the 6D outputs. 128 sines, then 128 cosines, three linear layers, no activation after the last.
    (Angles reach 1000. The public implementation computes them in float32, which moves the output by some 5e-6.)"""
    angle = t * torch.exp(-math.log(10000) * torch.arange(128, dtype=torch.float64) / 128)
    e = torch.cat([angle.sin(), angle.cos()]).to(w["emb_in.proj_in.weight"].dtype)
    e = F.silu(linear(w, "emb_in.proj_in", e))
    e = F.silu(linear(w, "emb_in.proj_hid", e))
    return linear(w, "emb_in.proj_out", e).reshape(cfg.width, 2, 3)


# ---- modulation: the time embedding (same for all layers and both streams) + a layer's own vectors

def modulate(w, p, z, slot, time):
    """z * scale + shift. There is no implicit 1 + scale: the layer's own scale is near one."""
    m = time[:, SLOT[slot]]
    return z * (m[:, SCALE] + w[f"{p}.{slot}_scale"]) + (m[:, SHIFT] + w[f"{p}.{slot}_shift"])


def gated(w, p, z, slot, time):
    return z * (time[:, SLOT[slot], GATE] + w[f"{p}.{slot}_gate"])


# ---- windows

def cell(grid):
    """Window size (t, h, w) for a token grid: the grid, scaled to the area of 45 x 80 tokens (720p), is cut in 3 x 3.
    Time is cut in 4, of at most 30 frames. float64, halves round to even."""
    t, h, w = grid
    s = math.sqrt(45 * 80 / (h * w))
    return math.ceil(min(t, 30) / 4), math.ceil(round(h * s) / 3), math.ceil(round(w * s) / 3)


def cuts(length, size, shifted):
    """(start, end) of the windows along one axis. Regular: 0, size, 2 size, ... Shifted: the first window has length
    size // 2. The last window takes the rest. An axis that is not longer than the window is never cut."""
    first = size // 2 if shifted and size < length else size
    edges = [0] + [e for e in range(first, length, size) if e > 0] + [length]
    return list(zip(edges, edges[1:]))


def windows(grid, shifted):
    """Index slices (t, h, w) of every window. No padding and no wrap-around: windows at the border are smaller."""
    ts, hs, ws = (cuts(n, c, shifted) for n, c in zip(grid, cell(grid)))
    return [(slice(*t), slice(*h), slice(*w)) for w in ws for h in hs for t in ts]


# ---- rotary positions

def rope_freqs(cfg):
    """Frequencies of one axis, float32, the same in all layers. A checkpoint stores them in its own type, perhaps
    rounded (blocks.i.attn.rope.rope.freqs); for exact results the dict must hold these."""
    if cfg.kind == "3b":
        n = cfg.head_dim // 3 // 2                            # 21
        f = 10000.0 ** (-torch.arange(n, dtype=torch.float64) / n)
    else:
        n = cfg.head_dim // 2 // 3 // 2                       # 10
        f = math.pi * torch.linspace(1, 128, n, dtype=torch.float64)
    return f.float()


def video_angles(freqs, size, text_len, cfg):
    """Angles [nt*nh*nw, 3*F] (float64) of a window's tokens; pairs ordered time, height, width.
    Positions restart in every window. 3b: counted from 0, in time from text_len.
    7b: from -1 to 1 over the window's own (possibly clipped) size; -1 where the size is 1."""
    per_axis = []
    for axis, n in enumerate(size):
        i = torch.arange(n, dtype=torch.float64)
        if cfg.kind == "3b":
            pos = i + text_len if axis == 0 else i
        else:
            pos = 2 * i / max(n - 1, 1) - 1
        view = [1, 1, 1, -1]
        view[axis] = n
        per_axis.append((pos[:, None] * freqs.double()).reshape(view).expand(*size, -1))
    return torch.cat(per_axis, -1).flatten(0, 2)


def text_angles(freqs, text_len, cfg):
    """3b: [L, 3*F], the token's index on all three axes. 7b: none, text is not rotated."""
    if cfg.kind == "7b":
        return torch.zeros(text_len, 0, dtype=torch.float64)
    return (torch.arange(text_len, dtype=torch.float64)[:, None] * freqs.double()).repeat(1, 3)


def rotate(x, angles):
    """x [N, heads, head_dim], angles [N, P]: pair p is dims (2p, 2p+1); dims from 2P on are unchanged."""
    n = 2 * angles.shape[-1]
    cos, sin = (f(angles).to(x.dtype)[:, None] for f in (torch.cos, torch.sin))
    a, b = x[..., 0:n:2], x[..., 1:n:2]
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([turned, x[..., n:]], -1)


# ---- attention

def qkv(w, p, branch, z, cfg):
    """[..., D] -> q, k, v, each [..., heads, head_dim]; features ordered (q|k|v, head, dim). q and k are
    RMS-normalised per head with one gain vector for all heads."""
    z = linear(w, f"{p}.proj_qkv.{branch}", z)
    q, k, v = z.reshape(*z.shape[:-1], 3, cfg.heads, cfg.head_dim).unbind(-3)
    q = rms(q, cfg.eps, w[f"{p}.norm_q.{branch}.weight"])
    k = rms(k, cfg.eps, w[f"{p}.norm_k.{branch}.weight"])
    return q, k, v


def attend(q, k, v):
    """Full softmax attention, [N, heads, head_dim] each."""
    q, k, v = (z.transpose(0, 1) for z in (q, k, v))
    a = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), -1) @ v
    return a.transpose(0, 1)


def window_attention(w, p, branches, x, y, shifted, cfg):
    """x [T, H, W, D], y [L, D] -> the same shapes. Each window attends over [its video tokens, all text tokens]. A
    video token gets the result of its window. A text token gets the mean over all windows, in which small windows count
    as much as large ones. Both happen before the output projection."""
    vid, txt = branches
    n_text, freqs = y.shape[0], w[p + ".rope.rope.freqs"]
    xq, xk, xv = qkv(w, p, vid, x, cfg)
    yq, yk, yv = qkv(w, p, txt, y, cfg)
    angles = text_angles(freqs, n_text, cfg)
    yq, yk = rotate(yq, angles), rotate(yk, angles)
    x_out, y_sum = torch.empty_like(xq), torch.zeros_like(yq)
    all_windows = windows(x.shape[:3], shifted)
    for win in all_windows:
        size = xq[win].shape[:3]
        angles = video_angles(freqs, size, n_text, cfg)
        q, k, v = (z[win].flatten(0, 2) for z in (xq, xk, xv))
        q, k = rotate(q, angles), rotate(k, angles)
        a = attend(torch.cat([q, yq]), torch.cat([k, yk]), torch.cat([v, yv]))
        x_out[win] = a[:-n_text].unflatten(0, size)
        y_sum += a[-n_text:]
    return (linear(w, f"{p}.proj_out.{vid}", x_out.flatten(-2)),
            linear(w, f"{p}.proj_out.{txt}", (y_sum / len(all_windows)).flatten(-2)))


# ---- the network

def mlp(w, p, z, cfg):
    if cfg.kind == "3b":
        h = F.silu(linear(w, p + ".proj_in_gate", z)) * linear(w, p + ".proj_in", z)
    else:
        h = F.gelu(linear(w, p + ".proj_in", z), approximate="tanh")
    return linear(w, p + ".proj_out", h)


def mlp_part(w, p, branch, z, time, cfg):
    """z + gate * MLP(modulated norm of z)."""
    ada = f"{p}.ada.{branch}"
    h = mlp(w, f"{p}.mlp.{branch}", modulate(w, ada, rms(z, cfg.eps), "mlp", time), cfg)
    return z + gated(w, ada, h, "mlp", time)


def block(w, i, x, y, time, cfg):
    """x [T, H, W, D], y [L, D] -> the same shapes. Odd layers use the shifted windows. Nothing reads the text output of
    the last layer: only its keys and values matter, and in 3b these come from the norm of y without modulation."""
    p = f"blocks.{i}"
    vid, txt = cfg.branches(i)
    bare_text = cfg.kind == "3b" and i == cfg.layers - 1
    xa = modulate(w, f"{p}.ada.{vid}", rms(x, cfg.eps), "attn", time)
    ya = rms(y, cfg.eps)
    if not bare_text:
        ya = modulate(w, f"{p}.ada.{txt}", ya, "attn", time)
    xa, ya = window_attention(w, p + ".attn", (vid, txt), xa, ya, i % 2 == 1, cfg)
    x = mlp_part(w, p, vid, x + gated(w, f"{p}.ada.{vid}", xa, "attn", time), time, cfg)
    if not bare_text:
        y = mlp_part(w, p, txt, y + gated(w, f"{p}.ada.{txt}", ya, "attn", time), time, cfg)
    return x, y


def head(w, x, time, cfg):
    """[T, H/2, W/2, D] -> [T, 16, H, W]. The 3b head has its own vectors and adds the attn shift and scale of the time
    embedding, as the blocks do: its weights were trained that way."""
    if cfg.kind == "3b":
        m = time[:, SLOT["attn"]]
        x = rms(x, cfg.eps, w["vid_out_norm.weight"])
        x = x * (m[:, SCALE] + w["vid_out_ada.out_scale"]) + (m[:, SHIFT] + w["vid_out_ada.out_shift"])
    return patch_out(w, x)


def forward(w, vid, txt, cfg, t=1000.0, taps=None):
    """vid [T, 33, H, W], txt [L, text_width] -> velocity [T, 16, H, W]. The dict `taps` receives the tensors between
    the layers: vid_in, txt_in, time, block{i}.vid and, except for the last layer, block{i}.txt."""
    note = (lambda **k: None) if taps is None else taps.update
    x, y, time = patch_in(w, vid), linear(w, "txt_in", txt), time_embedding(w, t, cfg)
    note(vid_in=x, txt_in=y, time=time)
    for i in range(cfg.layers):
        x, y = block(w, i, x, y, time, cfg)
        note(**{f"block{i}.vid": x, f"block{i}.txt": y} if i < cfg.layers - 1 else {f"block{i}.vid": x})
    return head(w, x, time, cfg)


# ---- the sampler: one step

def model_input(noise, condition):
    """noise, condition [T, 16, H, W] -> [T, 33, H, W]: noise, condition, ones."""
    return torch.cat([noise, condition, torch.ones_like(noise[:, :1])], 1)


def sample(w, noise, condition, txt, cfg):
    """The restored latent, [T, 16, H, W]. The velocity is noise - x0. The only step goes from t = 1000 (all noise) to
    0. `condition` is the latent of the low-quality clip times vae.Config.scaling_factor; the result has that factor
    too."""
    return noise - forward(w, model_input(noise, condition), txt, cfg, t=1000.0)


# ---- weights

def dit_shapes(cfg):
    """Every tensor of the DiT checkpoint, in order: name -> shape."""
    s, d = {}, cfg.width
    def lin(n, out, into, bias=True):
        s[n + ".weight"] = (out, into)
        if bias: s[n + ".bias"] = (out,)
    lin("vid_in.proj", d, 4 * cfg.channels)
    lin("txt_in", d, cfg.text_width)
    lin("emb_in.proj_in", d, 256); lin("emb_in.proj_hid", d, d); lin("emb_in.proj_out", 6 * d, d)
    inner = cfg.heads * cfg.head_dim
    for i in range(cfg.layers):
        p, sets = f"blocks.{i}", dict.fromkeys(cfg.branches(i))      # ("vid", "txt") or ("all",)
        for b in sets: lin(f"{p}.attn.proj_qkv.{b}", 3 * inner, d, bias=False)
        for b in sets: lin(f"{p}.attn.proj_out.{b}", d, inner)
        for b in sets: s[f"{p}.attn.norm_q.{b}.weight"] = (cfg.head_dim,)
        for b in sets: s[f"{p}.attn.norm_k.{b}.weight"] = (cfg.head_dim,)
        s[f"{p}.attn.rope.rope.freqs"] = tuple(rope_freqs(cfg).shape)
        for b in sets:
            if cfg.kind == "3b":
                lin(f"{p}.mlp.{b}.proj_in_gate", cfg.hidden, d, bias=False)
                lin(f"{p}.mlp.{b}.proj_out", d, cfg.hidden, bias=False)
                lin(f"{p}.mlp.{b}.proj_in", cfg.hidden, d, bias=False)
            else:
                lin(f"{p}.mlp.{b}.proj_in", cfg.hidden, d); lin(f"{p}.mlp.{b}.proj_out", d, cfg.hidden)
        for b in sets:
            for slot in ("attn", "mlp"):
                for what in ("shift", "scale", "gate"): s[f"{p}.ada.{b}.{slot}_{what}"] = (d,)
    if cfg.kind == "3b":
        s["vid_out_norm.weight"] = (d,)
        s["vid_out_ada.out_shift"] = s["vid_out_ada.out_scale"] = (d,)
    lin("vid_out.proj", 4 * cfg.latent, d)
    return s


def dit_tensor(name, shape, seed, cfg):
    """One weight by the formula of weights.py, with two exceptions:
      *_scale (scales of the modulation) : 1 + 0.1 v
      *.rope.freqs                       : rope_freqs(cfg) for every seed
    *_shift and *_gate are 0.1 v, as any vector; norm gains (*.weight) 1 + 0.2 v; biases 0.1 v."""
    if name.endswith(".rope.freqs"):
        return rope_freqs(cfg)
    v = weights.tensor(name, shape, seed)
    if name.endswith("_scale"):
        v = (1.0 + 0.1 * weights.uniform(name, shape[0], seed)).astype(v.dtype)
    return torch.from_numpy(v)


def dit_weights(seed, cfg):
    return {k: dit_tensor(k, v, seed, cfg) for k, v in dit_shapes(cfg).items()}
