"""A real ComfyUI server for the tests, driven through HTTP and the websocket as the interface drives it."""
import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil

START_SECONDS = 900


@dataclass
class Outcome:
    """How a prompt ended."""

    status: str
    messages: list = field(default_factory=list)
    outputs: dict = field(default_factory=dict)

    def error(self):
        """The message of the node that failed."""
        found = [data["exception_message"].strip() for kind, data in self.messages if kind == "execution_error"]
        return found[0] if found else ""

    def time_of(self, kind):
        """When a message of this kind was sent, in seconds."""
        return next(data["timestamp"] / 1000 for name, data in self.messages if name == kind)


class Refused(Exception):
    """A prompt that the server did not accept."""

    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body[:2000]}")
        self.status = status
        self.body = body


class Comfy:
    """One server with a base folder of its own, where packs are linked into `custom_nodes`."""

    def __init__(self, source, base, packs, environment=None, options=()):
        self.base = Path(base)
        for folder in ("custom_nodes", "input", "output", "models/SEEDVR2", "models/vae", "models/diffusion_models"):
            (self.base / folder).mkdir(parents=True, exist_ok=True)
        for name, path in packs.items():
            (self.base / "custom_nodes" / name).symlink_to(Path(path).resolve())
        self.port = free_port()
        self.log = self.base / "server.log"
        self.events = []
        self.process = self._start(Path(source), environment or {}, options)
        self._wait_until_ready()
        self._listen()

    def _start(self, source, environment, options):
        command = [sys.executable, "main.py", "--cpu", "--listen", "127.0.0.1", "--port", str(self.port),
                   "--disable-auto-launch", "--disable-api-nodes", "--base-directory", str(self.base),
                   "--database-url", "sqlite:///:memory:", *options]
        variables = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"} | environment
        with open(self.log, "w") as log:
            return subprocess.Popen(command, cwd=source, stdout=log, stderr=log, env=variables)

    def _wait_until_ready(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                self.get("/system_stats")
                return
            except OSError:
                time.sleep(0.5)
        self.stop()
        raise RuntimeError(f"ComfyUI did not start:\n{self.log.read_text()[-4000:]}")

    def _listen(self):
        ready = threading.Event()

        async def listen():
            async with aiohttp.ClientSession() as session:
                url = f"http://127.0.0.1:{self.port}/ws?clientId=tests"
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    ready.set()
                    async for message in socket:
                        is_text = message.type == aiohttp.WSMsgType.TEXT
                        self.events.append((time.time(), json.loads(message.data) if is_text else message.data))

        threading.Thread(target=lambda: asyncio.run(listen()), daemon=True).start()
        ready.wait(30)

    def get(self, path):
        """The JSON answer to a GET request."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def post(self, path, body):
        """The JSON answer to a POST request."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode(errors="replace")) from error

    def queue(self, prompt):
        """Queues a prompt and returns its identifier."""
        return self.post("/prompt", {"prompt": prompt, "client_id": "tests"})["prompt_id"]

    def wait(self, prompt_id, seconds=600):
        """Waits for the end of a prompt. The history has it a moment after the last event."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            entry = self.get(f"/history/{prompt_id}").get(prompt_id)
            if entry and entry["status"]["status_str"]:
                status = entry["status"]
                return Outcome(status["status_str"], status["messages"], entry["outputs"])
            if self.process.poll() is not None:
                raise RuntimeError(f"ComfyUI ended:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)
        raise TimeoutError(f"prompt {prompt_id} did not end:\n{self.log.read_text()[-2000:]}")

    def run(self, prompt, seconds=600):
        """Runs a prompt to its end."""
        return self.wait(self.queue(prompt), seconds)

    def texts(self):
        """Lines that nodes showed."""
        lines = [data for _, data in self.events if isinstance(data, bytes) and data[:4] == b"\0\0\0\x03"]
        return [line[8 + int.from_bytes(line[4:8], "big"):].decode() for line in lines]

    def previews(self):
        """Images that nodes showed while they ran."""
        return [data for _, data in self.events if isinstance(data, bytes) and data[:4] in (b"\0\0\0\1", b"\0\0\0\4")]

    def progress(self, node):
        """States of the progress bar of a node, as (value, most)."""
        states = [data["data"]["nodes"].get(node) for _, data in self.events
                  if isinstance(data, dict) and data.get("type") == "progress_state"]
        return [(state["value"], state["max"]) for state in states if state]

    def rss(self):
        """Bytes of memory of the server, without programs that it started."""
        return psutil.Process(self.process.pid).memory_info().rss

    def stop(self):
        """Ends the server."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    """A port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
