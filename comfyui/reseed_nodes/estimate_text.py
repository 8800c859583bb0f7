"""The estimate of a run, shown in its node before the run starts."""
from . import job

GIB = 1 << 30


def show_estimate(model, subject, settings, node_id, times=1):
    """Shows the estimate of a run that is repeated `times` times. The subject is (frames, height, width), or a path."""
    estimate = model.estimate(subject, settings)
    job.show_text(node_id, describe(estimate, model.session.device, times))


def describe(estimate, device, times=1):
    """One line: sizes, time and memory."""
    frames = estimate.frames * times
    parts = [
        f"{frames} {'frame' if frames == 1 else 'frames'} to {estimate.width}x{estimate.height}",
        f"about {duration(estimate.seconds * times)} on {device}",
    ]
    if estimate.device_bytes:
        parts.append(f"{estimate.device_bytes / GIB:.1f} GiB of GPU memory")
    parts.append(f"{estimate.host_bytes / GIB:.1f} GiB of RAM")
    return ", ".join(parts)


def duration(seconds):
    """A time for people."""
    if seconds < 1:
        return "1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
