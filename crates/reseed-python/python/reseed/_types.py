"""Settings and results of jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

from ._reseed import Event

Path = str | os.PathLike[str]
Progress = Callable[[Event], object]
Color = Literal["lab", "wavelet", "wavelet-adaptive", "hsv", "adain", "none"]


class Settings(TypedDict, total=False):
    """What a job can be given, with the names and defaults of the command line."""

    scale: float | None
    """Multiplies both sides; 2 unless a size is given."""
    resolution: int | str | None
    """Shorter side of the output: pixels, or a word such as ``"1080p"``."""
    size: tuple[int, int] | str | None
    """Width and height of the output, whatever its proportions."""
    max_resolution: int | None
    """Longest side of the output in pixels."""
    batch_size: int
    """Frames that go through the model together, best 4n+1; 5."""
    uniform_batch_size: bool
    """Whether the last batch of a shot is padded to the full number of frames."""
    overlap: int | None
    """Frames that neighbouring batches share; 1."""
    overlap_mode: Literal["auto", "smooth", "reference"]
    """How shared frames are cross-faded."""
    prepend_frames: int
    """Mirrored frames before the first, removed from the output."""
    seed: int | None
    """Seed of the noise that the model starts from; 42."""
    noise_file: Path | None
    """Safetensors file with that noise."""
    color: Color | None
    """Colour correction; what suits the model unless given."""
    latent_noise: float
    """Strength of noise added to the encoded input, 0 to 1."""
    strength: float | None
    """0 is most faithful to the input, 1 cleans most; what suits the model unless given."""
    no_shot_detection: bool
    """Whether batches extend across cuts."""
    slice: int | None
    """Latent frames at a time in the VAE; the result is the same."""
    tile: tuple[int, int] | str | None
    """Height and width of spatial tiles of the VAE in pixels, which are approximate."""
    tile_overlap: tuple[int, int] | str | None
    """Overlap of the tiles in pixels."""


class FileSettings(Settings, total=False):
    """What a job on files can be given too."""

    start: float | str | None
    """Start of the part to process: seconds, or ``"h:m:s"``."""
    end: float | str | None
    """End of the part to process."""
    deinterlace: Literal["auto", "off", "bob", "single"] | None
    """How interlaced video becomes frames."""
    ivtc: bool
    """Whether the frames of a film are restored from video with 3:2 pulldown."""
    fps: float | str | None
    """Rate of a folder of images, such as 24 or ``"30000/1001"``."""
    codec: str | None
    """h264, hevc, av1, ffv1, prores, or in hardware, such as hevc-nvenc."""
    crf: int | None
    """Quality: lower is better and larger."""
    encoder_args: Mapping[str, object] | None
    """Options of ffmpeg's encoder, such as ``{"preset": "slow"}``."""
    no_audio: bool
    no_subtitles: bool
    no_chapters: bool
    no_metadata: bool
    no_attachments: bool


@dataclass(frozen=True)
class Report:
    """What a finished job reports."""

    output: str
    """The file or folder that was written."""
    size: tuple[int, int]
    """Width and height of the output."""
    frames: int
    """Frames written by this run."""
    batches: int
    """Batches computed by this run."""
    shots: int
    """Shots found."""
    seconds: float
    """Time from start to end."""
    complete: bool
    """Whether a job to be resumed had nothing left to do."""
    host_peak: int | None
    """Most bytes of host memory of this process."""
    gpu_peak: int | None
    """Most bytes of GPU memory."""
    warnings: list[str]
    """What a user should know."""

    @property
    def fps(self) -> float:
        """Frames per second from start to end."""
        return self.frames / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Estimate:
    """What a job would need, from the plan that it would run."""

    input_size: tuple[int, int]
    """Width and height of the input."""
    output_size: tuple[int, int]
    """Width and height of the output."""
    frames: int
    batches: int
    seconds: float
    """Time in the networks."""
    host_bytes: int
    gpu_bytes: int
    disk_bytes: int
    """Bytes of an output file."""
    work_bytes: int
    """Bytes of its work files."""
    flops: int
    exact: bool
    """Whether the result is exact; without enough memory spatial tiles make it approximate."""
    based_on: str
    """The rates that the time is based on."""

    @property
    def fps(self) -> float:
        """Frames per second in the networks."""
        return self.frames / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Memory:
    """Bytes that a session holds between jobs."""

    host: int
    gpu: int
