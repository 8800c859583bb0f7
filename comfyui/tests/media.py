"""Test videos."""
import subprocess


def make_video(path, count, size="48x32"):
    """Writes a video with sound."""
    pattern = ("-f", "lavfi", "-i", f"testsrc2=size={size}:rate=25")
    sound = ("-f", "lavfi", "-i", f"sine=440:duration={count / 25}")
    encoders = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac")
    command = ["ffmpeg", "-v", "error", "-y", *pattern, *sound, "-frames:v", str(count), *encoders, str(path)]
    subprocess.run(command, check=True)
    return path
