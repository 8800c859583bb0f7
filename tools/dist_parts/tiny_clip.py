"""Upscales a tiny clip in memory, and one in a file, with the model that is part of the Python package."""
import pathlib
import sys

import numpy
import reseed

session = reseed.Session("nano", device="cpu")
clip = (numpy.arange(2 * 8 * 12 * 3) % 251).astype("uint8").reshape(2, 8, 12, 3)
large = session.upscale_frames(clip, scale=2).numpy()
if large.shape != (2, 16, 24, 3) or large.dtype != clip.dtype or large.min() == large.max():
    sys.exit(f"wrong frames: {large.shape} of {large.dtype}, {large.min()} to {large.max()}")

frame = b"FRAME\n" + bytes(range(16, 112)) + bytes([128] * 48)
pathlib.Path("small.y4m").write_bytes(b"YUV4MPEG2 W12 H8 F25:1 Ip A1:1 C420jpeg\n" + 2 * frame)
report = session.upscale("small.y4m", "large.y4m", scale=2)
if report.frames != 2 or report.size != (24, 16):
    sys.exit(f"a wrong file: {report}")

version = ".".join(map(str, sys.version_info[:3]))
print(f"reseed {reseed.__version__} in Python {version} with numpy {numpy.__version__}: a tiny clip is upscaled")
