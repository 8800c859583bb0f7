"""Antialiased bicubic resize, the filter of the public implementation."""
import torch


def cubic(x, a=-0.5):
    x = abs(x)
    if x < 1: return ((a + 2) * x - (a + 3)) * x * x + 1
    if x < 2: return a * (((x - 5) * x + 8) * x - 4)
    return 0.0


def resize_matrix(n_in, n_out):
    """[n_out, n_in], float64: antialiased bicubic along one axis. Pixel centres are at i + 1/2. When the axis shrinks,
    the kernel is stretched by the ratio. Pixels outside the image have no weight; the other weights are scaled to sum
    to one."""
    ratio = n_in / n_out
    stretch = max(ratio, 1.0)
    m = torch.zeros(n_out, n_in, dtype=torch.float64)
    for i in range(n_out):
        centre = ratio * (i + 0.5)
        lo = max(int(centre - 2 * stretch + 0.5), 0)
        hi = min(int(centre + 2 * stretch + 0.5), n_in)
        row = [cubic((j + 0.5 - centre) / stretch) for j in range(lo, hi)]
        m[i, lo:hi] = torch.tensor(row, dtype=torch.float64) / sum(row)
    return m


def resize(x, size):
    """[..., H, W] -> [..., *size]; the result can leave the range of the input. (The public implementation computes the
    weights in float32, at coordinates off by up to 1e-7 of the edge: for large images its values are off by 1e-4.)"""
    rows, cols = (resize_matrix(n, m).to(x.dtype) for n, m in zip(x.shape[-2:], size))
    return rows @ x @ cols.T
