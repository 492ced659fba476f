#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of Mamba-130m on this CPU: engine beside Hugging Face transformers; and how the step grows with length.

    tools/dev build
    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch transformers
    /tmp/peers/bin/python benchmarks/mamba_step.py [--cycles 3] [--rounds 3] [--build build] [--modes sequential,associative]
    /tmp/peers/bin/python benchmarks/mamba_step.py --lengths 256,512,1024,2048,4096,8192

Each cycle runs engine and every scan of transformers one after the other, each in a process of its own. With --lengths
only the engine runs: one layer of that model over a small vocabulary, so that scan and convolution are what is
measured; time and memory per token must not depend on the length. The JSON line at the end is what benchmarks/results/
keeps.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from cpu_step import HERE, cpu_name, run

PLUGINS = ("cpu", "mamba", "optim", "precision", "data")
LAYER = """[model]
plugin = "mamba"
preset = "130m"
vocab_size = 256
num_hidden_layers = 1
[data]
plugin = "text"
paths = ["none"]
[train]
steps = 10
micro_batch = 1
sequence_length = {length}
[optimizer]
plugin = "adamw"
learning_rate = 1e-4
"""


def engine(build, config, rounds):
    folders = [str(build / "plugins" / name) for name in PLUGINS]
    return run([str(build / "benchmarks/step/engine-bench-step"), str(config), str(rounds), *folders])


def growth(args):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for length in map(int, args.lengths.split(",")):
            config = pathlib.Path(folder) / f"{length}.toml"
            config.write_text(LAYER.format(length=length))
            r = engine(args.build, config, args.rounds)
            rows.append({"length": length, "microseconds_per_token": round(1e6 * r["step_seconds"] / length, 2),
                         "step_to_gemm_rate": round(r["step_to_gemm_rate"], 3), "arena_bytes": r["arena_bytes"]})
            print(f"T {length:5}  {rows[-1]['microseconds_per_token']:8.2f} us per token  "
                  f"arena {r['arena_bytes'] / 2**20:7.1f} MiB", flush=True)
    first, last = rows[0], rows[-1]
    span = last["length"] - first["length"]
    summary = {"cpu": cpu_name(), "cores": os.cpu_count(), "lengths": rows,
               "bytes_per_more_token": round((last["arena_bytes"] - first["arena_bytes"]) / span, 1),
               "time_per_token_last_to_first": round(last["microseconds_per_token"] / first["microseconds_per_token"], 3)}
    print(f"\ntime per token, longest against shortest   {summary['time_per_token_last_to_first']:.2f}   (linear: about 1)")
    print(json.dumps(summary))


def compare(args):
    sides = ["engine", *args.modes.split(",")]
    results = {name: [] for name in sides}
    for cycle in range(args.cycles):
        for name in sides:
            r = engine(args.build, HERE / "step" / "mamba_130m.toml", args.rounds) if name == "engine" else \
                run([sys.executable, str(HERE / "torch_mamba.py"), name, str(args.rounds)])
            results[name].append(r)
            print(f"cycle {cycle + 1}  {name:12} {r['tokens_per_second']:8.1f} tokens/s  "
                  f"peak {r['peak_rss_bytes'] / 2**20:6.0f} MiB", flush=True)
    median = lambda name, key: statistics.median(r[key] for r in results[name])
    best = max(sides[1:], key=lambda name: median(name, "tokens_per_second"))
    summary = {
        "cpu": cpu_name(), "cores": os.cpu_count(), "torch": results[best][0]["torch"],
        "transformers": results[best][0]["transformers"], "best_scan": best,
        "tokens_per_second": {n: round(median(n, "tokens_per_second"), 1) for n in sides},
        "peak_mib": {n: round(median(n, "peak_rss_bytes") / 2**20) for n in sides},
        "step_to_gemm_rate": round(median("engine", "step_to_gemm_rate"), 4),
        "speed_ratio": round(median("engine", "tokens_per_second") / median(best, "tokens_per_second"), 3),
        "memory_ratio": round(median("engine", "peak_rss_bytes") / median(best, "peak_rss_bytes"), 4),
    }
    print(f"\nstep rate / rate of its matrix products alone   {summary['step_to_gemm_rate']:.3f}   (target 0.50)")
    print(f"tokens/s against {best:14}                 {summary['speed_ratio']:.2f} x  (target 5)")
    print(f"peak memory against {best:14}              {summary['memory_ratio']:.3f}   (target 0.333)")
    print(json.dumps(summary))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--modes", default="sequential,associative", help="scans of transformers to compare with")
    parser.add_argument("--lengths", help="measure growth over these lengths instead")
    args = parser.parse_args()
    (growth if args.lengths else compare)(args)


if __name__ == "__main__":
    main()
