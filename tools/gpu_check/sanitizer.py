"""Every op and the work on frames under compute-sanitizer: accesses out of bounds, and races in shared memory."""
import re

from . import command

TOOLS = ("memcheck", "racecheck")
# Arguments of the check, and its environment.
KERNELS = {"native kernels": (["f16"], {}), "portable kernels": (["f16"], {"RESEED_KERNELS": "portable"}),
           "kernels of GeForce GPUs, fast": (["f16", "fast"], {"RESEED_KERNELS": "geforce"})}
ERRORS = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", re.M)
EXIT = 86  # of the sanitizer where it found something


def sanitizer_row(tool, name):
    return f"compute-sanitizer {tool}, {name}"


def sanitizer_rows():
    yield from (sanitizer_row(tool, name) for tool in TOOLS for name in KERNELS)


def sanitizer(args, case, table):
    tool, name = case
    words, environment = KERNELS[name]
    checked = ["compute-sanitizer", "--tool", tool, "--error-exitcode", EXIT, *args.check, *words]
    code, out, error = command.run(checked, **environment)
    found, wrong = ERRORS.findall(out), command.DISAGREEMENTS.findall(out)
    last = (out.strip().splitlines() or [error])[-1]
    value = f"{found[0]} errors, {wrong[0]} disagreements" if found and wrong else last
    table.add(sanitizer_row(tool, name), value, "0", code == 0 and found == wrong == ["0"])
