"""Archives whose bytes depend on their content alone: names are sorted, times and owners are fixed."""
import gzip
import io
import tarfile
import time
import zipfile

PROGRAM, FILE = 0o755, 0o644


def mode(name, programs):
    return PROGRAM if name in programs else FILE


def tarball(files, programs, when, prefix="", folders=False):
    """A .tar.gz of {name: bytes}."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in parents(files) if folders else ():
            info = tarfile.TarInfo(prefix + folder)
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, PROGRAM, when
            archive.addfile(info)
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(prefix + name)
            info.size, info.mode, info.mtime = len(content), mode(name, programs), when
            archive.addfile(info, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0, compresslevel=9) as stream:
        stream.write(raw.getvalue())
    return packed.getvalue()


def parents(files):
    """Every folder of the names, parents first."""
    folders = {"/".join(name.split("/")[:depth]) for name in files for depth in range(1, name.count("/") + 1)}
    return sorted(folders)


def zipped(files, programs, when, prefix=""):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(prefix + name, time.gmtime(when)[:6])
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode(name, programs)) << 16
            archive.writestr(info, content)
    return packed.getvalue()


def deb(files, programs, when, control):
    """A package of Debian: an ar archive of two tarballs."""
    size = sum(map(len, files.values())) // 1024
    fields = "".join(f"{key}: {value}\n" for key, value in {**control, "Installed-Size": size}.items())
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": tarball({"control": fields.encode()}, (), when, "./"),
        "data.tar.gz": tarball(files, programs, when, "./", folders=True),
    }
    archive = b"!<arch>\n"
    for name, content in members.items():
        archive += f"{name:<16}{when:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        archive += content + b"\n" * (len(content) % 2)
    return archive
