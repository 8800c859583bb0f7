"""Jobs: progress, cancelling, signals, threads and processes."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import reseed
from conftest import PATIENCE, clip, long_clip, python


def test_progress(session):
    events = []
    session.upscale_frames(clip(frames=9), progress=events.append)
    assert events[0].kind == "started" and (events[0].frames, events[0].total) == (0, 9)
    written = [event.frames for event in events if event.kind == "frames"]
    assert written == list(range(1, 10))
    assert {"phase", "frames", "batch"} <= {event.kind for event in events}
    last = events[-1]
    assert (last["frames"], last["total"], last.batches) == (9, 9, 2)
    assert "kind" in last.keys() and repr(last).startswith("Event(kind=")
    with pytest.raises(KeyError):
        last["colour"]


def test_previews_are_small_copies_of_frames(session):
    events = []
    restored = session.upscale_frames(clip(frames=3, height=16, width=400, dtype="float32"), progress=events.append)
    event = next(event for event in events if event.preview is not None)
    assert event.kind == "frames" and event.preview.shape == (16, 400, 3) and event.preview.dtype == "uint8"
    expected = restored.numpy()[event.frames - 1][::2, ::2]
    assert np.array_equal(event.preview.numpy(), np.floor(expected * np.float32(255) + np.float32(0.5)))


def test_progress_of_independent_images_counts_all(session):
    events = []
    session.upscale_frames([clip()[0], clip(height=24)[0]], independent=True, progress=events.append)
    assert [event.kind for event in events].count("started") == 1
    assert (events[-1].frames, events[-1].total, events[-1].batches) == (2, 2, 2)


def test_an_exception_in_the_callback_cancels(session):
    def progress(event):
        if event.kind == "frames":
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        session.upscale_frames(long_clip(), progress=progress)
    session.upscale_frames(clip(frames=1))


def test_a_token_cancels(session):
    token = reseed.CancelToken()

    def progress(event):
        if event.kind == "frames" and not token.cancelled:
            threading.Timer(0.05, token.cancel).start()

    with pytest.raises(reseed.Cancelled) as caught:
        session.upscale_frames(long_clip(), cancel=token, progress=progress)
    assert (caught.value.kind, caught.value.exit_code) == ("cancelled", 130)
    with pytest.raises(reseed.Cancelled):
        session.upscale_frames(long_clip(), cancel=token)
    assert repr(token) == "CancelToken(cancelled=True)"


def test_ctrl_c_is_a_keyboard_interrupt(session):
    def progress(event):
        if event.kind == "frames" and event.frames == 1:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        session.upscale_frames(long_clip(), progress=progress)
    expected = reseed.Session("formula:tiny", device="cpu", threads=1).upscale_frames(clip()).numpy()
    assert np.array_equal(session.upscale_frames(clip()).numpy(), expected)


def test_ctrl_c_ends_a_program():
    code = (
        "import numpy, reseed\n"
        "session = reseed.Session('formula:tiny', device='cpu', threads=1)\n"
        "frames = numpy.zeros((4000, 32, 48, 3), numpy.uint8)\n"
        "session.upscale_frames(frames, progress=lambda e: e.frames == 1 and print('busy', flush=True))\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "busy\n"
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    assert program.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors


def test_other_threads_run_during_a_job(session):
    count, stop = 0, threading.Event()

    def work():
        nonlocal count
        while not stop.is_set():
            count += 1
            time.sleep(0)

    thread = threading.Thread(target=work)
    thread.start()
    marks = []
    session.upscale_frames(clip(frames=12, height=32, width=48), progress=lambda event: marks.append(count))
    stop.set()
    thread.join()
    assert marks[-1] > marks[0] + 100, "the GIL is released"


def test_threads_share_a_session(session):
    clips = [clip(frames=3), clip(frames=5, height=32)]
    expected = [session.upscale_frames(frames).numpy() for frames in clips]
    results = {}

    def work(i):
        results[i] = session.upscale_frames(clips[i % 2]).numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join(PATIENCE) for thread in threads]
    assert all(np.array_equal(results[i], expected[i % 2]) for i in range(4))


def test_two_sessions_at_once(session):
    other = reseed.Session("formula:tiny", device="cpu", threads=2)
    results = {}

    def work(name, one):
        results[name] = one.upscale_frames(clip(frames=9)).numpy()

    threads = [threading.Thread(target=work, args=item) for item in (("a", session), ("b", other))]
    [thread.start() for thread in threads]
    [thread.join(PATIENCE) for thread in threads]
    assert np.array_equal(results["a"], results["b"])


FORK = """
import os, sys, reseed
def child(code):
    pid = os.fork()
    if pid == 0:
        os._exit(code())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def work():
    session = reseed.Session("formula:tiny", device="cpu", threads=1)
    return 0 if session.upscale_frames(reseed.Frames.zeros((16, 16, 3))).shape == (32, 32, 3) else 1
def refused():
    try:
        work()
    except reseed.ReseedError as error:
        return 7 if "forked" in str(error) else 8
print(child(work), child(work), work(), child(refused), work())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_sessions_after_a_fork():
    done = python(FORK)
    assert done.stdout.split() == ["0", "0", "0", "7", "0"], done.stderr


def test_unload_and_load_again(session):
    expected = session.upscale_frames(clip()).numpy()
    assert session.memory.host > 0 and session.memory.gpu == 0
    session.unload()
    assert session.memory == reseed.Memory(0, 0)
    assert session.device.startswith("cpu") or session.device
    assert np.array_equal(session.upscale_frames(clip()).numpy(), expected)
    assert session.memory.host > 0


def test_a_cancelled_job_leaves_the_networks(session):
    session.upscale_frames(clip())
    with pytest.raises(RuntimeError):
        session.upscale_frames(clip(frames=40), progress=lambda event: (_ for _ in ()).throw(RuntimeError()))
    deadline = time.monotonic() + PATIENCE
    while session.memory.host == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert session.memory.host > 0
