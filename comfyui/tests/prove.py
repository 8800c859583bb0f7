"""Proves the nodes in a real ComfyUI.

    prove.py --comfyui FOLDER --work FOLDER [--only NAME...]

Starts ComfyUI headless with the pack and compares what its nodes make with the command line, byte for byte. Every check
prints one line. The exit status is 1 if one fails.
"""
import argparse
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy
from PIL import Image

import media
import prompts
import quantized
from bad_input import bad_inputs, bad_prompts
from comfy_server import Comfy

TESTS = Path(__file__).resolve().parent
PACK = TESTS.parent
sys.path.insert(0, str(TESTS / "test_nodes"))
from pattern import frames  # noqa: E402  The pack of test nodes itself needs ComfyUI.

MIB = 1 << 20
RESEED = Path(sys.executable).with_name("reseed")


def command_line(*arguments):
    """Runs the command of the package."""
    done = subprocess.run([RESEED, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"reseed {arguments}: {done.stderr}"


class Proof:
    """A server, a folder, and the checks."""

    def __init__(self, source, work):
        self.source, self.work = source, work
        self.base = work / "base"
        self.nano = work / "nano"
        subprocess.run([sys.executable, PACK.parent / "tools/nano", "unpack", self.nano], check=True)
        self.comfy = Comfy(source, self.base, {"reseed": PACK, "reseed_tests": TESTS / "test_nodes"})
        self.output = self.base / "output"

    def result(self, name):
        """Recorded images, rounded to 8 bits as the engine rounds them: in 32 bits, halves up."""
        values = numpy.load(self.output / f"{name}.npy").astype(numpy.float32)
        return numpy.floor(values * numpy.float32(255) + numpy.float32(0.5)).astype(numpy.uint8)

    def succeed(self, prompt, seconds=600):
        """Runs a prompt that must succeed."""
        outcome = self.comfy.run(prompt, seconds)
        assert outcome.status == "success", outcome.error() or outcome.messages
        return outcome

    def write_frames(self, name, clip):
        """Writes a clip as a folder of PNG files."""
        folder = self.work / name
        folder.mkdir(parents=True, exist_ok=True)
        for index, frame in enumerate(clip):
            Image.fromarray(frame).save(folder / f"{index:04}.png")
        return folder

    def read_frames(self, folder):
        """Reads a folder of PNG files."""
        return numpy.stack([numpy.asarray(Image.open(path)) for path in sorted(folder.glob("*.png"))])

    def by_command_line(self, name, clip, *options):
        """The clip as the command line restores it."""
        source, target = self.write_frames(f"{name}-in", clip), self.work / f"{name}-out"
        command_line("upscale", source, target, "--device", "cpu", *options)
        return self.read_frames(target)


def images(proof):
    """Frames of a clip equal the command line's."""
    lines = []
    for model, channels in (("formula:tiny", 3), ("nano", 4)):
        name = f"images-{model.replace(':', '-')}"
        proof.succeed(prompts.upscale_images(name, prompts.model(model), prompts.clip(channels=channels)))
        expected = proof.by_command_line(name, frames(7, 32, 48, channels), "--model", model, "--scale", "2")
        assert numpy.array_equal(proof.result(name), expected), f"{name} differs from the command line"
        lines.append(f"{model} {list(expected.shape)}")
    assert proof.comfy.texts(), "no node showed its estimate"
    assert proof.comfy.previews(), "no node showed a preview"
    assert proof.comfy.progress("3")[-1] == (7.0, 7.0), "the progress bar did not reach its end"
    shown = proof.comfy.texts()[0].replace("\n", " ")
    return f"equal to the command line: {', '.join(lines)}; {len(proof.comfy.previews())} previews; estimate: {shown}"


def independent_images(proof):
    """Independent images equal one run per image."""
    prompt = prompts.upscale_images("independent", prompts.model(), prompts.clip(count=3), independent=True)
    proof.succeed(prompt)
    for index, frame in enumerate(frames(3, 32, 48)):
        source, target = proof.work / f"still-{index}.png", proof.work / f"still-{index}-out.png"
        Image.fromarray(frame).save(source)
        command_line("image", source, target, "--device", "cpu", "--model", "formula:tiny", "--scale", "2")
        assert numpy.array_equal(proof.result("independent")[index], numpy.asarray(Image.open(target))), index
    return "3 images equal three runs of `reseed image`"


def newest(folder, pattern):
    """The newest file of a folder."""
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)


def video_file(proof):
    """A video file, a part of it, and another codec equal the command line's files."""
    source = media.make_video(proof.base / "input/short.mp4", 20)
    options = ("--device", "cpu", "--model", "formula:tiny")
    cases = {
        "whole": ({}, ()),
        "part": ({"part": (0.2, 0.4)}, ("--start", "0.2", "--end", "0.6")),
        "ffv1": ({"codec": "ffv1", "container": "mkv"}, ("--codec", "ffv1")),
    }
    sizes = []
    for name, (choices, extra) in cases.items():
        proof.succeed(prompts.upscale_video("short.mp4", prompts.model(), f"video/{name}", **choices))
        container = choices.get("container", "mp4")
        expected = proof.work / f"{name}.{container}"
        command_line("upscale", source, expected, *options, *extra)
        made = newest(proof.base / "temp/reseed", f"*.{container}")
        assert made.read_bytes() == expected.read_bytes(), f"{name}: {made} differs from {expected}"
        assert list((proof.output / "video").glob(f"{name}*")), f"{name}: nothing saved"
        sizes.append(f"{name} {expected.stat().st_size} bytes")
    return f"files equal the command line's: {', '.join(sizes)}"


def vae(proof):
    """Encode and decode equal the command line's round trip."""
    proof.succeed(prompts.vae_round_trip("vae", prompts.model(), prompts.clip(count=5)))
    source, target = proof.write_frames("vae-in", frames(5, 32, 48)), proof.work / "vae-out"
    command_line("vae", "roundtrip", source, target, "--weights", "formula:tiny", "--device", "cpu")
    expected = proof.read_frames(target)
    assert numpy.array_equal(proof.result("vae"), expected), "the round trip differs from the command line"
    return f"round trip equals the command line's: {list(expected.shape)}"


def public_prompts(proof):
    """Prompts saved with the public pack's identifiers run. Weights of `nano` stand in for the public files."""
    folder = proof.base / "models/SEEDVR2"
    for dit, _, _ in prompts.EXAMPLES.values():
        shutil.copyfile(proof.nano / "dit.safetensors", folder / dit[0])
    shutil.copyfile(proof.nano / "vae.safetensors", folder / "ema_vae_fp16.safetensors")
    lines = []
    for name, (dit, vae_values, upscaler) in prompts.EXAMPLES.items():
        # The other two take many minutes on a CPU: all their widgets keep their values but the two of the size.
        if name != "simple image":
            upscaler = (upscaler[0], 64, min(upscaler[2], 128), *upscaler[3:])
        clip = prompts.clip(count=1 if "image" in name else 9, channels=4 if "4K" in name else 3)
        proof.succeed(prompts.public(f"public {name}", clip, dit, vae_values, upscaler))
        lines.append(f"{name} {list(proof.result(f'public {name}').shape)}")
    # A prompt written by hand may leave out optional widgets and titles.
    prompt = prompts.public("public short", prompts.clip(count=1), *prompts.EXAMPLES["simple image"], False)
    for each in prompt.values():
        each.pop("_meta")
    for name in ("temporal_overlap", "offload_device", "enable_debug", "latent_noise_scale"):
        del prompt["10"]["inputs"][name]
    prompt["10"]["inputs"]["resolution"] = 64
    proof.succeed(prompt)
    ignored = [line for line in proof.comfy.texts() if "ignores" in line]
    assert ignored, "no line names the ignored settings"
    return f"{', '.join(lines)}; {ignored[0]}"


def interrupt(comfy, prompt, frames_done):
    """Interrupts a prompt when so many frames are done, and returns the seconds until it has ended."""
    seen = len(comfy.progress("3"))
    prompt_id = comfy.queue(prompt)
    end = time.monotonic() + 120
    while not any(done >= frames_done for done, _ in comfy.progress("3")[seen:]) and time.monotonic() < end:
        time.sleep(0.02)
    asked = time.time()
    comfy.post("/interrupt", {})
    outcome = comfy.wait(prompt_id)
    kinds = [kind for kind, _ in outcome.messages]
    assert "execution_interrupted" in kinds, kinds
    return outcome.time_of("execution_interrupted") - asked


def cancel(proof):
    """A running job ends within a second of the interrupt. A cancelled video is continued by the next run."""
    clip = prompts.clip(count=200, height=64, width=96)
    stopped = {"images": interrupt(proof.comfy, prompts.upscale_images("cancel", prompts.model("nano"), clip), 1)}
    # One batch of this takes several seconds on a CPU: the engine cannot stop within it, and the node does not wait.
    clip = prompts.clip(count=5, height=512, width=768)
    stopped["large frames"] = interrupt(proof.comfy, prompts.upscale_images("cancel", prompts.model("nano"), clip), 0)

    source = media.make_video(proof.base / "input/long.mp4", 150)
    video = prompts.upscale_video("long.mp4", prompts.model(), "video/cancel")
    stopped["video"] = interrupt(proof.comfy, video, 20)
    slowest = max(stopped.values())
    assert slowest < 5, stopped
    seen = len(proof.comfy.progress("3"))
    proof.succeed(video)
    continued = next(done for done, total in proof.comfy.progress("3")[seen:] if total == 150)
    assert continued > 0, "the cancelled video started again from its first frame"
    expected = proof.work / "cancel.mp4"
    command_line("upscale", source, expected, "--device", "cpu", "--model", "formula:tiny")
    made = newest(proof.base / "temp/reseed", "*.mp4")
    assert made.read_bytes() == expected.read_bytes(), "the continued video differs from the command line's"
    times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stopped.items())
    return f"{times}; the video continued at frame {continued:.0f} and equals the command line's"


def free(proof):
    """`/free` releases the memory of the engine."""
    large = prompts.clip(count=5, height=256, width=384)
    proof.succeed(prompts.upscale_images("free", prompts.model("nano"), large))
    before = proof.comfy.rss()
    end = time.monotonic() + 20
    while proof.comfy.rss() > before - 20 * MIB and time.monotonic() < end:
        # On a busy machine ComfyUI's worker may miss a request that arrives just before it waits for the next prompt.
        proof.comfy.post("/free", {"unload_models": True, "free_memory": True})
        time.sleep(1)
    after = proof.comfy.rss()
    assert after < before - 20 * MIB, f"{before / MIB:.0f} MiB before, {after / MIB:.0f} MiB after"
    proof.succeed(prompts.upscale_images("again", prompts.model("nano"), prompts.clip(count=2)))
    return f"{before / MIB:.0f} MiB before, {after / MIB:.0f} MiB after; the next run loads the model again"


def long_video(proof):
    """Memory stays flat over a video of 2,000 frames."""
    media.make_video(proof.base / "input/soak.mp4", 2000, "32x32")
    prompt_id = proof.comfy.queue(prompts.upscale_video("soak.mp4", prompts.model(), "video/soak", scale=1.5))
    samples = []
    while prompt_id not in proof.comfy.get(f"/history/{prompt_id}"):
        done = [value for value, _ in proof.comfy.progress("3")[-1:]]
        samples.append((done[0] if done else 0, proof.comfy.rss()))
        time.sleep(0.25)
    outcome = proof.comfy.wait(prompt_id)
    assert outcome.status == "success", outcome.error()
    early = max(rss for done, rss in samples if 200 <= done < 700)
    late = max(rss for done, rss in samples if done >= 1500)
    assert late < early + 32 * MIB, f"{early / MIB:.0f} MiB early, {late / MIB:.0f} MiB late"
    return f"2000 frames: {early / MIB:.0f} MiB in the first third, {late / MIB:.0f} MiB in the last quarter"


def side_by_side(proof):
    """Where a pack with the public identifiers is installed, its nodes stay, and ours work beside them.

    That server keeps images as 16-bit floats, as some users choose.
    """
    packs = {"reseed": PACK, "reseed_tests": TESTS / "test_nodes", "public": TESTS / "public_pack"}
    comfy = Comfy(proof.source, proof.work / "both", packs, options=("--fp16-intermediates",))
    try:
        prompt = {
            "1": prompts.clip(count=2),
            "2": prompts.node("SeedVR2VideoUpscaler", image=["1", 0]),
            "3": prompts.node("ReseedTestSave", images=["2", 0], name="theirs"),
            "4": prompts.model(),
            "5": prompts.node("ReseedUpscaleImages", images=["1", 0], model=["4", 0], independent=False,
                              **prompts.SETTINGS),
            "6": prompts.node("ReseedTestSave", images=["5", 0], name="ours"),
        }
        outcome = comfy.run(prompt)
        assert outcome.status == "success", outcome.error()
        theirs, ours = (numpy.load(comfy.base / f"output/{name}.npy") for name in ("theirs", "ours"))
        assert theirs.shape == (1, 1, 1, 3) and ours.shape == (2, 64, 96, 3), (theirs.shape, ours.shape)
        assert ours.dtype == numpy.float16, ours.dtype
    finally:
        comfy.stop()
    return "the other pack's node ran under its own identifier, ours beside it, with images of 16-bit floats"


def quantized_files(proof):
    """Files that ComfyUI's library has quantised give the result of the values that it reads back from them."""
    source, lines = proof.work / "quantized-in.png", []
    Image.fromarray(frames(1, 32, 48)[0]).save(source)

    def result(dit):
        target = dit.with_suffix(".png")
        options = ("--device", "cpu", "--dtype", "f32", "--scale", "2", "--vae", proof.nano / "vae.safetensors")
        command_line("image", source, target, "--model", dit, *options)
        return numpy.asarray(Image.open(target)).astype(int)

    for name in quantized.FORMATS:
        stored, values, count = quantized.write(proof.nano / "dit.safetensors", proof.work / name, name)
        difference = numpy.abs(result(stored) - result(values)).max()
        # The library rotates by a product of matrices, whose sums differ in their last bits: a value near the border of
        # two codes may be rounded to the other one.
        assert difference <= (1 if name == "int8_tensorwise" else 0), f"{name}: {difference}"
        assert count > 0, name
        lines.append(f"{name} {count} matrices")
    return f"equal to their values: {', '.join(lines)}"


CHECKS = [images, independent_images, video_file, vae, public_prompts, cancel, free, long_video, bad_inputs,
          bad_prompts, side_by_side, quantized_files]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comfyui", type=Path, required=True, help="folder of ComfyUI")
    parser.add_argument("--work", type=Path, required=True, help="folder for everything that is written")
    parser.add_argument("--only", nargs="*", help="names of checks")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    start = time.monotonic()
    proof, failed = Proof(options.comfyui, options.work.resolve()), 0
    print(f"ComfyUI started in {time.monotonic() - start:.0f} s", flush=True)
    try:
        for check in CHECKS:
            if options.only and check.__name__ not in options.only:
                continue
            start = time.monotonic()
            try:
                print(f"ok    {check.__name__}: {check(proof)} ({time.monotonic() - start:.0f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL  {check.__name__}:\n{traceback.format_exc()}", flush=True)
    finally:
        proof.comfy.stop()
    print(f"{failed} checks failed" if failed else "all checks passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
