"""A program as its author would write it; type checkers must know every name in it."""

from __future__ import annotations

import reseed


def progress(event: reseed.Event) -> None:
    """Prints the frames that are done."""
    total: int | None = event.total
    print(event.kind, event.frames, total)


def main() -> None:
    """Restores two frames."""
    session = reseed.Session("formula:tiny", device="cpu", threads=1)
    clip: reseed.Frames = reseed.Frames.zeros((2, 16, 16, 3), "float32")
    restored = session.upscale_frames(clip, scale=2, color="wavelet", progress=progress, cancel=reseed.CancelToken())
    shape: tuple[int, ...] = restored.shape
    assert shape == (2, 32, 32, 3)
    images: list[reseed.Frames] = session.upscale_frames([clip[0], clip[1]], independent=True)
    assert len(images) == 2
    estimate: reseed.Estimate = session.estimate((9, 16, 16), resolution="720p", codec="hevc")
    seconds: float = estimate.seconds
    latent: reseed.Latent = session.vae.encode(clip)
    decoded: reseed.Frames = session.vae.decode(latent, frames=1)
    try:
        session.upscale("no such file.mp4", "out.mkv", existing="resume", start="0:10", crf=20)
    except reseed.InputError as error:
        code: int = error.exit_code
        print(code, error.kind, seconds, decoded.dtype)
    names: list[str] = [model.name for model in reseed.models.list()]
    print(names[0], session.memory.host, reseed.doctor()["device"])
    session.unload()


if __name__ == "__main__":
    main()
