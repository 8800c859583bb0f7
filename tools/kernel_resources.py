"""Prints registers, shared memory and stack of kernels in cubins, read from the ELF files, as a table.

    python3 tools/kernel_resources.py [--only TEXT] [CUBIN]...

The default is the committed images. Shared memory is what a kernel declares; what its launch adds is in src/ops. A
stack that is not empty holds spilled registers or arrays that are indexed at run time.
"""
import argparse
import lzma
import pathlib
import struct

IMAGES = pathlib.Path(__file__).resolve().parent.parent / "crates" / "reseed-cuda" / "cubin"
# Attributes of a section .nv.info, and the form of those that hold a symbol and a number.
REGISTERS, FRAME, WITH_SIZE = 0x2F, 0x11, 0x04


def sections(elf):
    start, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, start + i * size) for i in range(count)]
    text = lambda table, at: elf[table[4] + at:elf.index(b"\0", table[4] + at)].decode()
    return [(text(headers[names], h[0]), h) for h in headers], text


def resources(elf):
    """Name of each kernel, with its registers, declared shared memory and stack bytes."""
    found, text = sections(elf)
    by_name = dict(found)
    symbols, strings = by_name[".symtab"], by_name[".strtab"]
    name = lambda i: text(strings, struct.unpack_from("<I", elf, symbols[4] + i * 24)[0])
    values, info = {}, by_name[".nv.info"]
    at, end = info[4], info[4] + info[5]
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", elf, at)
        at += 4
        if form != WITH_SIZE:
            continue
        if attribute in (REGISTERS, FRAME):
            symbol, value = struct.unpack_from("<II", elf, at)
            values.setdefault(name(symbol), {})[attribute] = value
        at += size
    for kernel, value in sorted(values.items()):
        shared = by_name.get(f".nv.shared.{kernel}")
        yield kernel, value.get(REGISTERS, 0), shared[5] if shared else 0, value.get(FRAME, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("cubins", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    print("| image | kernel | registers | shared bytes | stack bytes |\n|---|---|---|---|---|")
    for path in options.cubins or sorted(IMAGES.glob("*.cubin.lzma")):
        content = path.read_bytes()
        elf = lzma.decompress(content) if path.suffix == ".lzma" else content
        for kernel, registers, shared, stack in resources(elf):
            if options.only in kernel:
                print(f"| {path.name.split('.')[0]} | {kernel} | {registers} | {shared} | {stack} |")


if __name__ == "__main__":
    main()
