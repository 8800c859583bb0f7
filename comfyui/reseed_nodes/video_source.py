"""The file of a video of ComfyUI."""
import contextlib
import io
import os
import tempfile
from dataclasses import dataclass

import folder_paths
from comfy_api.latest import InputImpl


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


def is_in_memory(video):
    """Whether a video exists only as frames in memory, as Create Video makes it."""
    return isinstance(video, InputImpl.VideoFromComponents)


@contextlib.contextmanager
def opened(video):
    """The source of a video. What is not a whole file on disk is written to a temporary one."""
    stream = video.get_stream_source()
    if not isinstance(stream, io.BytesIO) and not is_changed(video, stream):
        yield VideoSource(os.fspath(stream), *video.get_active_trim_window())
        return
    folder = folder_paths.get_temp_directory()
    os.makedirs(folder, exist_ok=True)
    handle, path = tempfile.mkstemp(dir=folder, prefix="reseed-", suffix=".mp4")
    os.close(handle)
    try:
        video.save_to(path)
        yield VideoSource(path, 0.0, 0.0)
    finally:
        os.unlink(path)


def is_changed(video, path):
    """Whether the frames of a video are not those of its file, such as after a crop."""
    try:
        return video.get_dimensions() != InputImpl.VideoFromFile(path).get_dimensions()
    except (OSError, ValueError):
        return False  # The engine says what is wrong with the file.
