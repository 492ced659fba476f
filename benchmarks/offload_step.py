#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of states on tiers on this CPU: a training step with them beside one without, interleaved step by
step.

    tools/dev build
    python3 benchmarks/offload_step.py [--folder DIR] [--rounds 9] [--words KEY=VALUE ...] [--out FILE.json]

llama with 58 million parameters. One process per case stays; every round runs one step of each, every other round
backwards. Printed are, as medians over the rounds: the time of a step, its ratio to the step without tiers in the same
round, and which part of it the computation waited for other queues. --folder: on the disk to measure. The JSON object at
the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import statistics
import time

from cpu_step import HERE, MODELS, PLUGINS, Side, cpu_name

CASES = {
    "none": [],
    "optimizer on host": ["offload.optimizer=host"],
    "optimizer on host, updated on the device": ["offload.optimizer=host", "offload.update=device"],
    "all on host": [f"offload.{s}=host" for s in ("optimizer", "gradients", "parameters", "activations")],
    "optimizer on nvme": ["offload.optimizer=nvme"],
    "optimizer on nvme, half of it updated early": ["offload.optimizer=nvme", "offload.update_early=true",
                                                    "offload.early_share=0.5", "train.grad_clip=0"],
    "half of the optimizer on nvme": ["offload.optimizer=nvme", "offload.ratio=0.5"],
    "optimizer and gradients on nvme": ["offload.optimizer=nvme", "offload.gradients=nvme"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path.cwd())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--words", nargs="*", default=[], help="for all cases, for example train.accumulate=4")
    parser.add_argument("--cases", help="only those with this text, and the one without tiers")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    plugins = [str(args.build / "plugins" / p) for p in ("llama", "offload", *PLUGINS)]
    command = [str(args.build / "benchmarks/step/engine-bench-step"), str(HERE / "step" / MODELS["llama"]), "serve",
               *plugins, *args.words]
    disks = [f'offload.nvme_paths=["{args.folder.resolve()}"]']
    sides, seconds, waited = {}, {}, {}
    try:
        for name, words in CASES.items():
            if args.cases and name != "none" and args.cases not in name:
                continue
            sides[name] = Side(command + words + (disks if any("nvme" in w for w in words) else []))
            seconds[name], waited[name] = [], []
        for r in range(args.rounds):
            for name in list(sides) if r % 2 == 0 else reversed(sides):
                seconds[name].append(sides[name].step())
                waited[name].append(sides[name].ask("waited") / seconds[name][-1])
            print(f"round {r + 1}: " + "  ".join(f"{t[-1]:.3f}" for t in seconds.values()), flush=True)
    finally:
        for side in sides.values():
            side.stop()
    summary = {"model": "llama", "cpu": cpu_name(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
               "words": args.words, "rounds": args.rounds, "cases": {}}
    for name, times in seconds.items():
        summary["cases"][name] = {
            "seconds": round(statistics.median(times), 3),
            "of_the_step_without": round(statistics.median(t / p for t, p in zip(times, seconds["none"])), 3),
            "waited": round(statistics.median(waited[name]), 3),
            "arena_bytes": sides[name].about["arena_bytes"], "tier_bytes": sides[name].about["tier_bytes"]}
    for name, case in summary["cases"].items():
        print(f"{name:42} {case['seconds']:8.3f} s  {case['of_the_step_without']:6.3f}  waited {case['waited']:.3f}")
    print(json.dumps(summary))
    if args.out:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
