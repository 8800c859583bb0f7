"""The node that chooses a model."""
from comfy_api.latest import io

from . import model_files
from .engine import open_model
from .widgets import ReseedModelType


class ReseedModelLoader(io.ComfyNode):
    """Chooses a model, a device and a budget of GPU memory."""

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ReseedModel",
            display_name="Reseed Model",
            category="Reseed",
            description="Chooses the model for the other Reseed nodes. Its weights are loaded when they are first "
                        "used, and released by \"Unload models\".",
            search_aliases=["SeedVR2", "load model", "upscale model"],
            inputs=[
                io.Combo.Input("model", options=model_files.model_choices(), default=model_files.BUILT_IN,
                               tooltip="nano and nano-sharp are built in and small; the second adds texture. Other "
                                       "names are public models, which are downloaded when they are first used. "
                                       "Files of models/SEEDVR2 and models/diffusion_models are listed after them."),
                io.Combo.Input("device", options=device_choices(), default="auto",
                               tooltip="Where the model runs. auto: the first GPU, or the CPU without one."),
                io.Float.Input("max_vram", display_name="max VRAM (GiB)", default=0.0, min=0.0, max=1024.0, step=0.5,
                               tooltip="Most GPU memory that Reseed may use, in GiB. 0: what is free. Reseed never "
                                       "uses more: it keeps less of the model on the GPU instead."),
                io.Combo.Input("vae", options=model_files.vae_choices(), default=model_files.AUTO, optional=True,
                               tooltip="VAE file for a model file of your own. auto: ema_vae_fp16.safetensors from "
                                       "models/SEEDVR2, models/vae or the hub cache."),
            ],
            outputs=[ReseedModelType.Output(display_name="model")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def validate_inputs(cls, model, device, vae=model_files.AUTO):
        """Accepts files and devices of another machine, so that the engine can say what is missing."""
        return True

    @classmethod
    def execute(cls, model, device, max_vram, vae=model_files.AUTO):
        files = model_files.resolve(model, vae)
        return io.NodeOutput(open_model(files, device, max_vram, cls.hidden.unique_id))


def device_choices():
    """`auto`, the CPU, and the GPUs of this machine."""
    import torch

    return ["auto", "cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
