#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step on this CPU, in each number format: engine beside PyTorch, interleaved step by step.

    tools/dev build
    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch
    /tmp/peers/bin/python benchmarks/cpu_step.py [--model llama] [--formats fp32,bf16] [--isa avx2] [--rounds 7]
        [--build build] [--out benchmarks/results/FILE.json]

--model llama: 58 million parameters, against the same model written in PyTorch. --model opt: OPT-125M, against that of
transformers (pip install transformers). --formats: precision plugins, the first of them fp32. --isa: what both sides may
use; auto is what each chooses.

PyTorch's best in a format is the fastest of eager and compiled, and in 16 bits of weights in that format without a
master, and fp32 weights under autocast: each runs one step first. Then one process per side stays, and every round runs
one step of each and the products of each of the engine's steps alone, every other round backwards. Printed are medians
over the rounds, and of the ratios within a round. A side that is slow takes part in fewer rounds (--seconds). Where
PyTorch does not finish one step within --patience seconds, that is a lower bound of the ratio.
The JSON object at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import platform
import select
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PLUGINS = ("cpu", "optim", "precision", "data")
MODELS = {"llama": "llama_58m.toml", "opt": "opt_125m.toml"}
PEERS = {"fp32": ["fp32"], "bf16": ["bf16", "autocast-bf16"], "fp16": ["fp16", "autocast-fp16"]}
# Instruction-set names for PyTorch's own loops, for oneDNN and for MKL.
ISAS = {"auto": None, "avx2": ("avx2", "AVX2", "AVX2"), "avx512": ("avx512", "AVX512_CORE", "AVX512"),
        "avx512_bf16": ("avx512", "AVX512_CORE_BF16", None)}


def run(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def torch_environment(isa):
    limits = dict(os.environ)
    if ISAS[isa]:
        for key, value in zip(("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"), ISAS[isa]):
            if value:
                limits[key] = value
    return limits


class Side:
    """A process that answers each line of its input with one line."""

    def __init__(self, command, environment=None, patience=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.spent = 0.0
        try:
            self.about = json.loads(self.answer(patience))
        except BaseException:
            self.stop()
            raise

    def answer(self, patience=None):
        if patience and not select.select([self.process.stdout], [], [], patience)[0]:
            raise TimeoutError
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[0]} ended: {self.process.wait()}")
        return line

    def ask(self, what, patience=None):
        self.process.stdin.write(what.encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.answer(patience))

    def step(self, patience=None):
        seconds = self.ask("step", patience)
        self.spent += seconds
        return seconds

    def stop(self):
        self.process.kill()
        self.process.wait()


def best_of_torch(args, form, late):
    """The fastest of PyTorch's ways to compute in this format, as (name, side), or None if none was quick enough.
    The names of those that were not are added to `late`."""
    best = None
    for peer in PEERS[form]:
        for mode in args.modes.split(","):
            name = f"torch {peer} {mode}"
            command = [sys.executable, str(HERE / "torch_step.py"), args.model, mode, "serve", peer]
            try:
                side = Side(command, torch_environment(args.isa), args.patience)
                seconds = min(side.step(args.patience), side.step(args.patience))
            except TimeoutError:
                print(f"  {name:28} not within {args.patience:.0f} s", flush=True)
                late.append(name)
                continue
            print(f"  {name:28} {seconds:8.3f} s", flush=True)
            side.spent = 0.0
            if best and best[2] <= seconds:
                side.stop()
                continue
            if best:
                best[1].stop()
            best = (name, side, seconds)
    return best[:2] if best else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama")
    parser.add_argument("--formats", default="fp32,bf16")
    parser.add_argument("--isa", choices=ISAS, default="auto")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60, help="a side that took this long runs no more rounds")
    parser.add_argument("--patience", type=float, default=240, help="seconds within which a side must take a step")
    parser.add_argument("--recompute", action="store_true", help='also the engine with recompute.policy = "full"')
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--modes", default="eager,compile", help="PyTorch modes to compare with; none: the engine alone")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    formats = args.formats.split(",")
    if formats[0] != "fp32" or any(f.split("_")[0] not in PEERS for f in formats):
        raise SystemExit("--formats: fp32 first, then precision plugins such as bf16, bf16_sr, fp16")

    sides, ours, peers, late = {}, {}, {}, []
    try:
        plugins = [str(args.build / "plugins" / p) for p in (args.model, *PLUGINS)]
        step = [str(args.build / "benchmarks/step/engine-bench-step"), str(HERE / "step" / MODELS[args.model]), "serve",
                *plugins, "device.isa=" + args.isa]
        for form in formats:
            ours["engine " + form] = form
            sides["engine " + form] = Side([*step, "precision.plugin=" + form])
            if args.recompute:
                ours[f"engine {form}, full recompute"] = form
                sides[f"engine {form}, full recompute"] = Side(
                    [*step, "precision.plugin=" + form, "recompute.policy=full"])
        for form in [] if args.modes == "none" else dict.fromkeys(f.split("_")[0] for f in formats):
            found = best_of_torch(args, form, late)
            if found:
                peers[form] = found[0]
                sides[found[0]] = found[1]
        summary = measure(args, sides, ours, peers, late)
    finally:
        for side in sides.values():
            side.stop()
    print(json.dumps(summary))
    if args.out:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")


def measure(args, sides, ours, peers, late):
    steps = {name: {} for name in sides}  # seconds by round
    products = {name: {} for name in ours}
    for r in range(args.rounds):
        for name in list(sides) if r % 2 == 0 else reversed(sides):
            if sides[name].spent > args.seconds and steps[name]:
                continue
            if name in ours:
                products[name][r] = sides[name].ask("products")
            steps[name][r] = sides[name].step()
        print(f"round {r + 1}: " + "  ".join(f"{n} {t[r]:.3f}" for n, t in steps.items() if r in t), flush=True)

    def rate(name, other):  # of the steps of `name`, in steps of `other`
        both = steps[name].keys() & steps[other].keys()
        return round(statistics.median(steps[other][r] / steps[name][r] for r in both), 3)

    about = {n: s.about for n, s in sides.items()}
    for name in peers.values():
        about[name].update(sides[name].ask("peak"))
    tokens = about["engine fp32"]["tokens"]
    share = lambda n, other, key: round(about[n][key] / about[other][key], 4)
    summary = {
        "model": args.model, "cpu": cpu_name(), "cores": os.cpu_count(), "isa": args.isa,
        "date": time.strftime("%Y-%m-%d"), "rounds": {n: len(t) for n, t in steps.items()},
        "torch": {about[n]["torch"] for n in peers.values()}, "best_torch": peers,
        "tokens_per_second": {n: round(tokens / statistics.median(t.values()), 1) for n, t in steps.items()},
        "peak_mib": {n: round(a["peak_rss_bytes"] / 2**20) for n, a in about.items()},
        "torch_not_within_seconds": {name: args.patience for name in late}, "engine": {}}
    summary["torch"] = ", ".join(sorted(summary["torch"]))
    for name, form in ours.items():
        peer = peers.get(form.split("_")[0])
        row = {"step_to_gemm_rate": round(statistics.median(products[name][r] / t for r, t in steps[name].items()), 3),
               "products_gflops": round(about[name]["gemm_flops"] / statistics.median(products[name].values()) / 1e9, 1),
               "speed_to_fp32": rate(name, "engine fp32"),
               "peak_to_fp32": share(name, "engine fp32", "peak_rss_bytes"),
               "kept_activations_to_fp32": share(name, "engine fp32", "kept_activation_bytes")}
        if peer:
            row.update(speed_to_torch=rate(name, peer), peak_to_torch=share(name, peer, "peak_rss_bytes"))
        elif late and args.modes != "none":
            row.update(speed_to_torch_at_least=round(args.patience / statistics.median(steps[name].values()), 1))
        summary["engine"][name] = row
        print(f"\n{name}: {summary['tokens_per_second'][name]:.0f} tokens/s, {summary['peak_mib'][name]} MiB")
        print(f"  step rate / rate of its matrix products alone    {row['step_to_gemm_rate']:.3f}   (products {row['products_gflops']:.0f} GFLOP/s)")
        if name != "engine fp32":
            print(f"  speed, peak, kept activations against fp32's     {row['speed_to_fp32']:.2f} x  {row['peak_to_fp32']:.3f}  {row['kept_activations_to_fp32']:.3f}")
        if peer:
            print(f"  speed, peak against {peer:28} {row['speed_to_torch']:.2f} x  {row['peak_to_torch']:.3f}")
        elif "speed_to_torch_at_least" in row:
            print(f"  PyTorch: not one step within {args.patience:.0f} s; speed at least             {row['speed_to_torch_at_least']:.1f} x")
    print()
    return summary


if __name__ == "__main__":
    main()
