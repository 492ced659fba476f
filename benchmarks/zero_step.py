#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The step time of each strategy beside that of replicated data parallel, on this machine's processors.

    tools/dev build
    python3 benchmarks/zero_step.py [--ranks 2] [--cycles 3] [--steps 8] [--build build]

Each cycle runs every strategy once, one after the other, in processes of their own; of a run the median step counts,
the first two left aside. Printed are the medians over the cycles and their ratios to `none`, with what the computation
waited for communication. The JSON line at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
STRATEGIES = ("none", "zero1", "zero2", "zero3")
CONFIG = """
[model]
plugin = "llama"
vocab_size = 8192
hidden_size = 512
intermediate_size = 1376
num_hidden_layers = 6
num_attention_heads = 8
[data]
paths = ["text.txt"]
[train]
steps = {steps}
micro_batch = 4
sequence_length = 256
[zero]
bucket = "16MiB"
[checkpoint]
every = 0
"""


def run(engine, folder, strategy, ranks, cycle):
    out = f"{strategy}-{cycle}"
    command = [engine, "run", "zero.toml", "--ranks", str(ranks), "--out", out, f"zero.plugin={strategy}"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    steps = [json.loads(line) for line in open(folder / out / "metrics.jsonl")][2:]
    return (statistics.median(s["step_seconds"] for s in steps),
            statistics.median(s["wait_seconds"]["comm"] for s in steps), steps[-1]["loss"], steps[-1]["host_peak_bytes"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    args = parser.parse_args()
    engine = args.build.resolve() / "tools/engine"
    results = {s: [] for s in STRATEGIES}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("\n".join(f"{i} times {i} is {i * i}" for i in range(20000)))
        (folder / "zero.toml").write_text(CONFIG.format(steps=args.steps))
        for cycle in range(args.cycles):
            for strategy in STRATEGIES:
                results[strategy].append(run(engine, folder, strategy, args.ranks, cycle))
                seconds, waited, loss, peak = results[strategy][-1]
                print(f"cycle {cycle + 1}  {strategy:6}  {seconds:7.3f} s a step, {waited:6.3f} s of it waited for "
                      f"communication, peak {peak / 2**20:.0f} MiB, loss {loss!r}", flush=True)
    assert len({r[2] for rs in results.values() for r in rs}) == 1, "the strategies differ"
    median = {s: statistics.median(r[0] for r in rs) for s, rs in results.items()}
    ratio = {s: statistics.median(r[0] / n[0] for r, n in zip(rs, results["none"])) for s, rs in results.items()}
    for strategy in STRATEGIES:
        print(f"{strategy:6}  {median[strategy]:7.3f} s  {ratio[strategy]:.3f} of none")
    print(json.dumps({"ranks": args.ranks, "cores": os.cpu_count(), "seconds": {s: round(x, 4) for s, x in median.items()},
                      "to_none": {s: round(x, 4) for s, x in ratio.items()},
                      "waited": {s: round(statistics.median(r[1] for r in rs), 4) for s, rs in results.items()},
                      "peak_mib": {s: round(rs[0][3] / 2**20) for s, rs in results.items()}}))


if __name__ == "__main__":
    main()
