#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a step from Python with a step of `engine run`: the quickstart's model of a million parameters.

    tools/dev build
    python3 benchmarks/embed_step.py [--cycles 5] [--steps 30] [--build build] [--out FILE.json]

Cycles alternate between `engine run`, a session on its own data, and a session that is given each batch as DLPack (a
buffer of this process). All write the same metrics and no checkpoint but the last. What counts is the median time
between the ends of two steps: of a session, between returns of `step`; of `engine run`, between its progress lines. On
a busy machine these differ by chance. So printed, too, is the time of a call of `step` beyond the engine's own step,
which other work hardly changes: an upper bound of what embedding costs, as it includes the run's metrics file. The JSON
line at the end is what benchmarks/results/ keeps.
"""
import argparse
import array
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from cpu_step import cpu_name

HERE = pathlib.Path(__file__).resolve().parent
OVERRIDES = ["train.eval_every=0", "checkpoint.every=0", "log.every=1"]


BEYOND = {}  # by whether batches are given: seconds of a call beyond the engine's step


class Batch:
    """A (rows, columns) batch in a buffer of this process, as any library would hand it over. `ids`: some if None."""

    def __init__(self, rows, columns, ids=None):
        import engine._dlpack as dlpack
        import engine._native as native
        self.ids = array.array("i", ids or [(k * 31) % 251 for k in range(rows * columns)])
        self.shape, self.strides = (ctypes.c_int64 * 2)(rows, columns), (ctypes.c_int64 * 2)(columns, 1)
        self.made = native.Versioned(1, 3, None, None, 0, native.DLTensor(
            self.ids.buffer_info()[0], native.Device(1, 0), 2, native.DataType(0, 32, 1), self.shape, self.strides, 0))
        self.new = dlpack._api.PyCapsule_New

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        return self.new(ctypes.addressof(self.made), b"dltensor_versioned", None)


def of_command(engine, config, steps, out):
    command = [engine, "run", str(config), "--out", str(out), f"train.steps={steps}", *OVERRIDES]
    times = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        for line in child.stderr:
            if line.startswith("step "):
                times.append(time.perf_counter())
    return statistics.median(b - a for a, b in zip(times[1:-1], times[2:]))


def of_session(config, steps, out, given):
    import engine
    with engine.open(config, f"train.steps={steps}", *OVERRIDES, out=out) as run:
        run.start()
        batch = {"tokens": Batch(run.batch_shape[0], run.batch_shape[1] + 1)} if given else {}
        times, beyond = [], []
        while True:
            begun = time.perf_counter()
            metrics = run.step(**batch)
            times.append(time.perf_counter())
            if metrics is None:
                break
            if metrics.step > 1 and metrics.step < steps:  # the last one saves
                beyond.append(times[-1] - begun - metrics.seconds)
    BEYOND.setdefault(given, []).append(statistics.median(beyond))
    return statistics.median(b - a for a, b in zip(times[1:-1], times[2:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    os.environ["ENGINE_LIBRARY"] = str(args.build.resolve() / "session/embed/libengine.so.1")
    sys.path.insert(0, str(HERE.parent / "tools/python"))
    config = HERE.parent / "examples/quickstart.toml"
    results = {"engine run": [], "session": [], "session, given batches": []}
    with tempfile.TemporaryDirectory() as folder:
        for cycle in range(args.cycles):
            at = pathlib.Path(folder) / str(cycle)
            results["engine run"].append(of_command(args.build.resolve() / "tools/engine", config, args.steps, f"{at}-run"))
            results["session"].append(of_session(config, args.steps, f"{at}-own", False))
            results["session, given batches"].append(of_session(config, args.steps, f"{at}-given", True))
    medians = {name: statistics.median(times) for name, times in results.items()}
    base = medians["engine run"]
    for name, seconds in medians.items():
        # Each cycle gives its own ratio, because the load of the machine changes slowly.
        ratios = [a / b for a, b in zip(results[name], results["engine run"])]
        print(f"{name:24} {seconds * 1e3:8.2f} ms  {100 * (statistics.median(ratios) - 1):+.2f} %")
    for given, seconds in BEYOND.items():
        least = statistics.median(seconds)
        print(f"beyond the step{', given batches' if given else ''}: {least * 1e6:.0f} us, {100 * least / base:.3f} %")
    summary = {"cpu": cpu_name(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "steps": args.steps,
               "cycles": args.cycles, "seconds": {k: [round(x, 6) for x in v] for k, v in results.items()},
               "base": round(base, 6), "beyond": [round(statistics.median(x), 7) for x in BEYOND.values()]}
    print(json.dumps(summary))
    if args.out:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
