"""Tensors of torch."""

import numpy as np
import pytest

from conftest import clip
from reseed import _reseed

torch = pytest.importorskip("torch")


def test_tensors_are_read_in_place_and_results_share_their_memory(session):
    tensor = torch.from_numpy(clip(dtype="float32"))
    assert _reseed.address(tensor) == tensor.data_ptr()
    restored = session.upscale_frames(tensor, scale=2)
    result = restored.torch()
    assert result.data_ptr() == restored.__array_interface__["data"][0] == torch.from_dlpack(restored).data_ptr()
    assert result.dtype == torch.float32 and tuple(result.shape) == (7, 32, 48, 3)
    assert np.array_equal(result.numpy(), session.upscale_frames(tensor.numpy(), scale=2).numpy())
    result[0] = 0
    assert not restored.numpy()[0].any(), "one memory"


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_types_and_strides(session, dtype):
    array = clip(channels=4, dtype=dtype)
    tensor = torch.from_numpy(array)
    expected = session.upscale_frames(array).numpy()
    assert np.array_equal(session.upscale_frames(tensor).numpy(), expected)
    planes = tensor.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert not planes.is_contiguous()
    assert np.array_equal(session.upscale_frames(planes).numpy(), expected)
    assert np.array_equal(session.upscale_frames(list(tensor)).numpy(), expected)


def test_gradients_are_left_alone(session):
    tensor = torch.from_numpy(clip(dtype="float32")).requires_grad_()
    assert np.array_equal(session.upscale_frames(tensor).numpy(), session.upscale_frames(tensor.detach()).numpy())


def test_wrong_types(session):
    import reseed

    for dtype, name in [(torch.bfloat16, "bfloat16"), (torch.float64, "float64"), (torch.int64, "int64")]:
        with pytest.raises(reseed.InputError, match=name):
            session.upscale_frames(torch.zeros((1, 8, 8, 3), dtype=dtype))


def test_latents(session):
    latent = session.vae.encode(torch.from_numpy(clip(frames=5)))
    tensor = latent.torch()
    assert tensor.data_ptr() == latent.__array_interface__["data"][0]
    assert np.array_equal(session.vae.decode(tensor, frames=5).numpy(), session.vae.decode(latent.numpy()).numpy())
