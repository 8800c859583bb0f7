"""What ComfyUI loads: the list of nodes and the replacements of the public pack's nodes."""
from comfy_api.latest import ComfyExtension, io

from . import model_files
from .images_node import ReseedUpscaleImages
from .model_node import ReseedModelLoader
from .public_nodes import PUBLIC_NODES
from .replacement import register_replacements
from .vae_nodes import ReseedVaeDecode, ReseedVaeEncode
from .video_node import ReseedUpscaleVideo

NODES = [ReseedModelLoader, ReseedUpscaleImages, ReseedUpscaleVideo, ReseedVaeEncode, ReseedVaeDecode]


class ReseedExtension(ComfyExtension):
    """The Reseed nodes."""

    async def on_load(self) -> None:
        model_files.register_folders()
        await register_replacements()

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return NODES + PUBLIC_NODES


async def comfy_entrypoint() -> ReseedExtension:
    """Called by ComfyUI when it loads the pack."""
    return ReseedExtension()
