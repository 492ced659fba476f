# SPDX-License-Identifier: Apache-2.0
"""The quickstart from Python: python examples/python/quickstart.py [section.key=value ...]"""
import pathlib
import sys

import engine

config = pathlib.Path(__file__).resolve().parents[1] / "quickstart.toml"
with engine.open(config, *sys.argv[1:]) as run:
    for metrics in run:
        print(f"step {metrics.step} loss {metrics.loss:.4f}", flush=True)
