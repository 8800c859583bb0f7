"""Jobs on files, the command, models and the machine."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import reseed
from conftest import PATIENCE, clip, command, write_folder, write_y4m

TINY = ("--model", "formula:tiny", "--device", "cpu")


def test_a_y4m_file_equals_the_command_line(session, tmp_path):
    source = write_y4m(tmp_path / "in.y4m", clip(frames=9))
    command("upscale", source, tmp_path / "one.y4m", *TINY, "--scale", "1.5", "--start", "0.08")
    events = []
    report = session.upscale(source, tmp_path / "two.y4m", scale=1.5, start=0.08, progress=events.append)
    assert (tmp_path / "one.y4m").read_bytes() == (tmp_path / "two.y4m").read_bytes()
    assert (report.frames, report.size, report.complete) == (7, (36, 24), False)
    assert report.output == str(tmp_path / "two.y4m") and report.fps > 0
    assert {"started", "frames", "saved"} <= {event.kind for event in events}


def test_a_video_file_equals_the_command_line(session, tmp_path, ffmpeg):
    source, video = write_y4m(tmp_path / "in.y4m", clip(frames=5, height=32, width=48)), tmp_path / "in.mp4"
    encode = [ffmpeg, "-loglevel", "error", "-i", source, "-pix_fmt", "yuv420p", "-threads", "1", video]
    subprocess.run(encode, check=True)
    flags = ["--codec", "h264", "--crf", "20", "--encoder-arg", "preset=ultrafast"]
    command("upscale", video, tmp_path / "one.mp4", *TINY, *flags)
    settings = dict(codec="h264", crf=20, encoder_args={"preset": "ultrafast"})
    session.upscale(video, tmp_path / "two.mp4", **settings)
    assert (tmp_path / "one.mp4").read_bytes() == (tmp_path / "two.mp4").read_bytes()


def test_a_folder_of_images_equals_the_command_line(session, tmp_path):
    source = write_folder(tmp_path / "in", clip(frames=3, channels=4))
    command("upscale", source, tmp_path / "one", *TINY)
    session.upscale(source, tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["0000.png", "0001.png", "0002.png"]
    assert all((tmp_path / "one" / n).read_bytes() == (tmp_path / "two" / n).read_bytes() for n in names)


def test_an_interrupted_job_is_resumed(session, tmp_path):
    source = write_y4m(tmp_path / "in.y4m", clip(frames=25))
    token = reseed.CancelToken()

    def progress(event):
        if event.saved > 0:
            token.cancel()

    with pytest.raises(reseed.Cancelled) as caught:
        session.upscale(source, tmp_path / "out.y4m", progress=progress, cancel=token)
    with pytest.raises(reseed.ReseedError):
        session.upscale(source, tmp_path / "out.y4m")
    events = []
    report = session.upscale(source, tmp_path / "out.y4m", existing="resume", progress=events.append)
    assert events[0].frames > 0 and report.frames < 25, caught.value
    session.upscale(source, tmp_path / "whole.y4m")
    assert (tmp_path / "out.y4m").read_bytes() == (tmp_path / "whole.y4m").read_bytes()
    assert session.upscale(source, tmp_path / "out.y4m", existing="resume").complete


def test_errors_of_files(session, tmp_path):
    source = write_y4m(tmp_path / "in.y4m", clip(frames=2))
    (tmp_path / "there.y4m").write_text("mine")
    with pytest.raises(reseed.UsageError, match="already exists") as caught:
        session.upscale(source, tmp_path / "there.y4m")
    assert str(caught.value.path).endswith("there.y4m") and "--" not in str(caught.value)
    with pytest.raises(reseed.InputError):
        session.upscale(tmp_path / "none.y4m", tmp_path / "out.y4m")
    with pytest.raises(reseed.UsageError, match="end must be later"):
        session.upscale(source, tmp_path / "out.y4m", start=2, end="0:01")
    with pytest.raises(reseed.UsageError, match="existing: 'maybe'"):
        session.upscale(source, tmp_path / "out.y4m", existing="maybe")
    assert session.upscale(source, tmp_path / "there.y4m", existing="overwrite").frames == 2


def test_paths_are_frames(session, tmp_path):
    source = write_folder(tmp_path / "in", clip(frames=2))
    image = session.upscale_frames(source / "0000.png", scale=2)
    assert image.shape == (32, 48, 3)
    both = session.upscale_frames([str(source / "0000.png"), source / "0001.png"], scale=2)
    assert np.array_equal(both.numpy(), session.upscale_frames(source, scale=2).numpy())


def test_estimates(session, tmp_path):
    estimate = session.estimate((9, 16, 24), scale=2, batch_size=5)
    assert (estimate.input_size, estimate.output_size) == ((24, 16), (48, 32))
    assert (estimate.frames, estimate.batches, estimate.gpu_bytes, estimate.exact) == (9, 2, 0, True)
    assert estimate.seconds > 0 and estimate.host_bytes > 0 and estimate.fps > 0
    source = write_y4m(tmp_path / "in.y4m", clip(frames=4))
    assert session.estimate(source).frames == 4
    with pytest.raises(reseed.UsageError, match="frames, height, width"):
        session.estimate((0, 16, 24))


def test_the_command(tmp_path):
    version = command("--version").stdout
    assert version.startswith(f"reseed {reseed.__version__} ")
    module = subprocess.run([sys.executable, "-m", "reseed", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == version
    assert "no command given" in command("in.mp4", "out.mp4", code=2).stderr
    source = write_y4m(tmp_path / "in.y4m", clip(frames=1))
    unknown = command("upscale", source, tmp_path / "out.y4m", "--model", "5b", code=4)
    assert "5b: no such file or folder" in unknown.stderr


@pytest.mark.parametrize("module", [False, True])
def test_ctrl_c_ends_the_command(tmp_path, module):
    source = write_y4m(tmp_path / "in.y4m", clip(frames=1500, height=32, width=48))
    program = [sys.executable, "-m", "reseed"] if module else [Path(sys.executable).with_name("reseed")]
    args = ["upscale", source, tmp_path / "out.y4m", *TINY, "--threads", "1"]
    running = subprocess.Popen([*program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / ".out.y4m.partial").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE)
    finally:
        running.kill()
    assert running.returncode == 130 and "reseed: cancelled" in errors and "Traceback" not in errors, errors


def test_models_and_the_machine():
    names = [model.name for model in reseed.models.list()]
    assert names[:2] == ["nano", "nano-sharp"] and {"3b", "7b-q4"} <= set(names)
    assert [model.name for model in reseed.models.list() if model.embedded] == names[:2]
    with pytest.raises(reseed.ModelError, match="embedded"):
        reseed.models.path("nano")
    machine = reseed.doctor()
    assert machine["version"] == reseed.__version__ and machine["cpu"] and machine["memory_bytes"] > 0
