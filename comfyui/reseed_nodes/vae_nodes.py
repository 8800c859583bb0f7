"""The nodes of the VAE alone. Latents have the layout and the scale of ComfyUI's own SeedVR2 nodes."""
import comfy.model_management as mm
import torch
from comfy_api.latest import io

from . import job, tensors, widgets

# Frames, height and width of the clip that a latent was made of, kept beside it.
EXTENT = "reseed_extent"


class ReseedVaeEncode(io.ComfyNode):
    """IMAGE to LATENT."""

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ReseedVAEEncode",
            display_name="Reseed VAE Encode",
            category="Reseed",
            description="Encodes the frames of one clip with the VAE of the model.",
            search_aliases=["SeedVR2", "vae encode"],
            inputs=[
                io.Image.Input("images", tooltip="Frames of one clip, in order. Alpha is left out."),
                widgets.model_input(),
            ],
            outputs=[io.Latent.Output(display_name="latent")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, images, model):
        frames = tensors.frames_of(images)
        model.enter()

        def work(progress, cancel):
            return model.session.vae.encode(frames, progress=progress, cancel=cancel)

        latent = job.run(model, cls.hidden.unique_id, work)
        samples = torch.from_dlpack(latent).permute(3, 0, 1, 2).unsqueeze(0)  # [T, h, w, C] to [1, C, T, h, w]
        samples = samples.to(mm.intermediate_device()).contiguous()
        return io.NodeOutput({"samples": samples, EXTENT: (latent.frames, latent.height, latent.width)})


class ReseedVaeDecode(io.ComfyNode):
    """LATENT to IMAGE."""

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ReseedVAEDecode",
            display_name="Reseed VAE Decode",
            category="Reseed",
            description="Decodes a latent of one clip with the VAE of the model. A latent of n frames gives 4n-3 "
                        "images.",
            search_aliases=["SeedVR2", "vae decode"],
            inputs=[
                io.Latent.Input("latent", tooltip="A latent [1, 16, T, h, w] of Reseed VAE Encode, or of ComfyUI's "
                                                  "own SeedVR2 nodes."),
                widgets.model_input(),
            ],
            outputs=[io.Image.Output(display_name="images")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, latent, model):
        samples = latent_of(latent)
        frames, height, width = extent_of(latent, samples)
        model.enter()

        def work(progress, cancel):
            return model.session.vae.decode(
                samples, frames=frames, height=height, width=width, progress=progress, cancel=cancel)

        return io.NodeOutput(tensors.images_of(job.run(model, cls.hidden.unique_id, work)))


def latent_of(latent):
    """The latent `[T, h, w, C]` of one clip."""
    samples = latent.get("samples") if isinstance(latent, dict) else None
    if not isinstance(samples, torch.Tensor) or samples.ndim != 5 or samples.shape[0] != 1:
        found = list(samples.shape) if isinstance(samples, torch.Tensor) else type(latent).__name__
        raise ValueError(f"a latent of one clip has the shape [1, C, T, h, w], got {found}")
    return samples[0].permute(1, 2, 3, 0).float().cpu().contiguous()


def extent_of(latent, samples):
    """Frames, height and width of the clip, unless another node has changed the size of the latent since."""
    frames, height, width = latent.get(EXTENT) or (0, 0, 0)
    expected = (1 + -(-(frames - 1) // 4), -(-height // 8), -(-width // 8))
    return (frames, height, width) if expected == tuple(samples.shape[:3]) else (None, None, None)
