"""The widgets that the upscaling nodes share, and the settings that they stand for."""
from comfy_api.latest import io

COLORS = ["auto", "lab", "wavelet", "wavelet-adaptive", "hsv", "adain", "none"]
MODEL_TYPE = "RESEED_MODEL"

ReseedModelType = io.Custom(MODEL_TYPE)


def model_input():
    """The socket of a model."""
    return ReseedModelType.Input("model", tooltip="The model, from the node Reseed Model.")


def size_inputs():
    """The widgets of the size."""
    return [
        io.Float.Input("scale", default=2.0, min=0.1, max=16.0, step=0.1,
                       tooltip="Multiplies width and height. Ignored if resolution is not 0."),
        io.Int.Input("resolution", default=0, min=0, max=16384, step=2,
                     tooltip="Length of the shorter side of the result in pixels, such as 1080. 0: use scale."),
        io.Int.Input("max_resolution", default=0, min=0, max=16384, step=2,
                     tooltip="Upper limit of the longer side of the result in pixels. 0: no limit."),
    ]


def batch_inputs():
    """The widgets of batches."""
    return [
        io.Int.Input("batch_size", default=5, min=1, max=16384, step=4,
                     tooltip="Frames that the model sees at a time. Longer batches are steadier over time and take "
                             "more memory. 4n+1 (5, 9, 13, 17, ...) wastes nothing; other numbers are padded."),
        io.Int.Input("overlap", default=1, min=0, max=64, step=1,
                     tooltip="Frames that a batch shares with the batch before it. 1 removes the pulse of sharpness "
                             "at the start of each batch. 0 is fastest."),
    ]


def look_inputs():
    """The widgets of colour and noise."""
    return [
        io.Combo.Input("color", options=COLORS, default="auto",
                       tooltip="Corrects the colours to match the input. auto: lab, or none for a model that keeps "
                               "the low frequencies of the input itself, such as nano."),
        io.Int.Input("seed", default=42, min=0, max=2**32 - 1, control_after_generate=io.ControlAfterGenerate.fixed,
                     tooltip="Seed of the noise that the model starts from. The same seed gives the same result."),
    ]


def advanced_inputs():
    """Widgets that few people need."""
    return [
        io.Boolean.Input("shot_detection", default=True, optional=True, advanced=True,
                         tooltip="Starts a new batch at every cut, so that one shot does not leak into the next."),
        io.Boolean.Input("uniform_batch_size", default=False, optional=True, advanced=True,
                         tooltip="Pads the last batch of a shot to the full size too."),
        io.Int.Input("prepend_frames", default=0, min=0, max=32, optional=True, advanced=True,
                     tooltip="Mirrored frames before the first frame, removed from the result. They steady the "
                             "start of a clip."),
        io.Float.Input("latent_noise", default=0.0, min=0.0, max=1.0, step=0.001, optional=True, advanced=True,
                       tooltip="Noise added to the encoded input, 0 to 1. A little can hide artefacts of compression."),
        io.Float.Input("strength", default=-1.0, min=-1.0, max=1.0, step=0.01, optional=True, advanced=True,
                       tooltip="How far the result may leave the input: 0 is most faithful, 1 cleans most. "
                               "-1: what the model asks for; nano estimates it for every frame."),
    ]


def settings_of(*, scale, resolution, max_resolution, batch_size, overlap, color, seed, shot_detection=True,
                uniform_batch_size=False, prepend_frames=0, latent_noise=0.0, strength=-1.0):
    """The settings of the engine for values of the widgets."""
    settings = {
        "batch_size": batch_size,
        "overlap": min(overlap, batch_size - 1),
        "uniform_batch_size": uniform_batch_size,
        "prepend_frames": prepend_frames,
        "seed": seed,
        "latent_noise": latent_noise,
        "no_shot_detection": not shot_detection,
    }
    settings |= {"resolution": resolution} if resolution else {"scale": scale}
    if max_resolution:
        settings["max_resolution"] = max_resolution
    if color != "auto":
        settings["color"] = color
    if strength >= 0:
        settings["strength"] = strength
    return settings
