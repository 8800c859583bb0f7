"""The estimate of a run, shown in its node before the run starts."""
import reseed

from . import job

GIB = 1 << 30


def show_estimate(model, subject, settings, node_id):
    """Shows the estimate of a run, and makes room for it. The subject is (frames, height, width), or a path."""
    try:
        estimate = model.estimate(subject, settings, node_id)
    except (reseed.InputError, reseed.UsageError):
        # The run reports what is wrong. It also manages with a video that does not say how long it is.
        model.enter()
        return
    job.show_text(node_id, describe(estimate, model.session.device))


def describe(estimate, device):
    """Sizes, then time and memory, on two lines."""
    frames, (width, height) = estimate.frames, estimate.output_size
    needs = [f"about {duration(estimate.seconds)} on {device.split(',')[0]}"]
    if estimate.gpu_bytes:
        needs.append(f"{estimate.gpu_bytes / GIB:.1f} GiB of GPU memory")
    needs.append(f"{estimate.host_bytes / GIB:.1f} GiB of RAM")
    return f"{frames} {'frame' if frames == 1 else 'frames'} to {width}x{height},\n{', '.join(needs)}"


def duration(seconds):
    """A time for people."""
    if seconds < 1:
        return "1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
