"""Installs ComfyUI with torch and the newest wheel of Reseed into a folder: install.py FOLDER WHEELS

Needs Python 3.12 or later for ComfyUI. Downloads about 3 GB, once.
"""
import shutil
import subprocess
import sys
from pathlib import Path

from fetch import fetch

NAMES = ("python3.12", "python3.13", "python3")
# Where pyenv and uv put interpreters that are not on PATH.
FOLDERS = (".pyenv/versions/3.1[2-9]*/bin", ".local/share/uv/python/cpython-3.1[2-9]*/bin")
# Later versions of torch do not start with this version of ComfyUI.
TORCH = ("torch==2.11.0", "torchvision==0.26.0", "torchaudio==2.11.0")
TEST = "import sys; sys.exit(sys.version_info < (3, 12))"


def python():
    """A Python that ComfyUI runs on."""
    named = filter(None, map(shutil.which, NAMES))
    elsewhere = (path / "python3" for folder in FOLDERS for path in sorted(Path.home().glob(folder)))
    for path in (*named, *elsewhere):
        if subprocess.run([path, "-c", TEST], capture_output=True).returncode == 0:
            return path
    raise SystemExit("ComfyUI needs Python 3.12 or later; install one, such as: uv python install 3.12")


def main():
    folder, wheels = map(Path, sys.argv[1:])
    comfyui, venv = fetch(folder), folder / "venv"
    installed = folder / "installed"
    if not installed.is_file():
        subprocess.run([python(), "-m", "venv", "--clear", venv], check=True)
        requirements = ["-r", comfyui / "requirements.txt"]
        subprocess.run([venv / "bin/pip", "install", "--quiet", *TORCH, *requirements], check=True)
        installed.touch()
    wheel = max(wheels.glob("reseed-*.whl"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if wheel is None:
        raise SystemExit(f"no wheel in {wheels}")
    subprocess.run([venv / "bin/pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel], check=True)


if __name__ == "__main__":
    main()
