"""Nodes for the tests: images of any kind, good or bad, and a lossless record of results."""
import os

import folder_paths
import numpy
import torch
from comfy_api.latest import ComfyExtension, io

from .pattern import frames


def bad(kind):
    """A value that is no clip."""
    clip = torch.from_numpy(frames(3, 16, 16)).float() / 255
    if kind == "nan":
        clip[1, 2, 3, 0] = float("nan")
    return {
        "nan": clip,
        "two channels": clip[..., :2],
        "five channels": torch.cat([clip, clip[..., :2]], -1),
        "no batch axis": clip[0, 0],
        "no frames": clip[:0],
        "no pixels": clip[:, :0],
        "complex": clip.to(torch.complex64),
        "no tensor": "clip",
    }[kind]


class TestImages(io.ComfyNode):
    """Makes a clip."""

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ReseedTestImages",
            category="Reseed tests",
            inputs=[io.String.Input("kind", default="good"), io.Int.Input("count", default=7),
                    io.Int.Input("height", default=32), io.Int.Input("width", default=48),
                    io.Int.Input("channels", default=3)],
            outputs=[io.Image.Output(), io.Latent.Output()],
        )

    @classmethod
    def execute(cls, kind, count, height, width, channels):
        if kind != "good":
            return io.NodeOutput(bad(kind), {"samples": torch.zeros(2, 3)})
        clip = torch.from_numpy(frames(count, height, width, channels)).float() / 255
        return io.NodeOutput(clip, {"samples": torch.zeros(1, 16, 1, 4, 4)})


class TestSave(io.ComfyNode):
    """Writes images as they are."""

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ReseedTestSave",
            category="Reseed tests",
            is_output_node=True,
            inputs=[io.Image.Input("images"), io.String.Input("name")],
            outputs=[],
        )

    @classmethod
    def execute(cls, images, name):
        os.makedirs(folder_paths.get_output_directory(), exist_ok=True)
        numpy.save(os.path.join(folder_paths.get_output_directory(), name), images.numpy())
        return io.NodeOutput()


class TestExtension(ComfyExtension):
    """The nodes of the tests."""

    async def get_node_list(self):
        return [TestImages, TestSave]


async def comfy_entrypoint():
    """Called by ComfyUI."""
    return TestExtension()
