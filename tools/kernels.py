"""Compiles crates/reseed-cuda/kernels/*.cu into one image per architecture, without a GPU and without a CUDA toolkit.

    python -m venv venv && venv/bin/pip install nvidia-cuda-nvrtc-cu12==12.8.93
    venv/bin/python tools/kernels.py [--check]

NVRTC 12.8 and not a newer one: drivers from R570 on load what it makes. With --check nothing is written; every kernel is
compiled for every architecture and the stamp is compared.
"""
import ctypes
import importlib.metadata
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "reseed-cuda"
# Cubins: a card runs those of its own major number up to its minor one, so that sm_80 serves 8.6 and 8.9 too, whose
# instructions for our kernels are the same. PTX, which drivers compile themselves: for cards that no cubin fits.
IMAGES = {"sm_75": "sm_75.cubin", "sm_80": "sm_80.cubin", "sm_90a": "sm_90a.cubin", "sm_100": "sm_100.cubin",
          "sm_120": "sm_120.cubin", "compute_80": "compute_80.ptx"}


def nvrtc():
    files = importlib.metadata.files("nvidia-cuda-nvrtc-cu12") or []
    paths = {f.name: f.locate() for f in files if ".so" in f.name}
    for name, path in paths.items():
        if "builtins" in name:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(paths["libnvrtc.so.12"]))


def sources():
    return sorted((p for p in (ROOT / "kernels").iterdir() if p.suffix in (".cu", ".cuh")), key=lambda p: p.name)


def stamp():
    """FNV-1a 64 over names and contents, the one that kernels.rs computes."""
    h = 0xCBF29CE484222325
    for path in sources():
        for byte in path.name.encode() + path.read_bytes():
            h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}\n"


def compile_all(library, architecture):
    program = ctypes.c_void_p()
    text = "".join(f'#include "{p.name}"\n' for p in sources() if p.suffix == ".cu").encode()
    headers = sources()
    array = lambda values: (ctypes.c_char_p * len(values))(*values)
    check(library, library.nvrtcCreateProgram(ctypes.byref(program), text, b"reseed.cu", len(headers),
                                              array([p.read_bytes() for p in headers]),
                                              array([p.name.encode() for p in headers])))
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--device-int128", b"-default-device"]
    status = library.nvrtcCompileProgram(program, len(options), array(options))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    if status:
        sys.exit(f"{architecture}:\n{log.value.decode()}")
    kind = "PTX" if architecture.startswith("compute") else "CUBIN"
    check(library, getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
    image = ctypes.create_string_buffer(size.value)
    check(library, getattr(library, f"nvrtcGet{kind}")(program, image))
    return image.raw if kind == "CUBIN" else lean(image.value)


def lean(ptx):
    """The text without comments and indentation, and with the zero at its end that drivers look for."""
    lines = (line.strip() for line in ptx.splitlines())
    return b"\n".join(line for line in lines if line and not line.startswith(b"//")) + b"\n\0"


def check(library, status):
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.exit(f"NVRTC: {library.nvrtcGetErrorString(status).decode()}")


def main():
    library, out = nvrtc(), ROOT / "cubin"
    only_check = "--check" in sys.argv[1:]
    for architecture, name in IMAGES.items():
        image = compile_all(library, architecture)
        print(f"{name}: {len(image)} bytes")
        if not only_check:
            out.mkdir(exist_ok=True)
            (out / name).write_bytes(image)
    if only_check and (out / "STAMP").read_text() != stamp():
        sys.exit("kernels changed: run `just kernels`")
    if not only_check:
        (out / "STAMP").write_text(stamp())


if __name__ == "__main__":
    main()
