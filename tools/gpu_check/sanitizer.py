"""Kernels under compute-sanitizer: accesses out of bounds in every op, and races in shared memory in the VAE."""
import re

from . import command

# Arguments of the check, and its environment.
KERNELS = {"native kernels": ([], {}), "portable kernels": ([], {"RESEED_KERNELS": "portable"}),
           "kernels of GeForce GPUs, fast": (["fast"], {"RESEED_KERNELS": "geforce"})}
# Sides that no kernel's tile divides. Racecheck is too slow for the cases of every op.
VAE = ["--size", "24x16", "--frames", "5", "--repeat", "1"]
ERRORS = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", re.M)
EXIT = 86  # of the sanitizer where it found something


def memcheck_row(name):
    return f"compute-sanitizer memcheck, every op, {name}"


def racecheck_row(direction, name):
    return f"compute-sanitizer racecheck, {direction}, {name}"


def sanitizer_rows():
    yield from map(memcheck_row, KERNELS)
    yield from (racecheck_row(direction, name) for direction in ("encode", "decode") for name in KERNELS)


def run(tool, words, environment):
    """The exit code, the output, and the number of errors in words."""
    words = ["compute-sanitizer", "--tool", tool, "--error-exitcode", EXIT, *words]
    code, out, error = command.run(words, **environment)
    found = ERRORS.findall(out)
    return code, out, f"{found[0]} errors" if found else (out.strip().splitlines() or [error])[-1]


def memcheck(args, name, table):
    mode, environment = KERNELS[name]
    code, out, errors = run("memcheck", [*args.check, "f16", *mode], environment)
    wrong = command.DISAGREEMENTS.findall(out)
    value = f"{errors}, {(wrong or ['unknown'])[0]} disagreements"
    table.add(memcheck_row(name), value, "0", code == 0 and wrong == ["0"])


def racecheck(args, case, table):
    direction, name = case
    mode, environment = KERNELS[name]
    words = [args.reseed, "bench", "vae", direction, *VAE, "--device", args.device]
    code, _, errors = run("racecheck", words + (["--precision", *mode] if mode else []), environment)
    table.add(racecheck_row(direction, name), errors, "0", code == 0)


def parts(args):
    yield from ((memcheck, args, name) for name in KERNELS)
    yield from ((racecheck, args, (direction, name)) for direction in ("encode", "decode") for name in KERNELS)
