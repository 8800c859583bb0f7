"""Prompts of the tests: graphs as the interface sends them."""


def node(kind, /, **inputs):
    """One node of a prompt."""
    return {"class_type": kind, "inputs": inputs, "_meta": {"title": kind}}


SETTINGS = dict(scale=2.0, resolution=0, max_resolution=0, batch_size=5, overlap=1, color="auto", seed=42)


def model(name="formula:tiny", device="cpu", max_vram=0.0, vae="auto"):
    """The node of a model."""
    return node("ReseedModel", model=name, device=device, max_vram=max_vram, vae=vae)


def clip(**choices):
    """The node that makes a clip."""
    return node("ReseedTestImages", **(dict(kind="good", count=7, height=32, width=48, channels=3) | choices))


def upscale_images(name, model_node, clip_node, **choices):
    """Restores a clip and records it as `name`.npy."""
    values = SETTINGS | {"independent": False} | choices
    return {
        "1": model_node,
        "2": clip_node,
        "3": node("ReseedUpscaleImages", images=["2", 0], model=["1", 0], **values),
        "4": node("ReseedTestSave", images=["3", 0], name=name),
    }


def upscale_video(file, model_node, prefix, part=None, **choices):
    """Restores a video of the input folder and saves it. `part` is (start, duration) in seconds."""
    values = SETTINGS | {"container": "mp4", "codec": "auto", "crf": -1} | choices
    prompt = {
        "1": model_node,
        "2": node("LoadVideo", file=file),
        "3": node("ReseedUpscaleVideo", video=["2", 0], model=["1", 0], **values),
        "4": node("SaveVideo", video=["3", 0], filename_prefix=prefix, format="auto", codec="auto"),
    }
    if part:
        prompt["5"] = node("Video Slice", video=["2", 0], start_time=part[0], duration=part[1], strict_duration=False)
        prompt["3"]["inputs"]["video"] = ["5", 0]
    return prompt


def vae_round_trip(name, model_node, clip_node):
    """Encodes and decodes a clip and records it."""
    return {
        "1": model_node,
        "2": clip_node,
        "3": node("ReseedVAEEncode", images=["2", 0], model=["1", 0]),
        "4": node("ReseedVAEDecode", latent=["3", 0], model=["1", 0]),
        "5": node("ReseedTestSave", images=["4", 0], name=name),
    }


def public(name, image_node, dit, vae, upscaler, compile_node=True):
    """A prompt of the public pack's nodes, with these values of their widgets in their order."""
    dit_widgets = ("model", "device", "blocks_to_swap", "swap_io_components", "offload_device", "cache_model",
                   "attention_mode")
    vae_widgets = ("model", "device", "encode_tiled", "encode_tile_size", "encode_tile_overlap", "decode_tiled",
                   "decode_tile_size", "decode_tile_overlap", "tile_debug", "offload_device", "cache_model")
    upscaler_widgets = ("seed", "resolution", "max_resolution", "batch_size", "uniform_batch_size",
                        "color_correction", "temporal_overlap", "prepend_frames", "input_noise_scale",
                        "latent_noise_scale", "offload_device", "enable_debug")
    prompt = {
        "10": node("SeedVR2VideoUpscaler", image=["16", 0], dit=["14", 0], vae=["13", 0],
                   **dict(zip(upscaler_widgets, upscaler, strict=True))),
        "13": node("SeedVR2LoadVAEModel", **dict(zip(vae_widgets, vae, strict=True))),
        "14": node("SeedVR2LoadDiTModel", **dict(zip(dit_widgets, dit, strict=True))),
        "15": node("ReseedTestSave", images=["10", 0], name=name),
        "16": image_node,
    }
    if compile_node:
        prompt["19"] = node("SeedVR2TorchCompileSettings", backend="inductor", mode="default", fullgraph=False,
                            dynamic=False, dynamo_cache_size_limit=64, dynamo_recompile_limit=128)
        for loader in ("13", "14"):
            prompt[loader]["inputs"]["torch_compile_args"] = ["19", 0]
    return prompt


# Widget values of the public pack's three example workflows.
EXAMPLES = {
    "simple image": (
        ("seedvr2_ema_3b_fp8_e4m3fn.safetensors", "cuda:0", 0, False, "none", False, "sdpa"),
        ("ema_vae_fp16.safetensors", "cuda:0", False, 1024, 128, False, 1024, 128, "false", "none", False),
        (42, 1080, 0, 1, False, "lab", 0, 0, 0.0, 0.0, "cpu", False),
    ),
    "4K image": (
        ("seedvr2_ema_7b_sharp_fp16.safetensors", "cuda:0", 36, False, "cpu", False, "sdpa"),
        ("ema_vae_fp16.safetensors", "cuda:0", True, 1024, 128, True, 1024, 128, "false", "cpu", False),
        (42, 4096, 4096, 1, False, "lab", 0, 0, 0.0, 0.0, "cpu", False),
    ),
    "HD video": (
        ("seedvr2_ema_3b_fp16.safetensors", "cuda:0", 32, False, "cpu", False, "sdpa"),
        ("ema_vae_fp16.safetensors", "cuda:0", True, 1024, 128, True, 768, 128, "false", "cpu", False),
        (42, 1080, 0, 33, True, "lab", 3, 0, 0.0, 0.0, "cpu", False),
    ),
}
