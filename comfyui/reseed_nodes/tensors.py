"""Tensors of ComfyUI to frames of the engine and back, without a copy where the memory allows it."""
import comfy.model_management as mm
import torch

# Types of tensors that the engine has no name for, and that float32 can stand for.
WIDENED = (torch.bfloat16, torch.float64)


def frames_of(images):
    """Frames `[B, H, W, C]` that the engine can read. The engine checks their type, channels and values."""
    if not isinstance(images, torch.Tensor):
        raise ValueError(f"images must be a tensor [B, H, W, C], got {type(images).__name__}")
    if images.ndim != 4:
        raise ValueError(f"images must have the shape [B, H, W, C], got {list(images.shape)}")
    if images.dtype in WIDENED:
        images = images.float()
    return images.detach().cpu().contiguous()


def images_of(frames):
    """The restored frames as ComfyUI keeps images."""
    return torch.from_dlpack(frames).to(device=mm.intermediate_device(), dtype=mm.intermediate_dtype())
