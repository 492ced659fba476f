#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plugins_test.py BUILD: `engine plugins test` on the plugins for GPUs as they ship, on the software CUDA runtime (CPU).
Attention is the plugin's own: cuDNN does not start without a GPU."""
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(sys.argv[1]).resolve()
PLUGINS = {"cuda/cuda": ["attention=own"], "mamba/mamba-cuda": [], "optim/optim-cuda": [], "nccl/nccl": []}

for name, words in PLUGINS.items():
    file = BUILD / "plugins" / (name + ".eng.so")
    if not file.exists():
        print(f"{name}: not built")
        continue
    done = subprocess.run([BUILD / "tools/engine", "plugins", "test", file, "--rounds", "1", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    print(name, done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout
    if name == "cuda/cuda":
        assert "software CUDA runtime (CPU)" in done.stdout and "a run  " in done.stdout, done.stdout
