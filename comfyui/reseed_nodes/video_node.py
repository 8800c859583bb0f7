"""The node that restores a video from file to file, in memory that does not grow with the video."""
import hashlib
import json
import os

import folder_paths
import reseed
from comfy_api.latest import InputImpl, Types, io

from . import job, video_source, widgets
from .estimate_text import show_estimate
from .images_node import upscale_images

CODECS = ["auto", "h264", "hevc", "av1", "ffv1", "prores"]
CONTAINERS = ["mp4", "mkv", "mov", "webm"]
FOLDER = "reseed"


class ReseedUpscaleVideo(io.ComfyNode):
    """VIDEO to VIDEO."""

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ReseedUpscaleVideo",
            display_name="Reseed Upscale (video file)",
            category="Reseed",
            description="Restores and upscales a video from file to file. Memory does not grow with the video. Audio, "
                        "timestamps, bit depth and colour metadata are kept. A cancelled run continues where it "
                        "stopped when it is queued again.",
            search_aliases=["SeedVR2", "upscale video", "restore video", "super resolution"],
            inputs=[
                io.Video.Input("video", tooltip="The video. A part chosen with Trim Video is honoured."),
                widgets.model_input(),
                *widgets.size_inputs(),
                *widgets.batch_inputs(),
                *widgets.look_inputs(),
                io.Combo.Input("container", options=CONTAINERS, default="mp4", tooltip="Format of the result."),
                io.Combo.Input("codec", options=CODECS, default="auto",
                               tooltip="Codec of the result. auto: h264; hevc for more than 8 bits; av1 in webm. "
                                       "ffv1 is lossless and needs mkv."),
                io.Int.Input("crf", default=-1, min=-1, max=63,
                             tooltip="Constant quality of the codec, lower is better. -1: 18 for h264, 20 for hevc, "
                                     "28 for av1."),
                *widgets.advanced_inputs(),
            ],
            outputs=[io.Video.Output(display_name="video")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, video, model, container, codec, crf, **choices):
        settings, node_id = widgets.settings_of(**choices), cls.hidden.unique_id
        if video_source.is_in_memory(video):
            return io.NodeOutput(upscale_in_memory(model, video, settings, node_id))
        encoder = {} if codec == "auto" else {"codec": codec}
        if crf >= 0:
            encoder["crf"] = crf
        with video_source.opened(video) as source:
            output = output_path(source, model, {**settings, **encoder}, container)
            upscale_video(model, source, output, settings, encoder, node_id)
        return io.NodeOutput(InputImpl.VideoFromFile(output))


def upscale_video(model, source, output, settings, encoder, node_id):
    """Restores a source into a file. An interrupted run is continued."""
    show_estimate(model, source.path, {**settings, **source.window()}, node_id)

    def work(progress, cancel):
        return model.session.upscale(
            source.path, output, existing="resume", progress=progress, cancel=cancel,
            **source.window(), **settings, **encoder)

    job.run(model, node_id, work)


def upscale_in_memory(model, video, settings, node_id):
    """Restores a video that has no file. The node that saves it chooses its codec."""
    parts = video.get_components()
    images = upscale_images(model, parts.images, False, settings, node_id)
    parts = Types.VideoComponents(images=images, audio=parts.audio, frame_rate=parts.frame_rate)
    return InputImpl.VideoFromComponents(parts, bit_depth=video.get_bit_depth())


def output_path(source, model, settings, container):
    """A file in the folder for temporary files. The same work has the same name, so that it can be continued."""
    folder = os.path.join(folder_paths.get_temp_directory(), FOLDER)
    os.makedirs(folder, exist_ok=True)
    work = json.dumps([reseed.__version__, source.identity(), model.identity, settings], sort_keys=True)
    return os.path.join(folder, f"{hashlib.sha256(work.encode()).hexdigest()[:24]}.{container}")
