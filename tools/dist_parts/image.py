"""A container image without a container engine: packages of Debian, the program of a release, and a description."""
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

SUITE, PACKAGES = "bookworm", "ca-certificates,ffmpeg"
# What a program never reads. The licences of packages stay.
LEFT_OUT = ("path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright", "path-exclude=/usr/share/man/*",
            "path-exclude=/usr/share/locale/*")
# Files with the time of their making.
EMPTIED = ("/var/cache", "/var/log")
USER = 7373
# The driver of the host is mounted by the NVIDIA container runtime.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/data", "NVIDIA_VISIBLE_DEVICES": "all",
               "NVIDIA_DRIVER_CAPABILITIES": "compute,video,utility"}
CONFIG = {
    "User": f"{USER}:{USER}", "WorkingDir": "/data", "ExposedPorts": {"7373/tcp": {}}, "StopSignal": "SIGTERM",
    "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()], "Volumes": {"/data": {}, "/videos": {}},
    "Entrypoint": ["reseed"], "Cmd": ["serve", "--bind", "0.0.0.0:7373", "--root", "/videos", "--data", "/data"],
}
TYPES = "application/vnd.oci.image."


def needed():
    if os.getuid() != 0 or not shutil.which("mmdebstrap"):
        sys.exit("an image needs root and mmdebstrap: sudo apt-get install mmdebstrap debian-archive-keyring")


def base(when):
    """The root folder of Debian as a tar file."""
    with tempfile.TemporaryDirectory(prefix="reseed-image-") as folder:
        file = pathlib.Path(folder, "base.tar")
        options = [f"--dpkgopt={option}" for option in LEFT_OUT]
        options += [f"--customize-hook=find \"$1\"{place} -type f -delete" for place in EMPTIED]
        subprocess.run(["mmdebstrap", "--quiet", "--variant=essential", "--skip=output/dev", f"--include={PACKAGES}",
                        *options, SUITE, file], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(when)})
        return file.read_bytes()


def own(program, when):
    """The program, and the two folders that it may write, as a tar file."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("data", "videos"):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime, info.uid, info.gid = tarfile.DIRTYPE, 0o755, when, USER, USER
            archive.addfile(info)
        info = tarfile.TarInfo("usr/local/bin/reseed")
        info.size, info.mode, info.mtime = len(program), 0o755, when
        archive.addfile(info, io.BytesIO(program))
    return raw.getvalue()


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def archive(layers, version, time, path):
    """Writes layers, which are tar files, as an archive that `docker load` and `podman load` read."""
    blobs = {}

    def blob(kind, content):
        blobs[digest(content)] = content
        return {"mediaType": TYPES + kind, "digest": digest(content), "size": len(content)}

    packed = [blob("layer.v1.tar+gzip", gzip.compress(layer, 6, mtime=0)) for layer in layers]
    labels = {"org.opencontainers.image.title": "reseed", "org.opencontainers.image.version": version}
    config = {"architecture": "amd64", "os": "linux", "created": time, "config": {**CONFIG, "Labels": labels},
              "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]}}
    manifest = {"schemaVersion": 2, "mediaType": TYPES + "manifest.v1+json",
                "config": blob("config.v1+json", json.dumps(config).encode()), "layers": packed}
    named = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"reseed:{version}"}
    entry = blob("manifest.v1+json", json.dumps(manifest).encode()) | {"annotations": named}
    files = {f"blobs/{name.replace(':', '/')}": content for name, content in blobs.items()}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o644
            out.addfile(info, io.BytesIO(content))


def start(path):
    """Unpacks an image, and runs version, doctor and demo in it as its user."""
    with tempfile.TemporaryDirectory(prefix="reseed-image-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        with tarfile.open(path) as image:
            read = lambda entry: image.extractfile(f"blobs/{entry['digest'].replace(':', '/')}").read()
            index = json.loads(image.extractfile("index.json").read())
            for layer in json.loads(read(index["manifests"][0]))["layers"]:
                with tarfile.open(fileobj=io.BytesIO(gzip.decompress(read(layer)))) as files:
                    files.extractall(folder, numeric_owner=True, filter="fully_trusted")
        # What an engine mounts.
        (folder / "dev").mkdir(exist_ok=True)
        os.mknod(folder / "dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (folder / "dev/null").chmod(0o666)
        enter = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={folder / 'proc'}", "/usr/sbin/chroot",
                 f"--userspec={USER}:{USER}", folder, "/usr/local/bin/reseed"]
        for arguments in (["--version"], ["doctor"], ["demo", "/data/demo", "--device", "cpu"]):
            subprocess.run([*enter, *arguments], check=True, env=ENVIRONMENT)
        if not (folder / "data/demo/clip.mp4").is_file():
            sys.exit("the demo has written no video")
