"""Bad input: one clear exception each, and the session keeps working."""

import pickle
import shutil

import numpy as np
import pytest

import reseed
from conftest import ASSETS, clip, python
from reseed import _reseed


def fails(session, frames, words, kind=reseed.InputError, **settings):
    with pytest.raises(kind) as caught:
        session.upscale_frames(frames, **settings)
    message = str(caught.value)
    assert "\n" not in message and "--" not in message, message
    assert all(word in message for word in words), message
    return caught.value


@pytest.mark.parametrize("dtype", ["float64", "int32", "int8", "bool", "complex64", ">u2"])
def test_wrong_types(session, dtype):
    name = {">u2": "big-endian"}.get(dtype, dtype)
    fails(session, clip().astype(dtype), [name, "uint8, uint16, float16 or float32"])


@pytest.mark.parametrize(
    "shape, words",
    [
        ((12,), ["[12]", "[B, H, W, C]"]),
        ((1, 2, 16, 16, 3), ["[1, 2, 16, 16, 3]"]),
        ((16, 16, 2), ["2 channels", "1, 3 or 4"]),
        ((2, 3, 16, 16), ["16 channels", "last dimension"]),
        ((0, 16, 16, 3), ["no frames"]),
        ((2, 0, 16, 3), ["16x0"]),
    ],
)
def test_wrong_shapes(session, shape, words):
    fails(session, np.zeros(shape, np.uint8), words)


def test_not_an_array(session):
    with pytest.raises(TypeError, match="dict is not an array"):
        session.upscale_frames({})
    fails(session, [], ["no frames"])
    fails(session, [clip()[0], clip(height=20)[0]], ["frame 1 is 24x20", "independent=True"])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_value_that_is_not_a_number_is_named(session, dtype):
    frames = clip(channels=4, dtype=dtype)
    frames[3, 5, 7, 2] = np.nan
    error = fails(session, frames, ["frame 3, row 5, column 7, channel 2"])
    assert (error.frame, error.position, error.kind, error.exit_code) == (3, (5, 7, 2), "input", 3)
    frames = clip(channels=4, dtype=dtype)
    frames[6, 1, 2, 3] = np.nan
    fails(session, frames, ["frame 6, row 1, column 2, channel 3"])
    images = [clip(dtype=dtype)[0], np.full((8, 8, 3), np.nan, dtype)]
    assert fails(session, images, ["frame 1, row 0"], independent=True).frame == 1
    session.upscale_frames(clip(dtype=dtype))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"scale": "much"}, ["scale: 'much' is not a number"]),
        ({"scale": 2, "size": (8, 8)}, ["one of scale, resolution and size"]),
        ({"batch_size": 0}, ["batch_size: 0", "from 1"]),
        ({"batch_size": True}, ["batch_size: True"]),
        ({"overlap": -1}, ["overlap: -1"]),
        ({"color": "sepia"}, ["color: 'sepia'", "wavelet"]),
        ({"latent_noise": 3}, ["latent noise 3"]),
        ({"resolution": "big"}, ["resolution: 'big'", "1080p"]),
        ({"scale": 0.001}, ["no pixels"]),
        ({"tile_overlap": (8, 8)}, ["tile_overlap needs tile"]),
    ],
)
def test_wrong_settings(session, settings, words):
    fails(session, clip(), words, kind=reseed.UsageError, **settings)


def test_unknown_settings_are_type_errors(session):
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        session.upscale_frames(clip(), batchsize=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'codec'"):
        session.upscale_frames(clip(), codec="h264")


def test_unknown_and_missing_models(tmp_path, monkeypatch):
    with pytest.raises(reseed.ModelError, match="no such model") as caught:
        reseed.Session("5b")
    assert caught.value.known[:3] == ["nano", "nano-sharp", "3b"] and caught.value.exit_code == 4
    for name in ("RESEED_MODELS", "HF_HOME", "HF_HUB_CACHE", "COMFYUI_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(reseed.ModelError, match="not on this machine") as caught:
        reseed.Session("3b")
    assert caught.value.model == "3b" and caught.value.file == "seedvr2_ema_3b_fp16.safetensors"


def test_a_model_file_with_its_vae_beside_it(tmp_path, monkeypatch):
    frames = clip(frames=1)
    expected = reseed.Session("nano", device="cpu").upscale_frames(frames).numpy()
    session = reseed.Session(ASSETS / "dit.safetensors", device="cpu")
    assert np.array_equal(session.upscale_frames(frames).numpy(), expected)
    for name in ("RESEED_MODELS", "HF_HOME", "HF_HUB_CACHE", "COMFYUI_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    alone = shutil.copy(ASSETS / "dit.safetensors", tmp_path)
    with pytest.raises(reseed.ModelError, match="its VAE ema_vae_fp16.safetensors is neither beside it") as caught:
        reseed.Session(alone, device="cpu")
    assert str(caught.value.path) == alone
    session = reseed.Session(alone, vae=ASSETS / "vae.safetensors", device="cpu")
    assert np.array_equal(session.upscale_frames(frames).numpy(), expected)
    with pytest.raises(reseed.UsageError, match="has its own VAE"):
        reseed.Session("nano", vae=alone)


def test_a_text_embedding_of_another_model(tmp_path):
    import json
    import struct

    text = tmp_path / "pos_emb.safetensors"
    values = np.zeros((58, 5120), np.float32).tobytes()
    header = json.dumps({"text": {"dtype": "F32", "shape": [58, 5120], "data_offsets": [0, len(values)]}}).encode()
    text.write_bytes(struct.pack("<Q", len(header)) + header + values)
    session = reseed.Session(ASSETS / "dit.safetensors", text=text, device="cpu")
    error = fails(session, clip(frames=1), ["pos_emb.safetensors", "[58, 5120]"], kind=reseed.ModelError)
    assert error.exit_code == 4


def test_no_gpu():
    if reseed.doctor()["gpus"]:
        pytest.skip("this machine has a GPU")
    with pytest.raises(reseed.DeviceError) as caught:
        reseed.Session("nano", device="cuda")
    assert caught.value.exit_code == 6 and "\n" not in str(caught.value)
    with pytest.raises(reseed.UsageError, match="unknown device"):
        reseed.Session("nano", device="tpu")
    with pytest.raises(reseed.UsageError, match="budget is for GPUs"):
        reseed.Session("nano", device="cpu", max_vram="8G")
    with pytest.raises(reseed.UsageError, match="max_vram: 'lots'"):
        reseed.Session("nano", max_vram="lots")


def test_memory_errors_are_builtin_too():
    error = reseed.MemoryError("too large", needed=5)
    import builtins

    assert isinstance(error, builtins.MemoryError) and isinstance(error, reseed.ReseedError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.needed, again.kind) == (reseed.MemoryError, "too large", 5, "memory")
    with pytest.raises(AttributeError, match="needed"):
        error.path


def test_a_panic_is_an_exception(session):
    with pytest.raises(reseed.ReseedError, match="internal error: on purpose .*please report") as caught:
        _reseed.panic()
    assert caught.value.exit_code == 1
    session.upscale_frames(clip(frames=1))
    assert python("from reseed import _reseed\ntry: _reseed.panic()\nexcept Exception: pass").stderr == ""


def test_nothing_can_be_pickled(session):
    for thing in (session, reseed.CancelToken(), reseed.Frames.zeros((1, 2, 2, 3))):
        with pytest.raises(TypeError, match=f"cannot pickle {type(thing).__name__}"):
            pickle.dumps(thing)


def test_warnings_are_python_warnings(session):
    with pytest.warns(reseed.ReseedWarning, match="smaller than the input"):
        session.upscale_frames(clip(frames=1), scale=0.5)
