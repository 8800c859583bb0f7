"""Kernels under compute-sanitizer: accesses out of bounds in every op, races in shared memory in the main layers."""
import re

from . import command

# Arguments of the check, and its environment.
KERNELS = {"native kernels": ([], {}), "native kernels, int8": (["int8"], {}),
           "portable kernels": ([], {"RESEED_KERNELS": "portable"}),
           "kernels of GeForce GPUs, fast": (["fast"], {"RESEED_KERNELS": "geforce"})}
ERRORS = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", re.M)
EXIT = 86  # of the sanitizer where it found something


def memcheck_row(name):
    return f"compute-sanitizer memcheck, every op, {name}"


def racecheck_row(name):
    return f"compute-sanitizer racecheck, main layers, {name}"


def sanitizer_rows():
    yield from map(memcheck_row, KERNELS)
    yield from map(racecheck_row, KERNELS)


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


def racecheck(args, name, table):
    """Racecheck is too slow for the cases of every op, and for a whole VAE."""
    mode, environment = KERNELS[name]
    code, _, errors = run("racecheck", [*args.check, "layers", "f16", *mode], environment)
    table.add(racecheck_row(name), errors, "0", code == 0)


def parts(args):
    yield from ((check, args, name) for check in (memcheck, racecheck) for name in KERNELS)
