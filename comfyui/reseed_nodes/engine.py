"""A session of the engine under ComfyUI's management of memory."""
import os

import comfy.model_management as mm
import comfy.model_patcher
import reseed
import torch

from . import job, model_files

GIB = 1 << 30
# A plan that takes this much of the free GPU memory may be a slower one, made for lack of memory.
CROWDED = 0.7
EVERYTHING = 1e30


class ReseedSession(torch.nn.Module):
    """A `reseed.Session` as a module, because ComfyUI manages modules. It has no parameters of its own."""

    def __init__(self, session):
        super().__init__()
        self.session = session
        self.job = None

    def wait_until_idle(self):
        """Waits for the end of a job that was cancelled. The wait can be cancelled too."""
        while self.job is not None and not self.job.wait(job.POLL_SECONDS):
            mm.throw_exception_if_processing_interrupted()
        self.job = None

    def release(self):
        """Frees networks and devices. The next run loads them again."""
        if self.job is not None:
            self.job.cancel.cancel()
            self.job.wait(None)
            self.job = None
        self.session.unload()


class ReseedModel(comfy.model_patcher.ModelPatcher):
    """The value of a model socket: a session that ComfyUI can unload.

    A session is loaded and unloaded as a whole. The engine itself divides its memory between GPU and host.
    """

    def __init__(self, session, device, limit, identity):
        super().__init__(ReseedSession(session), managed_device(device), torch.device("cpu"))
        self.limit = limit
        self.identity = identity
        self.planned_bytes = 0

    @property
    def session(self):
        """The `reseed.Session` of the model."""
        return self.model.session

    def wait_until_idle(self):
        """Waits for the end of a job that was cancelled."""
        self.model.wait_until_idle()

    def remember(self, running):
        """Makes a job known, so that the next one waits for its end."""
        self.model.job = running

    def estimate(self, subject, settings, node_id):
        """Estimates a run, and makes room in GPU memory for it."""
        def work(progress, cancel):
            return self.session.estimate(subject, **settings)

        estimate = job.run(self, node_id, work)
        if self.is_crowded(estimate.gpu_bytes):
            mm.free_memory(EVERYTHING, self.load_device)
            self.session.unload()  # The device is opened again, with a budget of what is free now.
            estimate = job.run(self, node_id, work)
        self.enter(estimate.gpu_bytes)
        return estimate

    def is_crowded(self, gpu_bytes):
        """Whether a plan could be faster if ComfyUI unloaded other models."""
        available = mm.get_free_memory(self.load_device) + self.loaded_size()
        if self.limit and self.limit < available:
            return False
        return gpu_bytes > CROWDED * available and any(each is not self for each in mm.loaded_models())

    def enter(self, gpu_bytes=0):
        """Enters the session into ComfyUI's list of loaded models, which frees GPU memory of others if needed."""
        self.wait_until_idle()
        self.planned_bytes = gpu_bytes
        mm.load_models_gpu([self])

    def model_size(self):
        return max(self.planned_bytes, self.loaded_size(), 1)

    def loaded_size(self):
        return self.session.memory.gpu

    def current_loaded_device(self):
        return self.load_device

    def partially_load(self, device_to, extra_memory=0, force_patch_weights=False):
        """Nothing to do: the engine loads what it needs when it runs."""
        return 0

    def partially_unload(self, device_to, memory_to_free=0, force_patch_weights=False):
        """Frees the whole session, and returns the bytes that it held."""
        held = self.loaded_size()
        self.model.release()
        return held

    def detach(self, unpatch_all=True):
        """Called with `unpatch_all=False` when the same model is used again: its weights stay."""
        if unpatch_all:
            self.model.release()
        return self.model


def managed_device(device):
    """The device that a session is listed under. ComfyUI unloads the models of its own devices only."""
    own = mm.get_all_torch_devices()
    return next((each for each in own if str(each) == device), mm.get_torch_device())


def open_model(files, device, max_vram, node_id):
    """Opens a model, and downloads its files first if they are not on this machine. `max_vram` is in GiB."""
    if model_files.is_missing(files):
        download(files.model, node_id)
    limit = int(max_vram * GIB) or None
    session = reseed.Session(files.model, device=device, max_vram=limit, vae=files.vae, text=files.text)
    return ReseedModel(session, device, limit, [stamp(files.model), files.vae, files.text, device, limit])


def stamp(model):
    """A model's name, or its file with length and time."""
    if not os.path.isfile(model):
        return model
    facts = os.stat(model)
    return [model, facts.st_size, facts.st_mtime_ns]


def download(name, node_id):
    """Downloads the files of a public model."""
    job.show_text(node_id, f"Reseed downloads the model {name}")

    def work(progress, cancel):
        reseed.models.pull(name, progress=progress, cancel=cancel)

    job.watch(job.Job(work), node_id)
