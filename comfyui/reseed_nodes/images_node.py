"""The node that restores images and clips in memory."""
from comfy_api.latest import io

from . import job, tensors, widgets
from .estimate_text import show_estimate


class ReseedUpscaleImages(io.ComfyNode):
    """IMAGE to IMAGE."""

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ReseedUpscaleImages",
            display_name="Reseed Upscale (images)",
            category="Reseed",
            description="Restores and upscales images: the frames of one clip, or independent stills. For long videos "
                        "use Reseed Upscale (video file), whose memory does not grow with the video.",
            search_aliases=["SeedVR2", "upscale", "restore", "super resolution"],
            inputs=[
                io.Image.Input("images", tooltip="Frames of a clip, or independent images. Alpha is kept."),
                widgets.model_input(),
                *widgets.size_inputs(),
                io.Boolean.Input("independent", display_name="independent images", default=False,
                                 tooltip="On: every image is restored by itself. Off: the images are frames of one "
                                         "clip, in order."),
                *widgets.batch_inputs(),
                *widgets.look_inputs(),
                *widgets.advanced_inputs(),
            ],
            outputs=[io.Image.Output(display_name="images")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, images, model, independent, **choices):
        settings = widgets.settings_of(**choices)
        return io.NodeOutput(upscale_images(model, images, independent, settings, cls.hidden.unique_id))


def upscale_images(model, images, independent, settings, node_id):
    """The restored images as a tensor."""
    frames = tensors.frames_of(images)
    if independent or len(frames) == 1:
        settings = settings | {"batch_size": 1, "overlap": 0}
    show_estimate(model, tuple(frames.shape[:3]), settings, node_id)

    def work(progress, cancel):
        return model.session.upscale_frames(
            frames, independent=independent, progress=progress, cancel=cancel, **settings)

    return tensors.images_of(job.run(model, node_id, work))
