#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plugins_test.py BUILD FILE: `engine plugins test` on a plugin for GPUs as it ships, on the software CUDA runtime (CPU).
Attention is the plugin's own: cuDNN does not start without a GPU."""
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(sys.argv[1]).resolve()
name = sys.argv[2]
words = ["attention=own"] if name.endswith("/cuda.eng.so") else []
done = subprocess.run([BUILD / "tools/engine", "plugins", "test", BUILD / name, "--rounds", "1", *words],
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
print(name, done.stdout.splitlines()[-1])
assert done.returncode == 0, done.stdout
if name.endswith(("-cuda.eng.so", "nccl.eng.so")):  # the kernels of nccl are its collectives, tested once
    assert done.stdout.count("not tested  ") == name.count("nccl.eng"), done.stdout
if words:
    assert "software CUDA runtime (CPU)" in done.stdout and "a run  " in done.stdout, done.stdout
