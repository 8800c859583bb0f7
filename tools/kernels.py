"""Compiles crates/reseed-cuda/kernels/*.cu into one image per architecture, without a GPU or a CUDA toolkit.

    python3 -m venv venv && venv/bin/pip install nvidia-cuda-nvrtc-cu12==12.8.93
    venv/bin/python tools/kernels.py [--check [ARCHITECTURE]...]
    venv/bin/python tools/kernels.py --emulate R32 R16 FILE

The version is fixed: drivers from R570 on load the images of NVRTC 12.8, and the same version writes the same bytes.
Images are stored as LZMA files. --check writes nothing. It compares every image, or those of the named architectures,
and the stamp with the committed files, byte for byte and without compression, and exits 1 with the first file that
differs.

--emulate writes an image of the portable kernels for Hopper. Its convolutions issue every tensor-core product with sums
of f32 R32 times and every one with sums of f16 R16 times; all but the first multiply zeros. R32 = 5 and R16 = 2 to 3
have the balance of an Ada GPU between products and memory. A build with the feature `emulation` of reseed-cuda loads
the image from the file that RESEED_EMULATION names. It is for measurements and never shipped.
"""
import concurrent.futures
import ctypes
import importlib.metadata
import lzma
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "reseed-cuda"
# A GPU runs cubins of its own major version up to its minor version: sm_80 serves 8.6 and 8.9 too, whose instructions
# for these kernels are the same. The driver compiles the PTX for a GPU that no cubin fits.
IMAGES = {"sm_75": "sm_75.cubin.lzma", "sm_80": "sm_80.cubin.lzma", "sm_90a": "sm_90a.cubin.lzma",
          "sm_100": "sm_100.cubin.lzma", "sm_120": "sm_120.cubin.lzma", "compute_80": "compute_80.ptx.lzma"}


def nvrtc():
    files = importlib.metadata.files("nvidia-cuda-nvrtc-cu12") or []
    paths = {f.name: f.locate() for f in files if ".so" in f.name}
    for name, path in paths.items():
        if "builtins" in name:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(paths["libnvrtc.so.12"]))


def sources():
    return sorted((p for p in (ROOT / "kernels").iterdir() if p.suffix in (".cu", ".cuh")), key=lambda p: p.name)


def code(text):
    """Source text without comments and with single spaces between words, so that neither changes the stamp."""
    return " ".join(" ".join(line.split("//")[0] for line in text.splitlines()).split())


def stamp():
    """FNV-1a 64 over the name and the code of every source, as kernels.rs computes it."""
    h = 0xCBF29CE484222325
    for path in sources():
        for byte in (path.name + code(path.read_text())).encode():
            h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}\n"


def compile_all(library, architecture, *definitions):
    program = ctypes.c_void_p()
    text = "".join(f'#include "{p.name}"\n' for p in sources() if p.suffix == ".cu").encode()
    headers = sources()
    array = lambda values: (ctypes.c_char_p * len(values))(*values)
    check(library, library.nvrtcCreateProgram(ctypes.byref(program), text, b"reseed.cu", len(headers),
                                              array([p.read_bytes() for p in headers]),
                                              array([p.name.encode() for p in headers])))
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--device-int128", b"-default-device",
               *definitions]
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
    """The text without comments and indentation, with the final zero byte that drivers need."""
    lines = (line.strip() for line in ptx.splitlines())
    return b"\n".join(line for line in lines if line and not line.startswith(b"//")) + b"\n\0"


def check(library, status):
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.exit(f"NVRTC: {library.nvrtcGetErrorString(status).decode()}")


def compress(name, image):
    """An LZMA file. Versions of liblzma may write different bytes with the same content."""
    # An instruction has 16 bytes, and most bytes are like those at the same place of other instructions; bytes of text
    # are like those after the same byte. The dictionary holds a whole image.
    context = {"lc": 0, "lp": 4, "pb": 4} if ".cubin" in name else {"lc": 4, "lp": 0, "pb": 0}
    encoder = {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 23, **context}
    return lzma.compress(image, lzma.FORMAT_ALONE, filters=[encoder])


def difference(path, image):
    """Why a committed file is not the image, or None."""
    if not path.exists():
        return "is missing"
    committed = lzma.decompress(path.read_bytes()) if path.suffix == ".lzma" else path.read_bytes()
    if committed == image:
        return None
    unequal = (i for i, (a, b) in enumerate(zip(committed, image)) if a != b)
    at = next(unequal, min(len(committed), len(image)))
    return f"differs from the image of its sources: byte {at}, {len(committed)} bytes committed, {len(image)} compiled"


def emulate(wide, half, path):
    repeats = f"-DMMA_REPEAT={int(wide)}".encode(), f"-DMMA_REPEAT_HALF={int(half)}".encode()
    pathlib.Path(path).write_bytes(compile_all(nvrtc(), "sm_90", *repeats))


def main():
    if sys.argv[1:2] == ["--emulate"] and len(sys.argv) == 5:
        return emulate(*sys.argv[2:])
    only_check, wanted = sys.argv[1:2] == ["--check"], sys.argv[2:] or list(IMAGES)
    if sys.argv[1:] and not only_check or any(architecture not in IMAGES for architecture in wanted):
        sys.exit("usage: kernels.py [--check [ARCHITECTURE]...] or --emulate R32 R16 FILE, with architectures among "
                 f"{', '.join(IMAGES)}")
    library, out = nvrtc(), ROOT / "cubin"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        images = list(pool.map(lambda architecture: compile_all(library, architecture), wanted))
    names = [IMAGES[architecture] for architecture in wanted]
    for name, image in (*zip(names, images), ("STAMP", stamp().encode())):
        if not only_check:
            out.mkdir(exist_ok=True)
            (out / name).write_bytes(compress(name, image) if name.endswith(".lzma") else image)
        elif problem := difference(out / name, image):
            sys.exit(f"crates/reseed-cuda/cubin/{name} {problem}; run `just kernels` and commit the result")
        print(f"{name}: {len(image)} bytes{', equal to the committed file' if only_check else ''}", flush=True)


if __name__ == "__main__":
    main()
