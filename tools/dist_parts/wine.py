"""What programs for Windows need from wine."""
import pathlib
import subprocess

GCC = "x86_64-w64-mingw32-gcc-posix"
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "tests/windows/process_prng.c"


def path_of(path):
    """The path of a file as a program for Windows sees it."""
    return "Z:" + str(path).replace("/", "\\")


def has_library(name):
    folders = ("/usr/lib", "/usr/local/lib", "/opt")
    return any(next(pathlib.Path(folder).glob(f"**/wine/x86_64-windows/{name}"), None) for folder in folders)


def add_random_numbers(folder):
    """Older versions of wine lack the library that the standard library of Rust draws random numbers from. Compiles one
    into a folder, which has to be in WINEPATH."""
    if not has_library("bcryptprimitives.dll"):
        library = folder / "bcryptprimitives.dll"
        subprocess.run([GCC, "-shared", "-O2", "-o", library, SOURCE, "-ladvapi32"], check=True)
