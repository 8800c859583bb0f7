"""Starts every file of a release in a new folder, with an environment that holds nothing but that folder."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from . import pythons, wine

# How to run a program of another system, and the commands that install what it needs. The emulated CPU has no products
# of bf16, which take the emulator longer than those of f32.
EMULATORS = {
    "linux-x64": ([], ""),
    "linux-arm64": (["qemu-aarch64-static", "-cpu", "cortex-a72", "-L", "/usr/aarch64-linux-gnu"],
                    "sudo apt-get install qemu-user-static libc6-arm64-cross"),
    "windows-x64": (["wine"], "sudo apt-get install wine wine64"),
}
# Options of the demo: an emulator needs up to two hours for all frames of the clip.
SHORT = {"linux-arm64": ("--frames", "5")}
# What a wheel for another system upscales from Python.
TINY_CLIP = pathlib.Path(__file__).with_name("tiny_clip.py")
DEBS = {"_amd64.deb": "linux-x64", "_arm64.deb": "linux-arm64"}
WHEELS = {"manylinux_2_28_x86_64": "linux-x64", "manylinux_2_28_aarch64": "linux-arm64", "win_amd64": "windows-x64"}


def everything(out, names, version, glibc):
    """Runs the demo of every artefact of these systems. Returns those that cannot be started, with the reason."""
    skipped = []
    for file in sorted(out.iterdir()):
        system = system_of(file, names)
        if system is None:
            continue
        print(f"\n== {file.name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="reseed-dist-") as folder:
            folder = pathlib.Path(folder)
            if file.suffix == ".whl":
                why = wheel(file, folder, system, glibc)
                skipped += [(file.name, why)] if why else []
            else:
                unpack(file, folder)
                program = next(path for path in folder.rglob("reseed*") if is_program(path))
                if system.startswith("linux"):
                    old_enough(program, glibc)
                demo([*emulator(system, folder), program], folder, system, version)
    return skipped


def is_program(path):
    """Completions have the same name."""
    return path.name == "reseed.exe" or path.name == "reseed" and path.is_file() and os.access(path, os.X_OK)


def system_of(file, names):
    """The system that a file is for. An image is started when it is made."""
    if file.name.endswith(".oci.tar"):
        return None
    for mapping in (DEBS, WHEELS, {name: name for name in EMULATORS}):
        for part, system in mapping.items():
            if part in file.name and system in names:
                return system
    return None


def emulator(system, folder):
    command, install = EMULATORS[system]
    if command and not shutil.which(command[0]):
        sys.exit(f"{command[0]} is missing: {install}")
    if command == ["wine"]:
        wine.add_random_numbers(folder)
    return command


def unpack(file, folder):
    if file.name.endswith(".zip"):
        zipfile.ZipFile(file).extractall(folder)
    elif file.name.endswith(".deb"):
        subprocess.run(["dpkg-deb", "--extract", file, folder], check=True)
    else:
        with tarfile.open(file) as archive:
            archive.extractall(folder, filter="data")


def old_enough(program, glibc):
    """No symbol of a C library later than the promised one."""
    table = subprocess.run(["objdump", "-T", program], capture_output=True, check=True, text=True).stdout
    newest = max((tuple(map(int, number.split("."))) for number in re.findall(r"GLIBC_([\d.]+)", table)))
    found = ".".join(map(str, newest))
    if newest > tuple(map(int, glibc.split("."))):
        sys.exit(f"{program.name} needs GLIBC_{found}, and {glibc} is promised")
    print(f"needs a C library from {found} on")


def asker(command, folder):
    """A function that runs a command in a folder with further arguments, and returns what it prints. Messages pass
    through a pipe: a Python for Windows does not start under wine where they go to a file."""
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "WINEDEBUG": "-all",
                   "WINEPREFIX": os.environ.get("WINEPREFIX", str(folder / "prefix")), "WINEPATH": wine.path_of(folder)}

    def ask(*args):
        result = subprocess.run([*command, *args], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        sys.stderr.write(result.stderr)
        result.check_returncode()
        return result.stdout

    return ask


def demo(command, folder, system, version):
    """Version, doctor and demo."""
    ask = asker(command, folder)
    line = ask("--version")
    print(line, ask("doctor"), sep="", end="", flush=True)
    if not line.startswith(f"reseed {version} (commit "):
        sys.exit(f"a wrong version: {line}")
    print(ask("demo", "--device", "cpu", *SHORT.get(system, ())), flush=True)
    written = sorted(path.stem for path in (folder / "reseed-demo").iterdir() if path.stat().st_size)
    if written != ["clip", "clip-compare", "photo", "photo-compare"]:
        sys.exit(f"the demo has written {written}")


def wheel(file, folder, system, glibc):
    """Installs a wheel in a new environment. Returns why it cannot be started here, if so."""
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "unpacked")
    library = next(path for path in (folder / "unpacked").rglob("_reseed*") if path.suffix in (".so", ".pyd"))
    if system.startswith("linux"):
        old_enough(library, glibc)
    version = file.name.split("-")[1]
    if system != "linux-x64":
        try:
            python = pythons.python_with(system, file, emulator(system, folder), folder)
        except pythons.Missing as why:
            return f"not started: {why}"
        shutil.copy(TINY_CLIP, folder)
        print(asker(python, folder)(TINY_CLIP.name), end="", flush=True)
        demo([*python, "-m", "reseed"], folder, system, version)
        return None
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", file], check=True)
    ask = "import reseed; print(reseed.__version__, reseed.__file__)"
    subprocess.run([python, "-c", ask], check=True, cwd=folder)
    demo([folder / "venv" / "bin" / "reseed"], folder, system, version)
    return None
