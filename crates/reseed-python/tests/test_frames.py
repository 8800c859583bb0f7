"""Frames in memory: results, types, shapes, and memory that is not copied."""

import gc

import numpy as np
import pytest

import reseed
from conftest import clip, command, write_folder
from reseed import _reseed


def test_8_bit_frames_equal_the_command_line(session, tmp_path):
    frames = clip()
    source = write_folder(tmp_path / "in", frames)
    assert np.array_equal(reseed.read_frames(source).numpy(), frames)
    command("upscale", source, tmp_path / "out", "--model", "formula:tiny", "--device", "cpu", "--scale", "2")
    expected = reseed.read_frames(tmp_path / "out").numpy()
    restored = session.upscale_frames(frames, scale=2)
    assert restored.shape == (7, 32, 48, 3) and restored.dtype == "uint8"
    assert np.array_equal(restored.numpy(), expected)
    assert np.array_equal(session.upscale_frames(source, scale=2).numpy(), expected)


def test_settings_equal_the_command_line(session, tmp_path):
    frames = clip(frames=9)
    source = write_folder(tmp_path / "in", frames)
    flags = "--size 40x28 --batch-size 5 --overlap 2 --seed 7 --color wavelet --latent-noise 0.1 --prepend-frames 2"
    command("upscale", source, tmp_path / "out", "--model", "formula:tiny", "--device", "cpu", *flags.split())
    settings = dict(size=(40, 28), batch_size=5, overlap=2, seed=7, color="wavelet", latent_noise=0.1)
    restored = session.upscale_frames(frames, prepend_frames=2, **settings)
    assert np.array_equal(restored.numpy(), reseed.read_frames(tmp_path / "out").numpy())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_floats_are_not_quantised_and_round_to_the_8_bit_result(session, channels):
    frames = clip(channels=channels)
    eight = session.upscale_frames(frames, scale=1.5).numpy()
    floats = session.upscale_frames((frames / np.float32(255)).astype(np.float32), scale=1.5).numpy()
    assert floats.dtype == np.float32 and floats.shape == eight.shape
    assert len(np.unique(floats[..., 0])) > 300, "more values than eight bits have"
    rounded = np.floor(floats * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    if channels == 1:
        # The luma of rounded colours and the rounded luma differ by at most one code.
        assert np.abs(rounded.astype(int) - eight.astype(int)).max() <= 1
    else:
        assert np.array_equal(rounded, eight)


def test_16_bits_and_half_floats(session):
    frames = clip(dtype="uint16")
    restored = session.upscale_frames(frames, scale=2).numpy()
    assert restored.dtype == np.uint16
    floats = session.upscale_frames((frames / np.float32(65535)).astype(np.float32), scale=2).numpy()
    assert np.array_equal(np.floor(floats * np.float32(65535) + np.float32(0.5)).astype(np.uint16), restored)
    half = clip(dtype="float16")
    restored = session.upscale_frames(half, scale=2).numpy()
    assert restored.dtype == np.float16
    assert np.array_equal(restored, session.upscale_frames(half.astype(np.float32), scale=2).numpy().astype(np.float16))


def test_values_outside_of_the_range_are_clamped(session):
    frames = clip(dtype="float32")
    wild = frames.copy()
    wild[0, 0, 0], wild[1, 2, 3] = -5, np.inf
    tame = np.clip(wild, 0, 1)
    assert np.array_equal(session.upscale_frames(wild).numpy(), session.upscale_frames(tame).numpy())


def test_dimensions_are_those_of_the_input(session):
    frames = clip(frames=1, channels=1)
    whole = session.upscale_frames(frames, scale=2)
    assert whole.shape == (1, 32, 48, 1)
    assert session.upscale_frames(frames[0], scale=2).shape == (32, 48, 1)
    flat = session.upscale_frames(frames[0, :, :, 0], scale=2)
    assert flat.shape == (32, 48)
    assert np.array_equal(flat.numpy(), whole.numpy()[0, :, :, 0])


def test_lists_are_clips_and_independent_images_are_not(session):
    frames = clip(frames=3)
    whole = session.upscale_frames(frames, scale=2).numpy()
    assert np.array_equal(session.upscale_frames(list(frames), scale=2).numpy(), whole)
    alone = [session.upscale_frames(frame, scale=2).numpy() for frame in frames]
    assert not np.array_equal(np.stack(alone), whole)
    assert np.array_equal(session.upscale_frames(frames, independent=True, scale=2).numpy(), np.stack(alone))
    other = clip(frames=1, height=24, width=16, channels=4, dtype="float32")[0]
    images = session.upscale_frames([frames[0], other], independent=True, scale=2)
    assert [image.shape for image in images] == [(32, 48, 3), (48, 32, 4)]
    assert [image.dtype for image in images] == ["uint8", "float32"]
    assert np.array_equal(images[0].numpy(), alone[0])


def test_results_share_their_memory(session):
    restored = session.upscale_frames(clip(), scale=2)
    address = restored.__array_interface__["data"][0]
    arrays = [restored.numpy(), np.asarray(restored), np.from_dlpack(restored), np.array(restored, copy=False)]
    assert {array.ctypes.data for array in arrays} == {address}
    assert restored[2].numpy().ctypes.data == address + restored[2].nbytes * 2
    assert np.array(restored, copy=True).ctypes.data != address
    expected, array = arrays[0].copy(), arrays[2]
    del restored, arrays
    gc.collect()
    assert np.array_equal(array, expected), "the memory outlives the frames"


def test_arrays_are_read_in_place(session):
    frames = clip(dtype="float32")
    assert _reseed.address(frames) == frames.ctypes.data
    assert _reseed.address(frames[::2, 1:, 3:]) == frames.ctypes.data + 4 * 3 * (24 + 3)
    frames.flags.writeable = False
    assert _reseed.address(frames) == frames.ctypes.data

    class OnlyDlpack:
        def __dlpack__(self, **options):
            return view.__dlpack__(**options)

        def __dlpack_device__(self):
            return view.__dlpack_device__()

    view = clip(dtype="float32")
    assert _reseed.address(OnlyDlpack()) == view.ctypes.data
    restored = session.upscale_frames(OnlyDlpack(), scale=2)
    assert np.array_equal(restored.numpy(), session.upscale_frames(view, scale=2).numpy())


def test_strides_of_any_order(session):
    frames = clip(frames=6)
    expected = session.upscale_frames(np.ascontiguousarray(frames[::-2, ::-1, 2:, ::-1]), scale=2).numpy()
    assert np.array_equal(session.upscale_frames(frames[::-2, ::-1, 2:, ::-1], scale=2).numpy(), expected)
    planes = np.ascontiguousarray(frames.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    assert np.array_equal(session.upscale_frames(planes).numpy(), session.upscale_frames(frames).numpy())


def test_the_input_is_released(session):
    import weakref

    class Frames(np.ndarray):
        pass

    frames = clip().view(Frames)
    alive = weakref.ref(frames)
    session.upscale_frames(frames)
    del frames
    gc.collect()
    assert alive() is None


def test_memory_views_are_frames(session):
    frames = clip(frames=1)[0]
    view = memoryview(frames)
    assert np.array_equal(session.upscale_frames(view).numpy(), session.upscale_frames(frames).numpy())


def test_frames_of_the_package():
    frames = reseed.Frames.zeros((2, 3, 4, 3), "float32")
    assert (len(frames), frames.ndim, frames.nbytes) == (2, 4, 288)
    assert repr(frames[-1]) == "Frames(shape=(3, 4, 3), dtype='float32')"
    assert frames.tobytes() == bytes(288)
    assert [frame.shape for frame in frames] == [(3, 4, 3)] * 2
    with pytest.raises(IndexError):
        frames[2]
    with pytest.raises(reseed.UsageError, match="float64"):
        reseed.Frames.zeros((2,), "float64")


def test_the_vae_by_itself(session):
    frames = clip(frames=6)
    latent = session.vae.encode(frames)
    assert latent.shape == (3, 2, 3, 16) and latent.numpy().dtype == np.float32
    decoded = session.vae.decode(latent)
    assert decoded.shape == frames.shape and decoded.dtype == "uint8"
    plain = session.vae.decode(latent.numpy().copy())
    assert plain.shape == (9, 16, 24, 3) and plain.dtype == "float32"
    rounded = np.floor(plain.numpy()[:6] * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    assert np.array_equal(rounded, decoded.numpy())
    cropped = session.vae.decode(latent.numpy(), frames=6, height=15, width=20)
    assert np.array_equal(cropped.numpy(), plain.numpy()[:6, :15, :20])
    with pytest.raises(reseed.InputError, match="channels"):
        session.vae.decode(latent.numpy()[..., :8])
    with pytest.raises(reseed.UsageError, match="100 frames"):
        session.vae.decode(latent, frames=100)
