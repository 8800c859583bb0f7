"""CUDA tensors of torch, on a machine with a GPU."""

import gc
import signal
import time

import numpy as np
import pytest

import reseed
from conftest import clip
from reseed import _reseed

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)


@pytest.fixture(scope="module", params=["formula:tiny", "nano"])
def session(request):
    return reseed.Session(request.param, device="cuda:0")


def on_gpu(array):
    return torch.from_numpy(array).cuda()


def address(frames):
    """Where the elements of a result are."""
    return torch.from_dlpack(frames).data_ptr()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16", "float32"])
def test_the_vae_reads_in_place_and_equals_the_host(session, dtype):
    # The last frames and the borders are padded.
    array = clip(frames=7, height=40, width=52, dtype=dtype)
    tensor = on_gpu(array)
    assert _reseed.address(tensor, session._native) == tensor.data_ptr()
    expected, latent = session.vae.encode(array), session.vae.encode(tensor)
    assert latent.device == "cuda:0" and latent.torch().data_ptr() == _reseed.address(latent, session._native)
    assert np.array_equal(latent.numpy(), expected.numpy()) and np.isfinite(latent.numpy()).all()
    decoded = session.vae.decode(latent)
    assert decoded.torch().is_cuda and decoded.dtype == dtype and decoded.shape == array.shape
    assert decoded.torch().data_ptr() == address(decoded) == _reseed.address(decoded, session._native)
    assert np.array_equal(decoded.numpy(), session.vae.decode(expected).numpy())


def test_strides_channels_and_lists(session):
    array = clip(frames=5, height=32, width=48, channels=4, dtype="float32")
    expected = session.vae.encode(array).numpy()
    tensor = on_gpu(array)
    planes = tensor.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert not planes.is_contiguous() and _reseed.address(planes, session._native) == planes.data_ptr()
    larger = torch.zeros((9, 40, 60, 4), device="cuda")
    larger[2:7, 3:35, 7:55] = tensor
    for given in (tensor, planes, list(tensor), larger[2:7, 3:35, 7:55], tensor.requires_grad_()):
        assert np.array_equal(session.vae.encode(given).numpy(), expected)
    grey = clip(frames=2, height=32, width=48, channels=1)
    assert np.array_equal(session.vae.encode(on_gpu(grey)).numpy(), session.vae.encode(grey).numpy())


def test_latents_of_torch_are_cropped_and_converted(session):
    latent = session.vae.encode(clip(frames=5, height=32, width=48)).numpy()
    # As samplers store them: channels first.
    tensor = on_gpu(latent).permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)
    for options in ({}, {"frames": 3, "height": 30, "width": 41}, {"dtype": "uint8"}, {"dtype": "float16"}):
        expected, found = session.vae.decode(latent, **options), session.vae.decode(tensor, **options)
        assert found.device == "cuda:0" and np.array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_upscaled_frames_equal_the_host(session, dtype):
    array = clip(frames=7, height=24, width=32, channels=4, dtype=dtype)
    tensor = on_gpu(array)
    found, expected = session.upscale_frames(tensor, scale=2), session.upscale_frames(array, scale=2)
    assert found.torch().is_cuda and found.torch().data_ptr() == _reseed.address(found, session._native)
    assert (expected.device, found.device) == ("cpu", "cuda:0")
    assert np.array_equal(found.numpy(), expected.numpy())
    planes = tensor.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert np.array_equal(session.upscale_frames(planes, scale=2).numpy(), expected.numpy())


def test_streams_of_torch_are_waited_for(session):
    array = clip(frames=5, height=64, width=96, dtype="float32")
    expected = session.vae.encode(array).numpy()
    tensor, busy, stream = on_gpu(array), torch.ones((4096, 4096), device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        late = torch.full_like(tensor, 0.25)
        for _ in range(60):
            busy = busy @ busy * 1e-4
        late.copy_(tensor)
        latent = session.vae.encode(late)
        # The memory of the input may be used again as soon as the call has returned.
        late.fill_(0.75)
        found = latent.torch() * 1
    stream.synchronize()
    assert np.array_equal(found.cpu().numpy(), expected)


def test_a_value_that_is_not_a_number(session):
    array = clip(frames=5, height=32, width=48, dtype="float32")
    array[3, 20, 41, 1] = array[4, 0, 0, 0] = np.nan
    with pytest.raises(reseed.InputError, match="frame 3, row 20, column 41, channel 1") as caught:
        session.vae.encode(on_gpu(array))
    assert (caught.value.frame, caught.value.position) == (3, (20, 41, 1))
    with pytest.raises(reseed.InputError, match="frame 3"):
        session.upscale_frames(on_gpu(array))


def test_wrong_types_and_devices(session):
    with pytest.raises(reseed.InputError, match="bfloat16"):
        session.vae.encode(torch.zeros((1, 8, 8, 3), dtype=torch.bfloat16, device="cuda"))
    with pytest.raises(reseed.InputError, match="channels"):
        session.vae.decode(torch.zeros((1, 8, 8, 3), device="cuda"))
    with pytest.raises(reseed.DeviceError, match="cuda:99"):
        reseed.Session("nano", device="cuda:99")
    on_cpu = reseed.Session("formula:tiny", device="cpu")
    array = clip(frames=2)
    found = on_cpu.upscale_frames(on_gpu(array))
    assert found.device == "cpu" and np.array_equal(found.numpy(), on_cpu.upscale_frames(array).numpy())
    # A result on the GPU is an input of a session on the CPU too.
    decoded = session.vae.decode(session.vae.encode(on_gpu(array)))
    assert on_cpu.upscale_frames(decoded).shape == (2, 32, 48, 3)


def test_results_outlive_their_session_and_free_their_memory(session):
    def free():
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0]

    tensor = on_gpu(clip(frames=17, height=512, width=768))
    session.vae.encode(tensor)
    session.unload()
    before = free()
    latent = session.vae.encode(tensor)
    result = session.vae.decode(latent).torch()
    expected = result.cpu().numpy()
    loaded = free()
    session.unload()
    unloaded = free()
    assert before - loaded > 96 << 20, "networks and tensors were on the GPU"
    # The results, and the kernels of the device that they belong to.
    assert before - unloaded < 48 << 20, f"{(before - unloaded) >> 20} MiB are left"
    assert np.array_equal(result.cpu().numpy(), expected), "a result outlives its session"
    del latent, result
    for _ in range(10):
        session.vae.decode(session.vae.encode(tensor))
    steady = free()
    for _ in range(30):
        session.vae.decode(session.vae.encode(tensor))
    assert steady - free() < 4 << 20, "results are freed"


def test_ctrl_c_ends_a_job_within_a_second(session):
    tensor = on_gpu(clip(frames=400, height=128, width=192))
    session.upscale_frames(tensor[:5], scale=2)
    long = tensor.repeat(16, 4, 4, 1)
    torch.cuda.synchronize()
    for job in (lambda: session.upscale_frames(tensor, scale=4), lambda: session.vae.encode(long)):
        old = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        start = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        with pytest.raises(KeyboardInterrupt):
            job()
        assert time.monotonic() - start < 0.4 + 1.0
        signal.signal(signal.SIGALRM, old)
    small = clip(frames=2)
    assert np.array_equal(session.vae.encode(on_gpu(small)).numpy(), session.vae.encode(small).numpy())
