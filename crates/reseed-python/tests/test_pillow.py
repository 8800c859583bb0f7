"""Images of Pillow."""

import numpy as np
import pytest

import reseed
from conftest import clip

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("mode, channels", [("RGB", 3), ("RGBA", 4), ("L", 1)])
def test_images_are_frames(session, mode, channels):
    frame = clip(frames=1, channels=channels)[0]
    image = Image.fromarray(frame[..., 0] if channels == 1 else frame)
    assert image.mode == mode
    restored = session.upscale_frames(image, scale=2).numpy()
    expected = session.upscale_frames(frame, scale=2).numpy()
    assert np.array_equal(restored.reshape(expected.shape), expected)
    Image.fromarray(restored)


def test_other_modes_are_converted(session):
    frame = clip(frames=1)[0]
    image = Image.fromarray(frame)
    for mode in ("P", "CMYK", "1", "LA"):
        restored = session.upscale_frames(image.convert(mode), scale=2)
        assert restored.shape[:2] == (32, 48), mode
    deep = Image.fromarray(clip(frames=1, channels=1, dtype="uint16")[0, ..., 0])
    assert session.upscale_frames(deep, scale=2).dtype == "uint16"
    with pytest.raises(reseed.InputError, match="mode F"):
        session.upscale_frames(image.convert("F"))


def test_a_list_of_images_is_a_clip(session):
    frames = clip(frames=3)
    images = [Image.fromarray(frame) for frame in frames]
    assert np.array_equal(session.upscale_frames(images).numpy(), session.upscale_frames(frames).numpy())
