#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the observer `stats` in a step against the prediction of `engine plan`: the quickstart's model
of a million parameters.

    tools/dev build
    python3 benchmarks/observers.py [--cycles 7] [--steps 30] [--build build] [--out FILE.json]

Each cycle runs the same training without observers, with the gradients of `stats`, and with `stats` as it is by default
(norms and maxima of gradients, activations and updates), in turn. What counts is the median step of a run, and of that
the median of the cycles' own ratios: what else the machine does changes slowly. Beside it stand the bytes that `engine
plan` adds for the observer. All losses must be equal. The JSON line at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

from cpu_step import cpu_name

HERE = pathlib.Path(__file__).resolve().parent
OVERRIDES = ["train.eval_every=0", "checkpoint.every=0", "data.paths=['" + str(HERE.parent / "README.md") + "']"]
STATS = '\n[[observers]]\nplugin = "stats"\n'
KINDS = {"none": "", "gradients": STATS + "activations = false\nupdates = false\n", "default": STATS}


def run(engine, config, steps, out):
    subprocess.run([engine, "run", str(config), "--out", str(out), f"train.steps={steps}", *OVERRIDES], check=True,
                   capture_output=True)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    # The first steps touch memory for the first time, the last one saves.
    return statistics.median(s["step_seconds"] for s in lines[2:-1]), [s["loss"] for s in lines], len(lines[-1].get("observed", {}))


def planned(engine, config):
    """Bytes of a step, and those that are live at most for observers, as `engine plan` says."""
    said = subprocess.run([engine, "plan", str(config), *OVERRIDES], check=True, capture_output=True, text=True).stdout
    line = re.search(r"observers +(\d+) bytes", said)
    plan = json.loads(subprocess.run([engine, "plan", str(config), "--json", *OVERRIDES], check=True, capture_output=True).stdout)
    return plan["ranks"][0]["arenas"][0]["total"], int(line.group(1)) if line else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    engine = args.build.resolve() / "tools/engine"
    results, losses = {kind: [] for kind in KINDS}, []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = (HERE.parent / "examples/quickstart.toml").read_text()
        for kind, more in KINDS.items():
            (folder / f"{kind}.toml").write_text(text + more)
        memory = {kind: planned(engine, folder / f"{kind}.toml") for kind in KINDS}
        for cycle in range(args.cycles):
            for kind in KINDS:
                seconds, loss, seen = run(engine, folder / f"{kind}.toml", args.steps, folder / f"{kind}-{cycle}")
                assert (seen > 0) == (kind != "none"), f"{kind} observed {seen} values"
                results[kind].append(seconds)
                losses.append(loss)
    assert all(loss == losses[0] for loss in losses), "an observer has changed a loss"
    ratio = {kind: statistics.median(a / b for a, b in zip(times, results["none"])) for kind, times in results.items()}
    for kind, times in results.items():
        total, live = memory[kind]
        print(f"{kind:10} {statistics.median(times) * 1e3:8.2f} ms a step, {100 * (ratio[kind] - 1):+.2f} %; planned: {total} bytes, "
              f"{total - memory['none'][0]:+d}; for observers at most {live} at a time")
    summary = {"cpu": cpu_name(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "steps": args.steps,
               "cycles": args.cycles, "seconds": {k: [round(x, 5) for x in v] for k, v in results.items()},
               "to_none": {k: round(x, 4) for k, x in ratio.items()},
               "planned_bytes": {k: v[0] for k, v in memory.items()}, "observers_bytes": {k: v[1] for k, v in memory.items()}}
    print(json.dumps(summary))
    if args.out:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
