"""Colour correction of a restored clip by its input."""
import torch

# content: the result of the network; style: the resized input. Both [T,3,H,W] in [-1,1], the T frames of one slice
# (Batch.write). wavelet and adain treat frames one by one. lab, hsv and wavelet_adaptive match statistics over the
# whole slice: their result depends on the slices, and they need all T frames.

def blur(x, r):
    """Weights 1 2 1 (/4) along both axes, taps r pixels apart, edges repeated. r is at most an eighth of the
    shorter edge and at least 1."""
    r = min(r, max(1, min(x.shape[-2:]) // 8))
    for axis in (-2, -1):
        i = torch.arange(x.shape[axis])
        before, after = (x.index_select(axis, (i + d).clamp(0, len(i) - 1)) for d in (-r, r))
        x = (before + 2 * x + after) / 4
    return x


def low_band(x):
    """The result of five blurs of doubling reach; x - low_band(x) is the sum of the five wavelet bands."""
    for r in (1, 2, 4, 8, 16):
        x = blur(x, r)
    return x


def wavelet(content, style):
    """The detail of the content on the low band of the style."""
    return (content - low_band(content) + low_band(style)).clamp(-1, 1)


def adain(content, style):
    """Each frame and channel gets the mean and standard deviation of the style. Not clamped."""
    def stats(x):
        return x.mean((2, 3), keepdim=True), torch.sqrt(x.var((2, 3), keepdim=True, unbiased=True) + 1e-5)
    (mc, sc), (ms, ss) = stats(content), stats(style)
    return (content - mc) / sc * ss + ms


def rank_match(values, target):
    """Gives `values` (any shape) the distribution of `target`: the i-th smallest value becomes the i-th smallest of
    `target`, or the floor(i (m-1) / (n-1))-th if target has m elements and values n. Equal values rank in memory order.
    (The public implementation ranks them in no defined order; where a channel was clipped, many pixels are equal. Its
    float32 indices can also be off by one.)"""
    order = torch.sort(values.flatten(), stable=True).indices
    sorted_target = torch.sort(target.flatten()).values
    n, m = len(order), len(sorted_target)
    out = torch.empty_like(values.flatten())
    out[order] = sorted_target[torch.arange(n) * (m - 1) // max(n - 1, 1)]
    return out.reshape(values.shape)


def unit(x):
    """[-1,1] -> [0,1], clamped."""
    return ((x + 1) / 2).clamp(0, 1)


RGB_TO_XYZ = [[0.4124564, 0.3575761, 0.1804375],
              [0.2126729, 0.7151522, 0.0721750],
              [0.0193339, 0.1191920, 0.9503041]]
XYZ_TO_RGB = [[3.2404542, -1.5371385, -0.4985314],
              [-0.9692660, 1.8760108, 0.0415560],
              [0.0556434, -0.2040259, 1.0572252]]
WHITE = [0.95047, 1.0, 1.08883]          # D65
KNEE, KAPPA = 6 / 29, (29 / 3) ** 3


def mix(matrix, x):
    return torch.einsum("ij,tjhw->tihw", torch.tensor(matrix, dtype=x.dtype), x)


def white(x): return torch.tensor(WHITE, dtype=x.dtype)[:, None, None]


def to_lab(x):
    """sRGB in [0,1] -> CIE L*a*b*, [T,3,H,W]."""
    x = torch.where(x > 0.04045, ((x + 0.055) / 1.055) ** 2.4, x / 12.92)
    x = mix(RGB_TO_XYZ, x) / white(x)
    fx, fy, fz = torch.where(x > KNEE ** 3, x ** (1 / 3), (KAPPA * x + 16) / 116).unbind(1)
    return torch.stack([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)], 1)


def from_lab(x):
    """CIE L*a*b* -> sRGB, clamped to [0,1]."""
    l, a, b = x.unbind(1)
    fy = (l + 16) / 116
    f = torch.stack([fy + a / 500, fy, fy - b / 200], 1)
    x = mix(XYZ_TO_RGB, torch.where(f > KNEE, f ** 3, (116 * f - 16) / KAPPA) * white(x))
    x = torch.where(x > 0.0031308, 1.055 * x.clamp(min=0) ** (1 / 2.4) - 0.055, 12.92 * x)
    return x.clamp(0, 1)


def lab(content, style):
    """After `wavelet`: a and b get the distribution of the style over the slice, L moves a fifth of the way. Grey
    pixels differ in a and b by rounding alone. Where the style has fewer greys than the content, rounding decides which
    of them get a colour."""
    x, y = to_lab(unit(wavelet(content, style))), to_lab(unit(style))
    l = 0.8 * x[:, 0] + 0.2 * rank_match(x[:, 0], y[:, 0])
    a, b = (rank_match(x[:, k], y[:, k]) for k in (1, 2))
    return from_lab(torch.stack([l, a, b], 1)) * 2 - 1


def to_hsv(x):
    """[T,3,H,W] in [0,1] -> hue in [0,1), saturation, value, each [T,H,W]. Of equal channels the last one
    counts as the largest. A grey has hue 0."""
    r, g, b = x.unbind(1)
    top, span = x.amax(1), x.amax(1) - x.amin(1)
    d = torch.where(span > 1e-10, span, 1)
    hue = torch.where(top == r, (g - b) / d % 6, 0)
    hue = torch.where(top == g, (b - r) / d + 2, hue)
    hue = torch.where(top == b, (r - g) / d + 4, hue)
    hue = torch.where(span > 1e-10, hue, 0) / 6
    return hue, torch.where(top > 1e-10, span / top.clamp(min=1e-10), 0), top


def from_hsv(h, s, v):
    """-> [T,3,H,W]: each channel is v less v*s times a trapezoid of the hue."""
    def channel(offset):
        k = (offset + 6 * h) % 6
        return v - v * s * torch.minimum(k, 4 - k).clamp(0, 1)
    return torch.stack([channel(5), channel(3), channel(1)], 1).clamp(0, 1)


def hsv(content, style):
    """Hue and value are unchanged. Saturation gets the distribution of the style within each of 12 bands of hue where
    both have more than 100 pixels in the slice. Band 0 includes band 11; the match of band 11 then overrides it."""
    h, s, v = to_hsv(unit(content))
    style_h, style_s, _ = to_hsv(unit(style))
    new = s.clone()
    for k in range(12):
        inside = lambda q: (q >= k / 12) & (q < (k + 1) / 12) | ((q >= 11 / 12) if k == 0 else False)
        mine, theirs = inside(h), inside(style_h)
        if mine.sum() > 100 and theirs.sum() > 100:
            new[mine] = rank_match(s[mine], style_s[theirs])
    return from_hsv(h, new, v) * 2 - 1


def wavelet_adaptive(content, style):
    """`wavelet`, mixed with `hsv` where the result of wavelet is clearly more saturated than the style. The share of
    `hsv` grows with the saturation of the content above the style."""
    w, h = wavelet(content, style), hsv(content, style)
    sat = lambda x: to_hsv(unit(x))[1][:, None]
    share = torch.sigmoid(5 * (sat(content) - sat(style) - 0.15))
    share = torch.where(sat(w) - sat(style) > 0.075, share, 0)
    return w * (1 - share) + h * share


COLOR = {"lab": lab, "wavelet": wavelet, "wavelet_adaptive": wavelet_adaptive, "hsv": hsv, "adain": adain,
         "none": lambda content, style: content}
