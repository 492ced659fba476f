#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps with states on tiers, as the plan plays them and as they are, on this CPU.

    tools/dev build && ninja -C build benchmarks/nvme/bench-nvme benchmarks/kernels/bench-adamw
    python3 benchmarks/offload_played.py --folder DIR [--rounds 20] [--seconds 190] [--words KEY=VALUE ...]
        [--out FILE.json]

llama with 58 million parameters. Every round measures the rates of the machine and one step of each case, every other
round backwards: the products of the step alone, a pass over memory with the streams of AdamW, and reads and writes of
the tier "nvme" in --folder. `engine plan` then plays the step of each case with the medians of these rates. What the
step without tiers takes longer than it is played is work that no rate covers, such as softmax; the same time is added
to the played step of each case. Printed are, for each case, the played and the measured time, how much longer the
played step is because of its reads and writes, and which part of the step the computation waited for other queues
(medians over the rounds). The JSON object at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

from cpu_step import HERE, MODELS, PLUGINS, Side, cpu_name

CASES = {
    "none": [],
    "parameters on nvme": ["offload.parameters=nvme"],
    "activations on nvme": ["offload.activations=nvme"],
    "optimizer on nvme": ["offload.optimizer=nvme"],
}
ELEMENTS, BYTES = 30_000_128, 512 << 20  # of the pass over memory; of the arena that is read and written
FREE = 10**15  # bytes per second: no time


def played(args, words):
    command = [str(args.build / "tools/engine"), "plan", str(HERE / "step" / MODELS["llama"]), "--json", *args.words]
    return json.loads(subprocess.run(command + words, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path.cwd(), help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=190, help="no round begins after so many")
    parser.add_argument("--words", nargs="*", default=[], help="for all cases, for example train.accumulate=4")
    parser.add_argument("--cases", nargs="*", help="only these, and the one without tiers")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    cases = {n: w for n, w in CASES.items() if n == "none" or not args.cases or n in args.cases}
    disks = [f'offload.nvme_paths=["{args.folder.resolve()}"]']
    words = {n: w + (disks if any("nvme" in x for x in w) else []) for n, w in cases.items()}
    plugins = [str(args.build / "plugins" / p) for p in ("llama", "offload", *PLUGINS)]
    step = [str(args.build / "benchmarks/step/engine-bench-step"), str(HERE / "step" / MODELS["llama"]), "serve",
            *plugins, *args.words]
    sides, seconds, waited = {}, {n: [] for n in cases}, {n: [] for n in cases}
    rates = {"products": [], "streams": [], "read": [], "write": []}
    try:
        memory = Side([str(args.build / "benchmarks/kernels/bench-adamw"), str(ELEMENTS)],
                      {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
        sides["memory"] = memory
        sides["disk"] = disk = Side([str(args.build / "benchmarks/nvme/bench-nvme"), str(args.folder), "--bytes",
                                     str(BYTES), "--call", str(16 << 20)])
        for name in cases:
            sides[name] = Side(step + words[name])

        def rate(name):
            if name == "products":
                return sides["none"].about["gemm_flops"] / sides["none"].ask("products")
            return 28 * ELEMENTS / memory.ask("streams 2") if name == "streams" else BYTES / disk.ask(name)

        def one(name):
            seconds[name].append(sides[name].step())
            waited[name].append(sides[name].ask("waited") / seconds[name][-1])

        begun = time.monotonic()
        for r in range(args.rounds):
            if time.monotonic() - begun > args.seconds:
                break
            for name in [*rates, *cases] if r % 2 == 0 else reversed([*rates, *cases]):
                rates[name].append(rate(name)) if name in rates else one(name)
            print(f"round {r + 1}: " + "  ".join(f"{t[-1]:.3f}" for t in seconds.values()), flush=True)
    finally:
        for side in sides.values():
            side.stop()
    found = {n: round(statistics.median(x)) for n, x in rates.items()}
    given = [f"comm.describe.flops={found['products']}", f"comm.describe.memory_bandwidth={found['streams']}"]
    at = [f"offload.nvme_read_bandwidth={found['read']}", f"offload.nvme_write_bandwidth={found['write']}"]
    free = [f"offload.nvme_read_bandwidth={FREE}", f"offload.nvme_write_bandwidth={FREE}"]
    out = {"model": "llama", "cpu": cpu_name(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
           "words": args.words, "rounds": len(seconds["none"]), "rates": found, "cases": {}}
    more = 0
    for name in cases:
        stored = any("nvme" in x for x in words[name])
        plan = played(args, words[name] + given + (at if stored else []))["step_seconds_estimate"]
        hidden = played(args, words[name] + given + free)["step_seconds_estimate"] if stored else plan
        measured = statistics.median(seconds[name])
        if name == "none":
            more = measured - plan
        out["cases"][name] = {
            "measured_seconds": round(measured, 3), "played_seconds": round(plan + more, 3),
            "measured_to_played": round(measured / (plan + more), 3),
            "played_exposed": round((plan - hidden) / (plan + more), 3),
            "waited": round(statistics.median(waited[name]), 3)}
    out["no_rate_covers_seconds"] = round(more, 3)
    for name, case in out["cases"].items():
        print(f"{name:20} measured {case['measured_seconds']:7.3f} s  played {case['played_seconds']:7.3f} s  ratio "
              f"{case['measured_to_played']:.3f}  exposed: played {case['played_exposed']:.3f}, "
              f"measured {case['waited']:.3f}")
    print(json.dumps(out))
    if args.out:
        args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
