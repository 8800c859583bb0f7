"""Timed parts: rates of single layers, the VAE with and without a memory limit, and whole jobs."""
import json

from . import command
from .inputs import clip, decibels, decode, error_of, latents

# Shape, and the highest rate of cuDNN 9 with channels last that was measured on an H200.
LAYERS = {("128 > 128", "1280x720"): 609, ("256 > 128", "1280x720"): 636, ("256 > 256", "1280x720"): 683,
          ("256 > 256", "640x360"): 680, ("512 > 512", "320x180"): 704}
PORTABLE = 400  # TFLOP/s of the portable kernels on the same GPU
SPEED = {("decode", "1280x720", 17): 500, ("encode", "1280x720", 17): 250,  # milliseconds
         ("decode", "1920x1080", 1): 35, ("encode", "1920x1080", 1): 20}
PEAK_OF, PEAK = ("decode", "1280x720", 17), 12.0  # GiB
OVERLAP = 1.15  # time of a limited run relative to the longer of its arithmetic and its copies
ESTIMATE = 0.05  # relative difference of the measured memory from the estimate
RESTRICTED = {  # size, frames, --max-vram: time relative to a run without a limit
    ("1280x720", 17, "6G"): 1.3, ("1280x720", 17, "4G"): 1.9, ("1920x1080", 17, "12G"): 1.3,
    ("1920x1080", 17, "8G"): 1.8, ("3840x2160", 5, "15G"): 4.0, ("3840x2160", 5, "24G"): 1.4}
STEP = {"3b": 220, "7b": 330}  # milliseconds of one step on a latent of 17 frames 1280x720
COLORS, FRAME_MS, SLICE = ("lab", "wavelet", "wavelet-adaptive", "hsv", "adain"), 2.0, 5  # milliseconds; frames
JOB_FPS, JOB_LIMIT, BATCH = 15, "6G", 17
JOB_FRAMES = BATCH + 5 * (BATCH - 1)  # six full batches, which share one frame each
JOB = "job with 3b to 1280x720, steady state"
HOST, HOST_CORES = "job with 3b to 1280x720, busy host cores", 2  # of 16, so that eight lanes fit


def layer_row(name, shape, size):
    return f"conv {shape} at {size}, f16, {name}"


def speed_row(direction, size, frames):
    return f"{direction}, {frames} x {size}, f16"


def restricted_row(size, frames, limit, what):
    return f"decode, {frames} x {size}, --max-vram {limit}, {what}"


def step_row(model):
    return f"one step of {model} on a latent of 5x90x160, bf16"


def color_row(color):
    return f"frames finished at 1920x1080, {color}"


def job_row(what):
    return f"job with 3b, --max-vram {JOB_LIMIT}, {what}"


def rates_rows():
    yield from (layer_row(name, *layer) for name in ("native kernels", "portable kernels") for layer in LAYERS)


def speed_rows():
    for case in SPEED:
        yield speed_row(*case)
        if case == PEAK_OF:
            yield f"{speed_row(*case)}, GPU memory"


def restricted_rows():
    for case, slower in RESTRICTED.items():
        yield from (restricted_row(*case, what) for what in ("result", "GPU memory", "estimate", "overlap"))
        if slower:
            yield restricted_row(*case, "times slower")


def jobs_rows():
    yield from (*map(step_row, STEP), *map(color_row, COLORS), JOB, HOST, job_row("result"), job_row("GPU memory"))


def rates(args, name, variables, table):
    """Effective rates count the products of the direct algorithm, executed rates those that the GPU computes."""
    out = command.output([*args.check, "main", "f16"], **variables)
    for shape, size, effective, executed in command.RATE.findall(out):
        if (shape, size) in LAYERS:
            target = PORTABLE if variables else LAYERS[shape, size]
            stated = f"effective >= {target}" + ("" if variables else " (cuDNN 9)")
            algorithm = "direct" if effective == executed else "Winograd F(3,3)"
            table.add(layer_row(name, shape, size), algorithm, stated, int(effective) >= target,
                      effective=effective, executed=executed)


def bench(args, direction, size, frames, repeat, *more):
    """The event of `reseed bench vae`, and the peak GPU memory in GiB."""
    words = [args.reseed, "bench", "vae", direction, "--size", size, "--frames", frames, "--device", args.device,
             "--repeat", repeat, *more]
    with command.PeakMemory(args.memory) as memory:
        event = command.event(words)
    return event, memory.gib


def speed(args, case, times, table):
    event, gib = bench(args, *case, 5)
    times[case] = event[command.MEDIAN]
    ms, target = times[case] * 1e3, SPEED[case]
    table.add(speed_row(*case), f"{ms:.1f} ms", f"<= {target} ms", ms <= target)
    if case == PEAK_OF:
        table.add(f"{speed_row(*case)}, GPU memory", f"{gib:.2f} GiB", f"<= {PEAK:g} GiB", 0 < gib <= PEAK)


def estimates(args, folder, found, _):
    """GiB that `reseed estimate` states for each limited decode; also makes the inputs."""
    for size, frames, limit in RESTRICTED:
        words = [args.reseed, "estimate", "vae", "decode", "--size", size, "--frames", frames, "--max-vram", limit,
                 "--device", args.device]
        found[size, frames, limit] = command.event(words)[command.DEVICE_PEAK_BYTES] / 2**30
        latents(folder, size, frames)


def restricted(args, folder, case, whole, estimated, table):
    """The result and the memory of a limited run. `whole` holds the last decode without a limit."""
    (size, frames, limit), row = case, lambda what: restricted_row(*case, what)
    if (size, frames) not in whole:
        whole.clear()
        whole[size, frames] = decode(args, folder, size, frames)[0]
    got, gib = decode(args, folder, size, frames, "--max-vram", limit)
    off, scale = error_of(whole[size, frames], got)
    # Two f16 runs that add in another order differ like f16 differs from f32.
    value = f"{decibels(off):.1f} dB from" if off else "equal to"
    table.add(row("result"), f"{value} the unlimited run", ">= 60 dB", off <= 4e-3 and scale > 0)
    table.add(row("GPU memory"), f"{gib:.2f} GiB", f"<= {limit[:-1]} GiB", 0 < gib <= float(limit[:-1]))
    value = f"{gib:.2f} of {estimated[case]:.2f} GiB estimated"
    near = abs(gib / estimated[case] - 1) <= ESTIMATE
    table.add(row("estimate"), value, f"within {ESTIMATE:.0%}", near)


def restricted_time(args, case, times, table):
    (size, frames, limit), slower, row = case, RESTRICTED[case], lambda what: restricted_row(*case, what)
    event, _ = bench(args, "decode", size, frames, 2, "--max-vram", limit)
    arithmetic = event[command.DEVICE_SECONDS] - event[command.COPY_WAIT_SECONDS]
    share = event[command.MEDIAN] / max(arithmetic, event[command.COPY_SECONDS])
    value = f"{share:.2f} of the longer of arithmetic and copies"
    table.add(row("overlap"), value, f"<= {OVERLAP}", share <= OVERLAP)
    if slower:
        key = ("decode", size, frames)
        free = times.get(key) or bench(args, *key, 2)[0][command.MEDIAN]
        ratio = event[command.MEDIAN] / free
        table.add(row("times slower"), f"{ratio:.2f}", f"<= {slower}", ratio <= slower)


def upscale(args, folder, frames, *more):
    """Progress events, the bytes of the output, and the peak GPU memory in GiB."""
    out = folder / f"upscaled_{frames}_{len(more)}.y4m"
    words = [args.reseed, "upscale", clip(folder, frames), out, "--model", "formula:3b", "--size", "1280x720",
             "--batch-size", BATCH, "--device", args.device, "--json", *more]
    with command.PeakMemory(args.memory) as memory:
        text = command.output(words)
    events = [json.loads(line) for line in text.splitlines()]
    return [event for event in events if event[command.EVENT] == command.PROGRESS], out.read_bytes(), memory.gib


def step(args, model, table):
    words = [args.reseed, "bench", "dit", "--model", f"formula:{model}", "--latent", "5x90x160"]
    ms = command.event([*words, "--device", args.device])[command.MEDIAN] * 1e3
    table.add(step_row(model), f"{ms:.1f} ms", f"<= {STEP[model]} ms", ms <= STEP[model])


def color(args, name, table):
    words = [args.reseed, "bench", "color", "--color", name, "--from", "960x540", "--size", "1920x1080"]
    ms = command.event([*words, "--frames", SLICE, "--repeat", 9, "--device", args.device])[command.FRAME_MS]
    table.add(color_row(name), f"{ms:.2f} ms a frame", f"<= {FRAME_MS:g} ms", ms <= FRAME_MS)


def jobs(args, folder, table):
    done, want, _ = upscale(args, folder, JOB_FRAMES)
    frame, elapsed = (lambda event: event[command.FRAME]), (lambda event: event[command.FRAME] / event[command.FPS])
    first, last = next(event for event in done if frame(event) >= BATCH), done[-1]
    rate = (frame(last) - frame(first)) / (elapsed(last) - elapsed(first))
    table.add(JOB, f"{rate:.1f} fps", f">= {JOB_FPS} fps", rate >= JOB_FPS)
    words = ["bench", "upscale", "--model", "formula:3b", "--size", "1280x720", "--batches", 6]
    cores = command.event([args.reseed, *words, "--device", args.device])[command.HOST_CORES]
    table.add(HOST, f"{cores:.2f}", f"<= {HOST_CORES}", cores <= HOST_CORES)
    _, got, gib = upscale(args, folder, BATCH, "--max-vram", JOB_LIMIT)
    body = lambda data: len(data) - data.index(b"\n") - 1
    apart = [abs(a - b) for a, b in zip(want[::97], got[::97])]
    mean = (sum(d * d for d in apart) / len(apart)) ** 0.5
    # The last bit of f16 in the encoder changes the rounding of the transformer to bf16: 6e-3 of half the range.
    good = BATCH * body(want) == JOB_FRAMES * body(got) and mean <= 6e-3 * 128
    table.add(job_row("result"), f"RMS difference {mean:.2f} of 255, largest {max(apart)}", "<= 0.77", good)
    limit = float(JOB_LIMIT[:-1])
    table.add(job_row("GPU memory"), f"{gib:.2f} GiB", f"<= {limit:g} GiB", 0 < gib <= limit)
