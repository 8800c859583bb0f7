"""Runs a job of the engine from a node: progress and previews while it runs, cancel within a second."""
import logging
import queue
import threading

import comfy.model_management as mm
import comfy.utils
import numpy
import reseed
from PIL import Image
from server import PromptServer

POLL_SECONDS = 0.05
# A call that has not returned by then is left alone. The next call on its session waits for it.
PATIENCE_SECONDS = 0.8
PREVIEW_SIDE = 512


class Job(threading.Thread):
    """One call of the engine on a thread of its own, so that the thread of the node can ask for cancel meanwhile.

    ComfyUI keeps the running node in a context variable of its own thread. Therefore events travel through a queue, and
    only the thread of the node talks to ComfyUI.
    """

    def __init__(self, work):
        super().__init__(name="reseed", daemon=True)
        self.cancel = reseed.CancelToken()
        self.events = queue.SimpleQueue()
        self._work = work
        self._value = None
        self._error = None
        self._ended = threading.Event()

    def run(self):
        try:
            self._value = self._work(progress=self.events.put, cancel=self.cancel)
        except BaseException as error:  # Raised again on the thread of the node.
            self._error = error
        finally:
            self._work = None  # Drops the frames that it refers to.
            self._ended.set()

    def wait(self, seconds):
        """Whether it ends within this time."""
        return self._ended.wait(seconds)

    def result(self):
        """The result of a job that has ended, or its error."""
        if isinstance(self._error, reseed.Cancelled):
            raise mm.InterruptProcessingException() from self._error
        if self._error is not None:
            raise self._error
        value, self._value = self._value, None  # The model remembers the job, not its frames.
        return value


def run(model, node_id, work):
    """The result of `work(progress=..., cancel=...)`, which uses the session of a model."""
    model.wait_until_idle()
    job = Job(work)
    model.remember(job)
    return watch(job, node_id)


def watch(job, node_id):
    """Starts a job and shows its progress until it ends or ComfyUI wants to interrupt it."""
    display = Display(node_id)
    job.start()
    try:
        while not job.wait(POLL_SECONDS):
            display.drain(job.events)
            mm.throw_exception_if_processing_interrupted()
    except BaseException:
        job.cancel.cancel()
        job.wait(PATIENCE_SECONDS)
        raise
    display.drain(job.events)
    return job.result()


class Display:
    """The progress bar, the preview and the line of text of a node."""

    def __init__(self, node_id):
        self.node_id = node_id
        self.bar = None

    def drain(self, events):
        """Shows all events that wait."""
        while True:
            try:
                event = events.get_nowait()
            except queue.Empty:
                return
            self.show(event)

    def show(self, event):
        """Shows one event."""
        if event.kind == "warning":
            show_text(self.node_id, f"Reseed: {event.message}")
        elif event.kind in ("started", "frames"):
            self.advance(event)

    def advance(self, event):
        """Moves the bar to the frames that are done."""
        total = event.total or 0
        if not total:
            return
        if self.bar is None:
            self.bar = comfy.utils.ProgressBar(total, node_id=self.node_id)
        self.bar.update_absolute(event.frames, total, preview_of(event))


def preview_of(event):
    """The newest restored frame in the form that ComfyUI sends, or none."""
    if event.preview is None:
        return None
    return ("JPEG", Image.fromarray(numpy.asarray(event.preview)), PREVIEW_SIDE)


def show_text(node_id, text):
    """Shows text inside the node, and on one line in the log."""
    logging.info("%s", text.replace("\n", " "))
    server = PromptServer.instance
    if server is not None and node_id is not None:
        server.send_progress_text(text, node_id)
