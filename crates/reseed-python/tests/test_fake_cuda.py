"""Arrays in GPU memory, without a GPU."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PATIENCE

DRIVER = Path(__file__).resolve().parents[2] / "reseed-testing" / "fake_driver" / "cuda.c"


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="the fake driver needs Linux and cc")
def test_arrays_on_a_gpu_are_read_in_place_and_results_stay_there(tmp_path):
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, DRIVER], check=True, capture_output=True)
    (tmp_path / "libcuda.so").symlink_to(library)
    races = tmp_path / "races"
    env = {"LD_LIBRARY_PATH": str(tmp_path), "RESEED_STUB_RACES": str(races), "XDG_CACHE_HOME": str(tmp_path)}
    program = [sys.executable, Path(__file__).with_name("fake_cuda.py")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert done.stdout == "all of it holds\n", done.stderr
    found, copies = map(int, races.read_text().split())
    assert found == 0 and copies > 20, "every copy is ordered after the work that it depends on"
