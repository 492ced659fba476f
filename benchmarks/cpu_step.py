#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step on this CPU: engine beside PyTorch, interleaved in one run.

    tools/dev build
    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch
    /tmp/peers/bin/python benchmarks/cpu_step.py [--model llama] [--cycles 3] [--rounds 5] [--build build]

--model llama: 58 million parameters, against the same model written in PyTorch. --model opt: OPT-125M, against that of
transformers (pip install transformers).

Each cycle runs engine, engine with recompute.policy = "full", PyTorch eager and PyTorch compiled one after the other,
each in a process of its own with two untimed steps first; medians over the cycles are printed with the ratios that
matter. The JSON line at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PLUGINS = ("cpu", "optim", "precision", "data")
# configuration, and the targets: step rate / rate of its products, tokens/s and peak memory against PyTorch
MODELS = {"llama": ("llama_58m.toml", 0.90, 1.3, 0.45), "opt": ("opt_125m.toml", 0.88, 1.3, None)}


def run(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama")
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--modes", default="eager,compile", help="PyTorch modes to compare with")
    args = parser.parse_args()
    config, gemm_target, speed_target, memory_target = MODELS[args.model]
    plugins = [str(args.build / "plugins" / p) for p in (args.model, *PLUGINS)]
    step = [str(args.build / "benchmarks/step/engine-bench-step"), str(HERE / "step" / config), str(args.rounds), *plugins]
    sides = {"engine": step, "engine, full recompute": [*step, "recompute.policy=full"]}
    ours = list(sides)
    for mode in args.modes.split(","):
        sides["torch " + mode] = [sys.executable, str(HERE / "torch_step.py"), args.model, mode, str(args.rounds)]
    results = {name: [] for name in sides}
    for cycle in range(args.cycles):
        for name, command in sides.items():
            results[name].append(run(command))
            r = results[name][-1]
            print(f"cycle {cycle + 1}  {name:22} {r['tokens_per_second']:8.0f} tokens/s  peak {r['peak_rss_bytes'] / 2**20:6.0f} MiB", flush=True)
    median = lambda name, key: statistics.median(r[key] for r in results[name])
    best = max((n for n in sides if n not in ours), key=lambda n: median(n, "tokens_per_second"))
    speed = lambda n: statistics.median(e["tokens_per_second"] / t["tokens_per_second"] for e, t in zip(results[n], results[best]))
    summary = {
        "model": args.model, "cpu": cpu_name(), "cores": os.cpu_count(), "torch": results[best][0]["torch"], "best_torch": best,
        "tokens_per_second": {n: round(median(n, "tokens_per_second"), 1) for n in sides},
        "peak_mib": {n: round(median(n, "peak_rss_bytes") / 2**20) for n in sides},
        "step_to_gemm_rate": {n: round(median(n, "step_to_gemm_rate"), 4) for n in ours},
        "speed_ratio": {n: round(speed(n), 3) for n in ours},
        "memory_ratio": {n: round(median(n, "peak_rss_bytes") / median(best, "peak_rss_bytes"), 4) for n in ours},
    }
    for n in ours:
        print(f"\n{n}")
        print(f"  step rate / rate of its matrix products alone   {summary['step_to_gemm_rate'][n]:.3f}   (target {gemm_target})")
        print(f"  tokens/s against {best:14}                 {summary['speed_ratio'][n]:.2f} x  (target {speed_target})")
        print(f"  peak memory against {best:14}              {summary['memory_ratio'][n]:.3f}" + (f"   (target {memory_target})" if memory_target else ""))
    print()
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
