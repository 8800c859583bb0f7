"""Tensors of ComfyUI to frames of the engine and back, without a copy where the memory allows it."""
import comfy.model_management as mm
import torch

CHANNELS = (1, 3, 4)
DTYPES = (torch.float32, torch.float16)


def frames_of(images):
    """Frames `[B, H, W, C]` that the engine can read."""
    if not isinstance(images, torch.Tensor):
        raise ValueError(f"images must be a tensor [B, H, W, C], got {type(images).__name__}")
    if images.ndim != 4 or images.shape[-1] not in CHANNELS or 0 in images.shape:
        raise ValueError(
            f"images must have the shape [B, H, W, C] with 1, 3 or 4 channels and at least one pixel, "
            f"got {list(images.shape)}"
        )
    if images.dtype not in DTYPES:
        images = images.float()
    images = images.detach().cpu().contiguous()
    if not torch.isfinite(images).all():
        raise ValueError("images contain NaN or infinite values; check the node that made them")
    return images


def images_of(frames):
    """The restored frames as ComfyUI keeps images."""
    return torch.from_dlpack(frames).to(device=mm.intermediate_device(), dtype=mm.intermediate_dtype())
