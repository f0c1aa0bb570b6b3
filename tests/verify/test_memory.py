"""What a launched process and its children hold, seen cheaply."""

import os
import subprocess
import sys

import psutil

from kvstudio.verify.memory import HOST, Resident, no_counter, peaks, sample

SLEEPS = "import subprocess, sys, time; c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"


def test_children_count_and_those_that_end_do_not():
    code = SLEEPS + "; print(c.pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        try:
            resident = Resident(parent.pid, look_every=1000)
            both = resident.bytes()
            assert both > psutil.Process(parent.pid).memory_info().rss
            psutil.Process(child).kill()
            psutil.Process(parent.pid).memory_info()
            parent.kill()
        finally:
            parent.kill()
            parent.wait()
        assert resident.bytes() is None


def test_a_process_that_never_was_is_unknown():
    assert Resident(None).bytes() is None
    assert Resident(2**22 + 12345).bytes() is None
    assert Resident(os.getpid()).bytes() > 1 << 20


def test_a_counter_outdoes_what_was_printed():
    point = sample(1.0, 7, lambda: {"CUDA0": 5}, {"CUDA0": 3, "CUDA1": 2})
    assert point.used_bytes == (("CUDA0", 5), ("CUDA1", 2), (HOST, 7))
    assert sample(1.0, None, no_counter, {}).used_bytes == ()
    assert dict(peaks((point, sample(2.0, 9, no_counter, {"CUDA1": 4})), 8)) == {"CUDA0": 5, "CUDA1": 4, HOST: 9}
