"""Stands for the public SeedVR2 pack: nodes with its identifiers that return a mark of their own."""
import torch
from comfy_api.latest import ComfyExtension, io


class PublicUpscaler(io.ComfyNode):
    """Returns a black image of one pixel."""

    @classmethod
    def define_schema(cls):
        return io.Schema(node_id="SeedVR2VideoUpscaler", category="SEEDVR2", inputs=[io.Image.Input("image")],
                         outputs=[io.Image.Output()])

    @classmethod
    def execute(cls, image):
        return io.NodeOutput(torch.zeros(1, 1, 1, 3))


class PublicExtension(ComfyExtension):
    """The pack."""

    async def get_node_list(self):
        return [PublicUpscaler]


async def comfy_entrypoint():
    """Called by ComfyUI."""
    return PublicExtension()
