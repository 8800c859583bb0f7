"""Two exact transformations of the VAE that need fewer multiplications. `python3 shortcuts.py` compares both with
vae.py in float64 and prints the largest differences.

1. Head folding. At the start of a clip a causal 3x3x3 convolution reads copies of frame 0:
     out[0] = (K0+K1+K2) * x[0]                     one 3x3 tap set instead of three
     out[1] = (K0+K1) * x[0] + K2 * x[1]            two instead of three
   A single image then costs one third of the work in every temporal convolution.

2. Composite upsampling. upscale_conv (1x1x1, C -> 4C or 8C), the pixel shuffle and the 3x3x3 convolution are linear, so
   each output phase is one small convolution of the LOW-resolution input. Along a doubled axis the three
   high-resolution taps of phase 0 read low-resolution i-1, i, i and the taps of phase 1 read i, i, i+1: two
   low-resolution taps per axis instead of three. Space only: 2*2*3 = 12 tap sets per output pixel instead of 27 + 1.
   Space and time: 8 instead of 28. The weights are merged once, at load. The bias of upscale_conv is absent from the
   zero padding, so the merged bias differs on the border of the plane (9 cases per phase).
   Time, causal: with prev and cur the previous and the current low-resolution frame,
     phase 0 (t = 2k):   prev: K0.U[z0] + K1.U[z1]     cur: K2.U[z0]
     phase 1 (t = 2k+1): prev: K0.U[z1]                cur: K1.U[z0] + K2.U[z1]
   The first low-resolution frame of a clip yields one frame (its z1 is dropped): where it is prev, U[z0] replaces
   U[z1], and its own output is the folded head.
"""
import itertools
import torch
import torch.nn.functional as F
import vae

# (phase, tap offset -1/0/+1) -> (low-resolution offset, sub-position)
AXIS = {(0, -1): (-1, 1), (0, 0): (0, 0), (0, 1): (0, 1),
        (1, -1): (0, 0), (1, 0): (0, 1), (1, 1): (1, 0)}


def merge(w, p, time, head=False):
    """Weights by phase, [C_out, C_in, kt, 2, 2] on the low-resolution grid (prev and cur for time). `head`: prev is the
    first frame of the clip."""
    K = w[p + ".conv.weight"]
    U = w[p + ".upscale_conv.weight"][:, :, 0, 0, 0]
    c = K.shape[0]
    z = 2 if time else 1
    U = U.reshape(2, 2, z, c, c)
    out = {}
    for px, py, pz in itertools.product(range(2), range(2), range(z)):
        M = torch.zeros(c, c, 2 if time else 3, 2, 2, dtype=K.dtype)
        for dt, dy, dx in itertools.product(range(3), (-1, 0, 1), (-1, 0, 1)):
            (ay, sy), (ax, sx) = AXIS[px, dy], AXIS[py, dx]
            ty, tx = ay + (1 if px == 0 else 0), ax + (1 if py == 0 else 0)
            if time:
                hi = pz + dt - 2                       # -2, -1 -> prev z0, z1 ; 0, 1 -> cur z0, z1
                tt, sz = (0, hi + 2) if hi < 0 else (1, hi)
                if head and tt == 0: sz = 0
            else:
                tt, sz = dt, 0
            M[:, :, tt, ty, tx] += K[:, :, dt, dy + 1, dx + 1] @ U[sy, sx, sz]
        out[px, py, pz] = M
    return out


def bias_field(w, p, time, H, W):
    """The bias of upscale_conv after the pixel shuffle, [z, C, 2H, 2W]. Its 3x3x3 convolution, with zeros outside the
    plane, is the bias of the output: constant inside, different on the border."""
    K, b = w[p + ".conv.weight"], w[p + ".upscale_conv.bias"]
    c, z = K.shape[0], 2 if time else 1
    pat = b.reshape(2, 2, z, c).permute(2, 3, 0, 1)                     # z, c, x, y
    return pat.repeat(1, 1, H, W)                                       # z, c, 2H, 2W


def composite_upsample_steady(w, p, x_prev, x, time):
    """Low-resolution frames x after the cached frames x_prev (1 if time, else 2), inside a clip."""
    z, (H, W) = (2 if time else 1), x.shape[-2:]
    ws = merge(w, p, time)
    lo = torch.cat([x_prev, x])
    c = x.shape[1]
    out = torch.zeros(x.shape[0] * z, c, 2 * H, 2 * W, dtype=x.dtype)
    for (px, py, pz), M in ws.items():
        pad = (1 if py == 0 else 0, 1 if py == 1 else 0, 1 if px == 0 else 0, 1 if px == 1 else 0)
        y = F.conv3d(F.pad(lo, pad).transpose(0, 1)[None], M)[0].transpose(0, 1)
        out[pz::z, :, px::2, py::2] = y
    pat = bias_field(w, p, time, H, W)
    seq = pat.repeat(3, 1, 1, 1)[-(2 + z):] if time else pat.repeat(3, 1, 1, 1)
    b = F.conv3d(seq.transpose(0, 1)[None], w[p + ".conv.weight"], w[p + ".conv.bias"], padding=(0, 1, 1))
    return out + b[0].transpose(0, 1).repeat(x.shape[0], 1, 1, 1)


def main():
    torch.manual_seed(0)
    d = torch.float64
    c, p = 6, "u"
    for time in (False, True):
        z = 2 if time else 1
        w = {p + ".upscale_conv.weight": torch.randn(4 * z * c, c, 1, 1, 1, dtype=d),
             p + ".upscale_conv.bias": torch.randn(4 * z * c, dtype=d),
             p + ".conv.weight": torch.randn(c, c, 3, 3, 3, dtype=d), p + ".conv.bias": torch.randn(c, dtype=d)}
        x = torch.randn(7, c, 5, 4, dtype=d)
        st = vae.State()
        vae.upsample(w, p, x[:4], st, time)
        st.started = True
        want = vae.upsample(w, p, x[4:], st, time)
        got = composite_upsample_steady(w, p, x[3:4] if time else x[2:4], x[4:], time)
        print("composite upsample", "space+time" if time else "space", float((got - want).abs().max()))
    w = {"k.weight": torch.randn(c, c, 3, 3, 3, dtype=d), "k.bias": torch.randn(c, dtype=d)}
    x = torch.randn(2, c, 5, 4, dtype=d)
    want = vae.causal_conv(w, "k", x, vae.State())
    K = w["k.weight"]
    f0 = F.conv2d(x[:1], K.sum(2), w["k.bias"], padding=1)
    f1 = F.conv2d(x[:1], K[:, :, 0] + K[:, :, 1], None, padding=1)
    f1 = f1 + F.conv2d(x[1:], K[:, :, 2], w["k.bias"], padding=1)
    print("head folding", float((torch.cat([f0, f1]) - want).abs().max()))


if __name__ == "__main__":
    main()
