"""Inputs that the check makes itself, and the comparison of outputs."""
import array
import json
import math
import mmap
import random
import struct
import threading

from . import command


def latents(folder, size, frames):
    """A file of random latents: zeros would run faster than real data."""
    path = folder / f"latents_{size}_{frames}.safetensors"
    if path.exists():
        return path
    shape = [1 + (frames - 1) // 4, 16, *(int(n) // 8 for n in reversed(size.split("x")))]
    count, draw = math.prod(shape), random.Random(1).uniform
    values = array.array("f", (draw(-1.7, 1.7) for _ in range(count)))
    header = json.dumps({"input": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * count]}}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + values.tobytes())
    return path


def clip(folder, frames):
    """A y4m file of 640x360 with a slow gradient: one shot."""
    path = folder / f"clip_{frames}.y4m"
    with path.open("wb") as out:
        out.write(b"YUV4MPEG2 W640 H360 F25:1 Ip A1:1 C444\n")
        for t in range(frames):
            row = bytes((x // 3 + 2 * t) % 200 + 20 for x in range(640))
            out.write(b"FRAME\n" + row * 360 + bytes([120]) * (640 * 360) + bytes([136]) * (640 * 360))
    return path


def decode(args, folder, size, frames, *more, device=None):
    """At most a million values of a decoded clip, evenly spread, and the peak GPU memory in GiB."""
    path, out = latents(folder, size, frames), folder / f"decoded_{threading.get_ident()}.safetensors"
    words = [args.reseed, "vae", "decode", path, out, "--weights", "formula:full", "--device", device or args.device]
    with command.PeakMemory(args.memory) as memory:
        command.output([*words, *more])
    with out.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = 8 + struct.unpack("<Q", data[:8])[0]
        step = max(1, (len(data) - start) // 4_000_012)
        values = array.array("f", memoryview(data)[start:].cast("f")[::step])
    out.unlink()
    return values, memory.gib


def error_of(a, b):
    """Root mean square of a - b and of a."""
    mean = lambda values: (sum(values) / len(a)) ** 0.5
    return mean((x - y) ** 2 for x, y in zip(a, b)), mean(x * x for x in a)


def decibels(error):
    """PSNR for a range of 4."""
    return math.inf if error == 0 else 20 * math.log10(4 / error)
