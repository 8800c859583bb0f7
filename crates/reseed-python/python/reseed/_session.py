"""A model on its device, and jobs on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from . import _inputs, _reseed
from ._reseed import CancelToken, Frames
from ._types import Estimate, FileSettings, Memory, Path, Progress, Report, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Latent:
    """The latent of a clip, an array ``[T, h, w, C]`` of float32, with what decoding needs to restore the clip's
    length and size."""

    def __init__(self, values: Frames, extent: tuple[int, int, int, str]) -> None:
        self._values, self._extent = values, extent

    @property
    def shape(self) -> tuple[int, ...]:
        """Latent frames, rows, columns and channels."""
        return self._values.shape

    @property
    def dtype(self) -> str:
        """``"float32"``."""
        return self._values.dtype

    @property
    def frames(self) -> int:
        """Frames of the clip."""
        return self._extent[0]

    @property
    def height(self) -> int:
        """Height of the clip's frames."""
        return self._extent[1]

    @property
    def width(self) -> int:
        """Width of the clip's frames."""
        return self._extent[2]

    @property
    def device(self) -> str:
        """``"cpu"``, or ``"cuda:0"`` and so on for the latent of CUDA tensors."""
        return self._values.device

    def cpu(self) -> Latent:
        """The latent in host memory."""
        return Latent(self._values.cpu(), self._extent)

    def numpy(self) -> Any:
        """The latent as a numpy array, without a copy unless it is in GPU memory."""
        return self._values.numpy()

    def torch(self) -> Any:
        """The latent as a torch tensor on its device, without a copy."""
        return self._values.torch()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._values.__array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._values.__dlpack_device__()

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Latent(shape={self.shape}, frames={self.frames}, height={self.height}, width={self.width})"


class Vae:
    """The VAE of a session by itself: frames to latents and back.

    >>> import reseed
    >>> vae = reseed.Session("formula:tiny", device="cpu").vae
    >>> latent = vae.encode(reseed.Frames.zeros((5, 16, 24, 3)))
    >>> latent
    Latent(shape=(2, 2, 3, 16), frames=5, height=16, width=24)
    >>> vae.decode(latent)
    Frames(shape=(5, 16, 24, 3), dtype='uint8')
    """

    def __init__(self, session: _reseed.Session) -> None:
        self._session = session

    def encode(self, frames: Any, *, progress: Progress | None = None, cancel: CancelToken | None = None) -> Latent:
        """Encodes the frames of one clip. Alpha is ignored.

        CUDA tensors on the session's GPU are read in place, and their latent is on that GPU.
        """
        arrays, _ = _inputs.arrays(frames, self._session.gpu)
        values, extent = _reseed.encode(self._session, arrays, progress, cancel)
        return Latent(values, extent)

    def decode(
        self,
        latent: Any,
        *,
        frames: int | None = None,
        height: int | None = None,
        width: int | None = None,
        dtype: str | None = None,
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
    ) -> Frames:
        """Decodes a latent, which may be any array ``[T, h, w, C]`` of float32.

        A ``Latent`` has the length, the size and the type of its clip. Of another array all frames are decoded, as
        float32. ``frames``, ``height`` and ``width`` crop the result. A latent on the session's GPU is read in place,
        and its frames are on that GPU.
        """
        (array,), _ = _inputs.arrays(latent, self._session.gpu)
        extent = latent._extent if isinstance(latent, Latent) else None
        given = (frames, height, width, dtype)
        if any(value is not None for value in given):
            whole = extent or _reseed.extent(self._session, array)
            chosen = [new if new is not None else old for new, old in zip(given, whole)]
            extent = cast("tuple[int, int, int, str]", tuple(chosen))
        return _reseed.decode(self._session, array, extent, progress, cancel)


class Session:
    """A model on its device. Loaded networks are used again by later jobs; jobs of one session run one after the other.

    ``model`` is the name of a public model such as ``"3b"``, a folder with model files, the file of a transformer, or
    ``"nano"``, a small model that is part of this package, as is ``"nano-sharp"``, its sharper setting. ``vae`` and
    ``text`` are the files of the VAE and the text embedding, where they are not beside the transformer or among the
    models of this machine. ``device`` is ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. ``max_vram`` is the most
    GPU memory, in bytes or as ``"8G"``. ``dtype`` is the type of the activations: f32, tf32, f16 or bf16. ``precision``
    is the accuracy of a GPU's products: exact, fast, int8 or reference.

    >>> import reseed
    >>> with reseed.Session("formula:tiny", device="cpu") as session:
    ...     frames = session.upscale_frames(reseed.Frames.zeros((16, 16, 3)), scale=1.5)
    >>> frames.shape
    (24, 24, 3)
    """

    def __init__(
        self,
        model: Path = "nano",
        *,
        device: str = "auto",
        max_vram: int | str | None = None,
        vae: Path | None = None,
        text: Path | None = None,
        threads: int | None = None,
        dtype: str | None = None,
        precision: str | None = None,
    ) -> None:
        options = {"model": os.fspath(model), "device": device, "max_vram": max_vram, "threads": threads}
        types = {"dtype": dtype, "precision": precision}
        self._native = _reseed.Session({**options, **types, "vae": vae, "text": text})

    @property
    def model(self) -> str:
        """The name or the path that the model was opened by."""
        return self._native.model

    @property
    def device(self) -> str:
        """The device, in words."""
        return self._native.device

    @property
    def memory(self) -> Memory:
        """Bytes of networks and tensors that the session holds now."""
        host, gpu = self._native.memory
        return Memory(host, gpu)

    @property
    def vae(self) -> Vae:
        """The VAE by itself. It is loaded by its first use."""
        return Vae(self._native)

    def upscale(
        self,
        input: Path,
        output: Path,
        *,
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
        existing: Literal["refuse", "overwrite", "resume"] = "refuse",
        **settings: Unpack[FileSettings],
    ) -> Report:
        """Restores and upscales a video, an image or a folder of images into a file or a folder.

        After every batch the finished frames are safe on disk: ``existing="resume"`` continues a job that was
        interrupted. Settings have the names and defaults of the command line; see ``Settings`` and ``FileSettings``.

        >>> import pathlib, tempfile, reseed
        >>> session = reseed.Session("formula:tiny", device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     image = pathlib.Path(folder, "small.pgm")
        ...     _ = image.write_bytes(b"P5 16 16 255 " + bytes(256))
        ...     report = session.upscale(image, pathlib.Path(folder, "large.png"), scale=2)
        >>> report.size, report.frames
        ((32, 32), 1)
        """
        paths = (os.fspath(input), os.fspath(output))
        return Report(**self._native.upscale(paths, {**settings, "existing": existing}, progress, cancel))

    @overload
    def upscale_frames(
        self,
        frames: list[Any],
        *,
        independent: Literal[True],
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
        **settings: Unpack[Settings],
    ) -> list[Frames]: ...

    @overload
    def upscale_frames(
        self,
        frames: Any,
        *,
        independent: Literal[False] = False,
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
        **settings: Unpack[Settings],
    ) -> Frames: ...

    @overload
    def upscale_frames(
        self,
        frames: Any,
        *,
        independent: bool,
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
        **settings: Unpack[Settings],
    ) -> Frames | list[Frames]: ...

    def upscale_frames(
        self,
        frames: Any,
        *,
        independent: bool = False,
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
        **settings: Unpack[Settings],
    ) -> Frames | list[Frames]:
        """Restores and upscales frames in memory.

        ``frames`` is an array ``[B, H, W, C]``, one frame ``[H, W, C]``, a PIL image, a path, or a list of them, of
        type uint8, uint16, float16 or float32 in 0 to 1, with 1, 3 or 4 channels. The result has the same type and
        the same dimensions. Arrays are read in place. CUDA tensors on the session's GPU are read one frame at a time,
        because frames are resized on the CPU, and their result is on that GPU; tensors of other devices are copied to
        host memory.

        Frames are one clip. With ``independent=True`` they are images that have nothing to do with each other; a list
        may then have images of different sizes, and the result is a list.

        ``progress`` is called on the calling thread with events; an exception in it cancels the job. Ctrl-C and
        ``cancel`` stop the job within a second.

        >>> import reseed
        >>> session = reseed.Session("formula:tiny", device="cpu")
        >>> images = [reseed.Frames.zeros((16, 16, 3)), reseed.Frames.zeros((24, 16, 1), "float32")]
        >>> session.upscale_frames(images, independent=True, scale=2)
        [Frames(shape=(32, 32, 3), dtype='uint8'), Frames(shape=(48, 32, 1), dtype='float32')]
        """
        arrays, several = _inputs.arrays(frames, self._native.gpu)
        separate = several and independent
        results = self._native.upscale_frames(arrays, (independent, separate), dict(settings), (progress, cancel))
        return results if separate else results[0]

    def estimate(self, input: Path | tuple[int, int, int], **settings: Unpack[FileSettings]) -> Estimate:
        """What a job on a file, or on ``(frames, height, width)``, would need.

        >>> import reseed
        >>> estimate = reseed.Session("formula:tiny", device="cpu").estimate((9, 16, 24), scale=2)
        >>> estimate.output_size, estimate.batches, estimate.gpu_bytes
        ((48, 32), 2, 0)
        """
        return Estimate(**self._native.estimate(input, dict(settings)))

    def unload(self) -> None:
        """Frees the networks and the device, after the job that is running. The next job loads them again."""
        self._native.unload()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()

    def __repr__(self) -> str:
        return f"Session({self.model!r}, device={self.device!r})"

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle Session: it holds a device; open one in every process")
