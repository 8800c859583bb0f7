"""Sessions, frames and files that the tests share. The command is the one of the installed package."""

import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import reseed

# The files of the embedded model, as a user could have them.
UNPACKED = tempfile.TemporaryDirectory(prefix="reseed-nano-")
ASSETS = Path(UNPACKED.name)
subprocess.run([sys.executable, Path(__file__).resolve().parents[3] / "tools/nano", "unpack", ASSETS], check=True)
# Upper guard of everything that could hang.
PATIENCE = 120

# A shell lets its background jobs ignore Ctrl-C, and Python keeps to that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def session():
    """A tiny model with weights by a formula."""
    return reseed.Session("formula:tiny", device="cpu", threads=1)


def clip(frames=7, height=16, width=24, channels=3, dtype="uint8"):
    """Frames with smooth motion."""
    t, y, x, c = np.meshgrid(*(np.arange(n) for n in (frames, height, width, channels)), indexing="ij")
    values = 0.5 + 0.3 * np.sin(0.4 * x + 0.3 * t + c) + 0.15 * np.cos(0.5 * y - 0.2 * t)
    if dtype.startswith("float"):
        return values.astype(dtype)
    top = np.iinfo(dtype).max
    return np.round(values * top).astype(dtype)


def long_clip():
    """Frames that keep the tiny model busy until somebody stops it."""
    return clip(frames=800, height=32, width=48)


def write_png(path, frame):
    """Writes an image of 8 bits without filters."""
    height, width, channels = frame.shape
    rows = b"".join(b"\0" + row.tobytes() for row in frame)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def write_folder(path, frames):
    """Writes frames as a folder of PNG images."""
    path.mkdir()
    for i, frame in enumerate(frames):
        write_png(path / f"{i:04d}.png", frame)
    return path


def write_y4m(path, frames):
    """Writes the red channel of frames as grey video."""
    _, height, width, _ = frames.shape
    header = f"YUV4MPEG2 W{width} H{height} F25:1 Ip Cmono\n".encode()
    path.write_bytes(header + b"".join(b"FRAME\n" + frame[..., 0].tobytes() for frame in frames))
    return path


def command(*args, code=0, **options):
    """Runs the console command of the package."""
    program = Path(sys.executable).with_name("reseed")
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=PATIENCE, **options)
    assert done.returncode == code, done.stderr
    return done


def python(code, **options):
    """Runs a program in another interpreter."""
    env = {**os.environ, **options.pop("env", {})}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, env=env)


@pytest.fixture
def ffmpeg():
    """Skips where ffmpeg is missing."""
    found = shutil.which("ffmpeg")
    if found is None:
        pytest.skip("ffmpeg is not installed")
    return found
