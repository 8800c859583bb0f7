"""Reseed nodes for ComfyUI: restore and upscale images and videos with SeedVR2-family models."""
try:
    import reseed  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"the Reseed nodes need the Python package `reseed` ({error}); "
        "install it into the Python of ComfyUI: python -m pip install reseed"
    ) from error

from .reseed_nodes.extension import comfy_entrypoint

__all__ = ["comfy_entrypoint"]
