"""Correctness, speed targets and profile on a machine with a GPU; builds nothing.

    tools/gpu-check --reseed BIN [--table FILE.md] [--device cuda:0] [--only PARTS] [--goldens DIR]... [--check BIN]

BIN is a copied `reseed`. --check names the program `reseed-check`; unless given it is next to BIN. Golden files are
taken from this repository or from --goldens. PARTS are some of correctness, accuracy, rates, speed, restricted, jobs
and sanitizer, with commas; unless given all but the last, which needs compute-sanitizer of the CUDA toolkit. --table
writes the result as Markdown: hardware, driver, date, program, weights and command, then one row per check. The exit
code is 1 when a row fails or is missing, and 2 when --only names a part that does not exist. Targets are for one H200
and formula weights at full size. GPU memory is the increase that nvidia-smi shows. Checks without timing run at the
same time. Takes about six minutes.

Effective TFLOP/s count the arithmetic of the direct algorithm and compare with cuDNN. Executed TFLOP/s count the
products that the GPU computes and compare with its peak. They differ for Winograd F(3,3), which has five products
instead of nine.
"""
import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from . import command, correctness, sanitizer, speed
from .table import Table, seconds

ROWS = {"correctness": correctness.correctness_rows, "accuracy": correctness.accuracy_rows, "rates": speed.rates_rows,
        "speed": speed.speed_rows, "restricted": speed.restricted_rows, "jobs": speed.jobs_rows,
        "sanitizer": sanitizer.sanitizer_rows}
USUAL = ",".join(part for part in ROWS if part != "sanitizer")


def untimed(args, folder, parts, estimated, table):
    work = []
    if "correctness" in parts:
        work += [(correctness.conformance, args, name) for name in correctness.CONFORMANCE]
        work += [(correctness.goldens, args)]
    if "accuracy" in parts:
        work += [(correctness.accuracy, args, folder)]
        work += [(correctness.transformer, args, case) for case in correctness.TRANSFORMERS]
    if "restricted" in parts:
        work += [(speed.estimates, args, folder, estimated)]
    table.run_together(work)


def check(args, folder, parts, table):
    times, whole, estimated = {}, {}, {}
    untimed(args, folder, parts, estimated, table)
    # Several at once slow each other down.
    for part in sanitizer.parts(args) if "sanitizer" in parts else ():
        table.run(*part)
    if "rates" in parts:
        table.run(speed.rates, args, "native kernels", {})
        table.run(speed.rates, args, "portable kernels", {"RESEED_KERNELS": "portable"})
    if "speed" in parts:
        for case in speed.SPEED:
            table.run(speed.speed, args, case, times)
    if "restricted" in parts:
        for case in speed.RESTRICTED:
            table.run(speed.restricted, args, folder, case, whole, estimated)
            table.run(speed.restricted_time, args, case, times)
    if "jobs" in parts:
        for model in speed.STEP:
            table.run(speed.step, args, model)
        for color in speed.COLORS:
            table.run(speed.color, args, color)
        table.run(speed.jobs, args, folder)


def first_line(words):
    """The first line that a command prints, or "unknown"."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    except OSError:
        return "unknown"
    return (done.stdout.strip().splitlines() or ["unknown"])[0] if done.returncode == 0 else "unknown"


def facts(args):
    """What a reader of the table must know, as Markdown."""
    index = args.device.partition(":")[2] or "0"
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader", "-i", index]
    gpu = [part.strip() for part in first_line(query).split(",")]
    cpu = first_line(["sh", "-c", "sed -n 's/^model name.*: //p' /proc/cpuinfo"])
    words = ["tools/gpu-check", "--reseed", args.reseed.name, "--device", args.device]
    words += [] if args.only == USUAL else ["--only", args.only]
    return "".join(f"* {name}: {value}\n" for name, value in {
        "Hardware": f"{', '.join(gpu[:-1])}; {cpu}, {os.cpu_count()} cores", "Driver": gpu[-1],
        "Date": time.strftime("%Y-%m-%d"), "Program": first_line([args.reseed, "--version"]),
        "Weights": "formula weights at full size, not trained", "Command": f"`{shlex.join(words)}`"}.items())


def profile(args):
    words = ["bench", "vae", "decode", "--size", "1280x720", "--frames", 17, "--device", args.device, "--repeat", 1]
    return command.run([args.reseed, *words, "--profile"])[1]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reseed", required=True, type=lambda text: pathlib.Path(text).resolve(), metavar="BIN")
    parser.add_argument("--check", type=lambda text: [pathlib.Path(text).resolve()], metavar="BIN")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE", help="Markdown file to write")
    parser.add_argument("--goldens", action="append", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", default=USUAL, metavar="PARTS", help=f"some of {', '.join(ROWS)}")
    args = parser.parse_args()
    args.check = args.check or [args.reseed.with_name("reseed-check")]
    args.parts = [part for part in args.only.split(",") if part]
    unknown = [part for part in args.parts if part not in ROWS]
    if unknown or not args.parts:
        named = f"no part is named {', '.join(unknown)}" if unknown else "no part is named"
        parser.exit(2, f"gpu-check: --only: {named}; the parts are {', '.join(ROWS)}\n")
    return args


def main():
    args = arguments()
    if not shutil.which("nvidia-smi"):
        sys.exit("gpu-check: nvidia-smi is missing; it shows the GPU memory in use")
    header = facts(args)
    print(header, flush=True)
    table = Table(row for part in ROWS if part in args.parts for row in ROWS[part]())
    args.memory = command.MemoryMonitor(args.device)
    # Outputs are large and are read once: a memory file system is the place for them if it has the space.
    shared = pathlib.Path("/dev/shm")
    roomy = shared.is_dir() and shutil.disk_usage(shared).free > 8 << 30
    try:
        with tempfile.TemporaryDirectory(dir=shared if roomy else None) as folder:
            check(args, pathlib.Path(folder), args.parts, table)
    finally:
        args.memory.process.terminate()
    print("\n" + profile(args))
    failed, errors = table.failed(), "".join(f"* {error}\n" for error in table.errors)
    summary = f"{len(table.rows)} rows, {len(failed)} failed or missing, {seconds():.0f} s."
    result = f"{header}\n{table.markdown()}\n{errors}{summary}\n"
    print(f"\n{table.markdown()}\n{errors}{summary}")
    print("".join(f"failed: {what}\n" for what in failed), end="")
    if args.table:
        args.table.write_text(result)
    sys.exit(1 if failed else 0)
