"""The file of a video of ComfyUI."""
import contextlib
import io
import os
import tempfile
from dataclasses import dataclass

import folder_paths


@dataclass
class VideoSource:
    """A file, and the part of it that is wanted, in seconds."""

    path: str
    start: float
    duration: float

    def window(self):
        """The part as settings of the engine."""
        window = {}
        if self.start > 0:
            window["start"] = self.start
        if self.duration > 0:
            window["end"] = self.start + self.duration
        return window

    def identity(self):
        """What distinguishes it from other sources."""
        facts = os.stat(self.path)
        return [self.path, facts.st_size, facts.st_mtime_ns, self.start, self.duration]


@contextlib.contextmanager
def opened(video):
    """The source of a video. A video that exists only in memory is written to a temporary file."""
    window = getattr(video, "get_active_trim_window", None)
    start, duration = window() if window is not None else (0.0, 0.0)
    stream = video.get_stream_source()
    if not isinstance(stream, io.BytesIO):
        yield VideoSource(os.fspath(stream), start, duration)
        return
    folder = folder_paths.get_temp_directory()
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="reseed-", suffix=".mp4") as file:
        file.write(stream.getbuffer())
        file.flush()
        yield VideoSource(file.name, start, duration)
