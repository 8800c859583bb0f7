"""Golden files of quantised matrices, as ComfyUI stores them, beside the values that they stand for.

Every file has matrices `NAME.weight` with their scales and descriptions, and `expected.NAME` in F32. Values are decoded
from the stored bytes here, with tables, explicit matrices and reshapes instead of the index arithmetic of the engine.
Needs numpy alone.
"""
import json
import math

import numpy as np
import weights

F8_MAX, F4_MAX = 448.0, 6.0
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])
TYPES = {np.dtype("f4"): "F32", np.dtype("i1"): "I8", np.dtype("u1"): "U8"}


def minifloat(exponents, mantissas, bias, byte):
    """Value of a float with a sign, an exponent and a mantissa; the caller knows its special values."""
    sign = -1.0 if byte >> (exponents + mantissas) & 1 else 1.0
    exponent, mantissa = byte >> mantissas & (1 << exponents) - 1, byte & (1 << mantissas) - 1
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissas)
    return sign * (1 + mantissa / (1 << mantissas)) * 2.0 ** (exponent - bias)


E4M3 = np.array([math.nan if b & 127 == 127 else minifloat(4, 3, 7, b) for b in range(256)])
E5M2 = np.array([math.nan if b & 127 > 123 else minifloat(5, 2, 15, b) for b in range(256)])
E8M0 = np.array([0.0] + [2.0 ** (b - 127) for b in range(1, 255)] + [math.nan])


def nearest(table, values):
    """Index of the nearest value of a table, which may have NaN."""
    table = np.where(np.isnan(table), np.inf, table)
    return np.abs(values.reshape(-1, 1) - table).argmin(1).astype(np.uint8).reshape(values.shape)


def single(values):
    """Exact values rounded once to F32."""
    return np.asarray(values, np.float64).astype(np.float32)


def hadamard(size):
    """The matrix of ConvRot without its factor: a Kronecker power of a symmetric 4x4 matrix."""
    h4, h = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]]), np.ones((1, 1), int)
    while len(h) < size:
        h = np.kron(h, h4)
    return h


def padded(array, rows, columns):
    r, c = array.shape
    return np.pad(array, ((0, -r % rows), (0, -c % columns)))


def tiled(scales):
    """Scales of blocks in tiles of 128 rows and four columns, as tensor cores read them."""
    scales = padded(scales, 128, 4)
    rows, columns = scales.shape
    tiles = scales.reshape(rows // 128, 4, 32, columns // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(tiles).reshape(rows, columns)


def fp8(values, table, name, scale):
    """`scale` is a number, or one per row."""
    scale = single(scale)
    stored = nearest(table, values / scale)
    return {"weight": (name, stored), "weight_scale": scale}, single(table[stored] * scale.astype(np.float64))


def int8(values, rows, group=None):
    if group:
        h = hadamard(group) / math.sqrt(group)
        values = (values.reshape(len(values), -1, group) @ h).reshape(values.shape)
    largest = np.abs(values).max(1, keepdims=True) if rows else np.abs(values).max()
    scale = single(np.maximum(largest / 127, 1e-30))
    stored = np.clip(np.round(values / scale), -128, 127).astype(np.int8)
    stored[0, 0] = -128
    expected, factor = stored.astype(np.int64), scale.astype(np.float64)
    if group:
        expected = (expected.reshape(len(values), -1, group) @ hadamard(group)).reshape(values.shape)
        factor = factor / math.sqrt(group)
    return {"weight": stored, "weight_scale": scale}, single(expected * factor)


def mxfp8(values, scale_type):
    values = padded(values, 32, 32)
    blocks = values.reshape(len(values), -1, 32)
    largest = np.abs(blocks).max(2)
    exponents = np.where(largest > 0, np.ceil(np.log2(np.maximum(largest, 1e-30) / F8_MAX)) + 127, 0).astype(np.uint8)
    stored = nearest(E4M3, blocks / np.where(largest > 0, E8M0[exponents], 1)[:, :, None])
    expected = (E4M3[stored] * E8M0[exponents][:, :, None]).reshape(values.shape)
    return {"weight": ("F8_E4M3", stored.reshape(values.shape)),
            "weight_scale": (scale_type, tiled(exponents))}, single(expected)


def nvfp4(values, scale_type):
    values = padded(values, 16, 16)
    second = single(np.abs(values).max() / (F8_MAX * F4_MAX))
    blocks = values.reshape(len(values), -1, 16)
    scales = nearest(E4M3, np.minimum(np.abs(blocks).max(2) / F4_MAX / second, F8_MAX))
    # The product of the scales is rounded, then the product with a value.
    scale = single(E4M3[scales] * np.float64(second))[:, :, None]
    scaled = np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale != 0)
    nibbles = nearest(E2M1, np.abs(scaled)) | (scaled < 0).astype(np.uint8) * 8
    signed = E2M1[nibbles & 7] * np.where(nibbles & 8, -1.0, 1.0)
    expected = single(signed * scale.astype(np.float64)).reshape(values.shape)
    flat = nibbles.reshape(values.shape)
    return {"weight": flat[:, ::2] << 4 | flat[:, 1::2], "weight_scale": (scale_type, tiled(scales)),
            "weight_scale_2": second}, expected


def description(tensors, **fields):
    text = json.dumps(fields).encode()
    return {**tensors, "comfy_quant": np.frombuffer(text, np.uint8)}


def write(out, name, matrices, metadata=None, extra=None, prefix=""):
    """A safetensors file. An array has its own type; a pair names the type of bytes."""
    tensors = dict(extra or {})
    for base, (stored, expected) in matrices.items():
        tensors |= {f"{prefix}{base}.{end}": tensor for end, tensor in stored.items()}
        tensors[f"expected.{base}"] = expected
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for key, tensor in sorted(tensors.items()):
        kind, array = tensor if isinstance(tensor, tuple) else (TYPES[tensor.dtype], tensor)
        content = np.ascontiguousarray(array).tobytes()
        header[key] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (out / f"{name}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    print(name, ", ".join(f"{base} {expected.shape}" for base, (_, expected) in matrices.items()), len(data), "bytes")


def matrix(name, rows, columns, seed):
    """Values of very different sizes, with a row and a block of zeros."""
    values = weights.uniform(name, rows * columns, seed).reshape(rows, columns)
    values *= 2.0 ** (np.arange(rows).reshape(-1, 1) % 7 - 3)
    values[rows // 2] = 0
    values[0, :32] = 0
    return values


def make(out, seed):
    of = lambda name, rows, columns: matrix(name, rows, columns, seed)
    e4m3 = lambda name, shape, scale: fp8(of(name, *shape), E4M3, "F8_E4M3", scale)
    e5m2 = lambda name, shape, scale: fp8(of(name, *shape), E5M2, "F8_E5M2", scale)
    rows = lambda count: (np.arange(count).reshape(-1, 1) + 1) / 300.0
    write(out, "fp8", {
        "one": (lambda t, e: (description(t, format="float8_e4m3fn"), e))(*e4m3("one", (5, 128), 0.0123)),
        "rows": (lambda t, e: (description(t, format="float8_e4m3fn"), e))(*e4m3("rows", (6, 256), rows(6))),
        "odd": (lambda t, e: (description(t, format="float8_e5m2"), e))(*e5m2("odd", (3, 7), 0.7)),
    })
    old = lambda name, made: {name: ({end.replace("weight_scale", "scale_weight"): t for end, t in made[0].items()}
                                     | {"scale_input": single([2.5])}, made[1])}
    write(out, "fp8_scaled", old("a", e4m3("a", (4, 128), [0.031])) | old("b", e5m2("b", (3, 64), [4.2])),
          prefix="model.diffusion_model.",
          extra={"model.diffusion_model.scaled_fp8": ("F8_E4M3", np.zeros(0, np.uint8))})
    layers = {name: {"format": "float8_e4m3fn"} for name in ("model.diffusion_model.c", "text_encoder.d")}
    write(out, "fp8_metadata", {"c": e4m3("c", (4, 128), 0.031)}, prefix="model.diffusion_model.",
          metadata={"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})})
    plain = lambda t, e: (description(t, format="int8_tensorwise"), e)
    rotated = lambda size, t, e: (
        description(t, format="int8_tensorwise", convrot=True, convrot_groupsize=size), e)
    nested = lambda size, t, e: (
        description(t, format="int8_tensorwise", params={"convrot": True, "convrot_groupsize": size}), e)
    write(out, "int8", {
        "one": plain(*int8(of("one", 7, 33), False)),
        "rows": plain(*int8(of("rows", 7, 33), True)),
        "rotated_256": rotated(256, *int8(of("rotated_256", 9, 512), True, 256)),
        "rotated_16": rotated(16, *int8(of("rotated_16", 3, 48), True, 16)),
        "rotated_64": nested(64, *int8(of("rotated_64", 5, 192), False, 64)),
    })
    mx = lambda t, e: (description(t, format="mxfp8"), e)
    write(out, "mxfp8", {
        "tiles": mx(*mxfp8(of("tiles", 160, 128), "U8")),
        "odd": mx(*mxfp8(of("odd", 37, 70), "F8_E8M0")),
        "wide": mx(*mxfp8(of("wide", 3, 640), "U8")),
    })
    nv = lambda t, e: (description(t, format="nvfp4"), e)
    write(out, "nvfp4", {
        "tiles": nv(*nvfp4(of("tiles", 144, 128), "F8_E4M3")),
        "odd": nv(*nvfp4(of("odd", 21, 70), "U8")),
        "wide": nv(*nvfp4(of("wide", 3, 640), "F8_E4M3")),
    })
