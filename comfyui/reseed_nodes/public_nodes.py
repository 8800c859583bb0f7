"""Stand-ins for the four nodes of the public SeedVR2 pack, so that workflows saved with it run unchanged.

They have every widget of the originals. Settings that this engine makes needless are accepted, and one line names those
that differ from their defaults. The nodes have identifiers of their own: where the public pack is installed, its nodes
stay as they are.
"""
from comfy_api.latest import io

from . import job, model_files
from .engine import open_model
from .images_node import upscale_images

CATEGORY = "Reseed/public pack"
DEVICES = ["none", "cpu", "cuda:0"]
IGNORED = "Accepted for saved workflows and ignored: Reseed plans memory and kernels itself."

Dit = io.Custom("RESEED_PUBLIC_DIT")
Vae = io.Custom("RESEED_PUBLIC_VAE")
Compile = io.Custom("RESEED_PUBLIC_COMPILE")


class PublicNode(io.ComfyNode):
    """A stand-in. `IGNORED_INPUTS` are accepted without effect."""

    IGNORED_INPUTS = ()

    @classmethod
    def validate_inputs(cls, model="", device=""):
        """Accepts files and devices of another machine, so that the engine can say what is missing."""
        return True

    @classmethod
    def ignored(cls, values):
        """Names of ignored settings that differ from their defaults."""
        defaults = {each.id: getattr(each, "default", None) for each in cls.define_schema().inputs}
        return [name for name in cls.IGNORED_INPUTS if values.get(name, defaults[name]) != defaults[name]]


class Settings:
    """The value of a public model socket: what its node was set to, and the models opened from it."""

    def __init__(self, model, device, ignored):
        self.model = model
        self.device = device
        self.ignored = ignored
        self.opened = {}


class PublicDit(PublicNode):
    """SeedVR2LoadDiTModel."""

    IGNORED_INPUTS = ("blocks_to_swap", "swap_io_components", "offload_device", "attention_mode", "torch_compile_args")

    @classmethod
    def define_schema(cls):
        files = list(model_files.public_models())
        default = "seedvr2_ema_3b_fp8_e4m3fn.safetensors"
        return io.Schema(
            node_id="ReseedPublicLoadDiTModel",
            display_name="Reseed: SeedVR2 (Down)Load DiT Model",
            category=CATEGORY,
            is_deprecated=True,
            description="Stands in for the node of the public SeedVR2 pack in saved workflows. In new workflows use "
                        "Reseed Model.",
            inputs=[
                io.Combo.Input("model", options=files, default=default,
                               tooltip="DiT file. It is downloaded if it is not on this machine."),
                io.Combo.Input("device", options=["cuda:0", "cpu"], default="cuda:0",
                               tooltip="Where the model runs. cuda:0: the first GPU, or the CPU without one."),
                io.Int.Input("blocks_to_swap", default=0, min=0, max=36, optional=True, tooltip=IGNORED),
                io.Boolean.Input("swap_io_components", default=False, optional=True, tooltip=IGNORED),
                io.Combo.Input("offload_device", options=DEVICES, default="none", optional=True, tooltip=IGNORED),
                io.Boolean.Input("cache_model", default=False, optional=True,
                                 tooltip="Accepted and ignored: ComfyUI decides how long the model stays loaded."),
                io.Combo.Input("attention_mode", default="sdpa", optional=True, tooltip=IGNORED,
                               options=["sdpa", "flash_attn_2", "flash_attn_3", "sageattn_2", "sageattn_3"]),
                Compile.Input("torch_compile_args", optional=True, tooltip=IGNORED),
            ],
            outputs=[Dit.Output(display_name="SEEDVR2_DIT")],
        )

    @classmethod
    def validate_inputs(cls, model="", device="", offload_device="", attention_mode=""):
        """Accepts any choice of another machine."""
        return True

    @classmethod
    def execute(cls, model, device, **others):
        return io.NodeOutput(Settings(model, device, cls.ignored(others)))


class PublicVae(PublicNode):
    """SeedVR2LoadVAEModel."""

    IGNORED_INPUTS = ("encode_tiled", "decode_tiled", "tile_debug", "offload_device", "torch_compile_args")

    @classmethod
    def define_schema(cls):
        def tile(name, default, least):
            return io.Int.Input(name, default=default, min=least, max=16384, step=32, optional=True, tooltip=IGNORED)

        def switch(name):
            return io.Boolean.Input(name, default=False, optional=True, tooltip=IGNORED)

        return io.Schema(
            node_id="ReseedPublicLoadVAEModel",
            display_name="Reseed: SeedVR2 (Down)Load VAE Model",
            category=CATEGORY,
            is_deprecated=True,
            description="Stands in for the node of the public SeedVR2 pack in saved workflows. In new workflows use "
                        "Reseed Model.",
            inputs=[
                io.Combo.Input("model", options=["ema_vae_fp16.safetensors"], default="ema_vae_fp16.safetensors",
                               tooltip="VAE file. It is downloaded if it is not on this machine."),
                io.Combo.Input("device", options=["cuda:0", "cpu"], default="cuda:0",
                               tooltip="Accepted and ignored: the VAE runs where the DiT runs."),
                switch("encode_tiled"),
                tile("encode_tile_size", 1024, 64),
                tile("encode_tile_overlap", 128, 0),
                switch("decode_tiled"),
                tile("decode_tile_size", 1024, 64),
                tile("decode_tile_overlap", 128, 0),
                io.Combo.Input("tile_debug", options=["false", "encode", "decode"], default="false", optional=True,
                               tooltip=IGNORED),
                io.Combo.Input("offload_device", options=DEVICES, default="none", optional=True, tooltip=IGNORED),
                io.Boolean.Input("cache_model", default=False, optional=True,
                                 tooltip="Accepted and ignored: ComfyUI decides how long the model stays loaded."),
                Compile.Input("torch_compile_args", optional=True, tooltip=IGNORED),
            ],
            outputs=[Vae.Output(display_name="SEEDVR2_VAE")],
        )

    @classmethod
    def validate_inputs(cls, model="", device="", tile_debug="", offload_device=""):
        """Accepts any choice of another machine."""
        return True

    @classmethod
    def execute(cls, model, device, **others):
        return io.NodeOutput(Settings(model, device, cls.ignored(others)))


class PublicCompile(PublicNode):
    """SeedVR2TorchCompileSettings."""

    @classmethod
    def define_schema(cls):
        modes = ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
        return io.Schema(
            node_id="ReseedPublicTorchCompileSettings",
            display_name="Reseed: SeedVR2 Torch Compile Settings",
            category=CATEGORY,
            is_deprecated=True,
            description="Stands in for the node of the public SeedVR2 pack in saved workflows. It has no effect: "
                        "Reseed compiles nothing at run time.",
            inputs=[
                io.Combo.Input("backend", options=["inductor", "cudagraphs"], default="inductor", tooltip=IGNORED),
                io.Combo.Input("mode", options=modes, default="default", tooltip=IGNORED),
                io.Boolean.Input("fullgraph", default=False, tooltip=IGNORED),
                io.Boolean.Input("dynamic", default=False, tooltip=IGNORED),
                io.Int.Input("dynamo_cache_size_limit", default=64, min=0, max=1024, tooltip=IGNORED),
                io.Int.Input("dynamo_recompile_limit", default=128, min=0, max=1024, tooltip=IGNORED),
            ],
            outputs=[Compile.Output(display_name="TORCH_COMPILE_ARGS")],
        )

    @classmethod
    def validate_inputs(cls, backend="", mode=""):
        """Accepts any choice of another machine."""
        return True

    @classmethod
    def execute(cls, **settings):
        return io.NodeOutput(settings)


class PublicUpscaler(PublicNode):
    """SeedVR2VideoUpscaler."""

    IGNORED_INPUTS = ("input_noise_scale", "offload_device", "enable_debug")

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ReseedPublicVideoUpscaler",
            display_name="Reseed: SeedVR2 Video Upscaler",
            category=CATEGORY,
            is_deprecated=True,
            description="Stands in for the node of the public SeedVR2 pack in saved workflows. In new workflows use "
                        "Reseed Upscale (images) or Reseed Upscale (video file).",
            inputs=[*upscaler_inputs(), *upscaler_options()],
            outputs=[io.Image.Output(display_name="IMAGE")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def validate_inputs(cls, color_correction="", offload_device=""):
        """Accepts any choice of another version; the engine checks the colour correction."""
        return True

    @classmethod
    def execute(cls, image, dit, vae, **values):
        node_id = cls.hidden.unique_id
        ignored = sorted({*dit.ignored, *vae.ignored, *cls.ignored(values)})
        if ignored:
            job.show_text(node_id, f"Reseed ignores these settings, which it does not need: {', '.join(ignored)}")
        model = opened(dit, vae, node_id)
        return io.NodeOutput(upscale_images(model, image, False, engine_settings(values), node_id))


def upscaler_inputs():
    """The required inputs of the public upscaler."""
    return [
        io.Image.Input("image", tooltip="Frames of a clip, in order. Alpha is kept."),
        Dit.Input("dit", tooltip="The DiT, from its loader."),
        Vae.Input("vae", tooltip="The VAE, from its loader."),
        io.Int.Input("seed", default=42, min=0, max=2**32 - 1,
                     tooltip="Seed of the noise that the model starts from. The same seed gives the same result."),
        io.Int.Input("resolution", default=1080, min=16, max=16384, step=2,
                     tooltip="Length of the shorter side of the result in pixels."),
        io.Int.Input("max_resolution", default=0, min=0, max=16384, step=2,
                     tooltip="Upper limit of the longer side of the result in pixels. 0: no limit."),
        io.Int.Input("batch_size", default=5, min=1, max=16384, step=4,
                     tooltip="Frames that the model sees at a time: 1, 5, 9, 13, ..."),
        io.Boolean.Input("uniform_batch_size", default=False, tooltip="Pads the last batch to the full size too."),
        io.Combo.Input("color_correction", default="lab", tooltip="Corrects the colours to match the input.",
                       options=["lab", "wavelet", "wavelet_adaptive", "hsv", "adain", "none"]),
    ]


def upscaler_options():
    """The optional inputs of the public upscaler."""
    return [
        io.Int.Input("temporal_overlap", default=0, min=0, max=16, optional=True,
                     tooltip="Frames that a batch shares with the batch before it."),
        io.Int.Input("prepend_frames", default=0, min=0, max=32, optional=True,
                     tooltip="Mirrored frames before the first frame, removed from the result."),
        io.Float.Input("input_noise_scale", default=0.0, min=0.0, max=1.0, step=0.001, optional=True,
                       tooltip="Accepted for saved workflows and ignored."),
        io.Float.Input("latent_noise_scale", default=0.0, min=0.0, max=1.0, step=0.001, optional=True,
                       tooltip="Noise added to the encoded input, 0 to 1."),
        io.Combo.Input("offload_device", options=DEVICES, default="cpu", optional=True, tooltip=IGNORED),
        io.Boolean.Input("enable_debug", default=False, optional=True, tooltip="Accepted and ignored."),
    ]


def engine_settings(values):
    """The settings of the engine for values of the public widgets."""
    settings = {
        "resolution": values["resolution"],
        "batch_size": values["batch_size"],
        "uniform_batch_size": values["uniform_batch_size"],
        "overlap": min(values.get("temporal_overlap", 0), values["batch_size"] - 1),
        "prepend_frames": values.get("prepend_frames", 0),
        "latent_noise": values.get("latent_noise_scale", 0.0),
        "color": values["color_correction"].replace("_", "-"),
        "seed": values["seed"],
    }
    if values["max_resolution"]:
        settings["max_resolution"] = values["max_resolution"]
    return settings


def opened(dit, vae, node_id):
    """The model of two loaders. It lives as long as the value of the DiT's loader."""
    if vae.model not in dit.opened:
        # The public pack offers only the GPUs of its machine. The first one stands for the default device.
        device = "auto" if dit.device in ("cuda:0", "mps") else dit.device
        dit.opened[vae.model] = open_model(model_files.resolve(dit.model, vae.model), device, 0.0, node_id)
    return dit.opened[vae.model]


PUBLIC_NODES = [PublicDit, PublicVae, PublicCompile, PublicUpscaler]
