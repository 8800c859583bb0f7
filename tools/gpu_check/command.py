"""Runs reseed and reads its output. The names of its JSON fields are here alone."""
import json
import os
import re
import subprocess
import threading

MEDIAN = "median"
DEVICE_SECONDS = "gpu_seconds"
COPY_SECONDS = "copy_seconds"
COPY_WAIT_SECONDS = "copy_waiting_seconds"
DEVICE_PEAK_BYTES = "gpu_peak_bytes"
RELATIVE_ERROR = "relative_error"
FRAME_MS = "frame_ms"
HOST_CORES = "host_cores"
EVENT, PROGRESS, FRAME, FPS = "event", "progress", "frame", "fps"

# Lines of `reseed-check`.
DISAGREEMENTS = re.compile(r"^(\d+) disagreements$", re.M)
GOLDEN = re.compile(r"^golden (\w+) (\w+) (\w+): (\S+), allowed (\S+)$", re.M)
RATE = re.compile(r"^f16 +(\d+ > \d+) +3x3x3 / 1x1x1 at (\d+x\d+): "
                  r"(\d+) TFLOP/s effective, (\d+) TFLOP/s executed", re.M)


class Failed(ValueError):
    """A command failed; the last line of its error output."""


def run(command, **variables):
    """Exit code, output, and the last line of the error output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **variables})
    return done.returncode, done.stdout, (done.stderr.strip().splitlines() or ["no message"])[-1]


def output(command, **variables):
    code, out, error = run(command, **variables)
    if code:
        raise Failed(f"exit code {code}: {error}")
    return out


def event(command, which=0):
    """One JSON object of the output."""
    return json.loads(output([*command, "--json"]).splitlines()[which])


class MemoryMonitor:
    """MiB of GPU memory in use, read from nvidia-smi every 20 ms."""

    def __init__(self, device):
        index = device.partition(":")[2] or "0"
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", index, "-lms", "20"]
        self.now, self.peak, self.changed = 0, 0, threading.Condition()
        self.process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        for line in filter(str.isdigit, map(str.strip, self.process.stdout)):
            with self.changed:
                self.now = int(line)
                self.peak = max(self.peak, self.now)
                self.changed.notify_all()

    def next(self):
        with self.changed:
            self.changed.wait(5)
            return self.now


class PeakMemory:
    """Peak GPU memory in GiB while this is open, above the memory in use before."""

    def __init__(self, monitor):
        self.monitor = monitor

    def __enter__(self):
        self.monitor.next()  # a line that was on its way shows an earlier state
        self.monitor.peak = self.before = self.monitor.next()
        return self

    def __exit__(self, *_):
        self.monitor.next()
        self.gib = (self.monitor.peak - self.before) / 1024
