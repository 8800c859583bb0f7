"""The clip of the tests."""
import numpy


def frames(count, height, width, channels=3):
    """A moving pattern of 8-bit values, the same for every run."""
    y, x = numpy.mgrid[0:height, 0:width]
    clip = [128 + 60 * numpy.sin((x + 2 * t) / 5) + 50 * numpy.cos((y - t) / 7) for t in range(count)]
    clip = numpy.stack([numpy.stack([frame - 20 * c for c in range(channels)], -1) for frame in clip])
    return numpy.clip(clip.round(), 0, 255).astype(numpy.uint8)
