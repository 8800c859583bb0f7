"""Restores and upscales video with SeedVR2-family models.

>>> import reseed
>>> session = reseed.Session("formula:tiny", device="cpu")
>>> frames = reseed.Frames.zeros((2, 16, 24, 3))
>>> session.upscale_frames(frames, scale=2)
Frames(shape=(2, 32, 48, 3), dtype='uint8')

``Session.upscale`` restores a file, ``Session.upscale_frames`` arrays in memory: numpy arrays, torch tensors, PIL
images, paths, and lists of them. Results are ``Frames``: ``.numpy()`` and ``.torch()`` share their memory.
"""

from . import models
from ._errors import (
    Cancelled,
    DeviceError,
    InputError,
    MemoryError,
    ModelError,
    ReseedError,
    ReseedWarning,
    UsageError,
)
from ._reseed import CancelToken, Event, Frames, __version__, doctor, read_frames
from ._session import Latent, Session, Vae
from ._types import Estimate, FileSettings, Memory, Report, Settings

__all__ = [
    "CancelToken",
    "Cancelled",
    "DeviceError",
    "Estimate",
    "Event",
    "FileSettings",
    "Frames",
    "InputError",
    "Latent",
    "Memory",
    "MemoryError",
    "ModelError",
    "Report",
    "ReseedError",
    "ReseedWarning",
    "Session",
    "Settings",
    "UsageError",
    "Vae",
    "__version__",
    "doctor",
    "models",
    "read_frames",
]
