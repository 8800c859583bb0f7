"""What callers give as frames: arrays, images, paths, and lists of them."""

from __future__ import annotations

import os
from typing import Any

from . import _reseed

# Modes of PIL images that are arrays of 1, 3 or 4 channels as they are.
_PLAIN = {"L", "RGB", "RGBA", "I;16"}
# Modes with transparency.
_CLEAR = {"LA", "PA", "La", "RGBa"}
# Formats of memory views by the type strings of numpy.
_FORMATS = {"B": "|u1", "H": "<u2", "e": "<f2", "f": "<f4"}
# Devices of DLPack.
_CPU, _CUDA, _CUDA_HOST = 1, 2, 3


class _Bytes:
    """A copy of an object with a buffer, as an array."""

    def __init__(self, view: memoryview[Any]) -> None:
        typestr = _FORMATS.get(view.format.lstrip("@=<"), "|" + view.format)
        self.__array_interface__ = {"version": 3, "shape": view.shape, "typestr": typestr, "data": view.tobytes()}


def arrays(frames: Any, gpu: int | None) -> tuple[list[Any], bool]:
    """The arrays of some frames, in host memory or on this GPU, and whether they were given as a list."""
    if isinstance(frames, (list, tuple)):
        items: list[Any] = list(frames)  # pyright: ignore[reportUnknownArgumentType]
        return [_array(item, gpu) for item in items], True
    return [_array(frames, gpu)], False


def _array(item: Any, gpu: int | None) -> Any:
    """An object with ``__array_interface__``, or with ``__dlpack__`` in host memory or on this GPU."""
    if isinstance(item, (str, os.PathLike)):
        return _reseed.read_frames(os.fspath(item))  # pyright: ignore[reportUnknownArgumentType]
    if hasattr(item, "getbands") and hasattr(item, "convert"):
        return _image(item)
    if hasattr(item, "__array_interface__"):
        return item
    if hasattr(item, "__dlpack__"):
        return _tensor(item, gpu)
    try:
        return _Bytes(memoryview(item))
    except TypeError:
        # The engine reports what it is.
        return item


def _tensor(item: Any, gpu: int | None) -> Any:
    if getattr(item, "requires_grad", False):
        item = item.detach()
    device, number = item.__dlpack_device__()
    in_place = device in (_CPU, _CUDA_HOST) or (device == _CUDA and number == gpu)
    return item if in_place or not hasattr(item, "cpu") else item.cpu()


def _image(image: Any) -> Any:
    if image.mode in _PLAIN:
        return image
    clear = image.mode in _CLEAR or "transparency" in image.info
    if image.mode in ("I", "F"):
        # Their range is not known; numpy arrays say what they mean.
        from ._errors import InputError

        raise InputError(f"a PIL image of mode {image.mode}; convert it to RGB, or give an array of floats in 0 to 1")
    if image.mode == "1":
        return image.convert("L")
    return image.convert("RGBA" if clear else "RGB")
