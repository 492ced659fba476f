#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps with states on tiers, as the plan plays them and as they are, on this CPU.

    tools/dev build && ninja -C build benchmarks/kernels/bench-adamw
    python3 benchmarks/offload_played.py --folder DIR [--rounds 20] [--seconds 240] [--words KEY=VALUE ...]
        [--out FILE.json]

llama with 58 million parameters. Every round measures the rates of the machine and two steps of each case, the second
one traced, every other round backwards. The rates are those of the products of the step alone, of a pass over memory
with the streams of AdamW, and, for each case with states on the tier "nvme" in --folder, the bytes that its traced
steps read and write by the seconds in which these queues are at work. A disk that is measured alone has other rates, for
other lengths of transfers and with idle processors.
`engine plan` then plays the step of each case with the medians. What the step without tiers takes longer than it is
played is work that no rate covers, such as softmax; the same time is added to the played step of each case.

Printed are, for each case, the played and the measured time, and which part of the step is exposed: by the plan, how
much longer it is because of reads and writes; by the trace, how long the queue that computes stands still (medians over
the rounds). Two claims are checked: both times agree within 15 %; and where the plan hides reads and writes, at most
5 % of the traced step is exposed. --claims: exit with 1 if one does not hold. The JSON object at the end is what
benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from cpu_step import HERE, MODELS, PLUGINS, Side, cpu_name

CASES = {
    "none": [],
    "parameters on nvme": ["offload.parameters=nvme"],
    "activations on nvme": ["offload.activations=nvme"],
    "optimizer on nvme": ["offload.optimizer=nvme"],
}
ELEMENTS = 30_000_128  # of the pass over memory
FREE = 10**15  # bytes per second: no time
AGREE, HIDDEN, EXPOSED = 0.15, 0.005, 0.05


def played(args, words):
    command = [str(args.build / "tools/engine"), "plan", str(HERE / "step" / MODELS["llama"]), "--json", *args.words]
    return json.loads(subprocess.run(command + words, check=True, capture_output=True, text=True).stdout)


def queues(actions):
    """From a traced step: bytes per second of the queues that read and write, and the fraction of it without
    computation."""
    busy, moved = {}, {}
    for queue, _, begin, end, size in actions:
        busy[queue] = busy.get(queue, 0) + end - begin
        moved[queue] = moved.get(queue, 0) + size
    seconds = max(end for _, _, _, end, _ in actions)
    rates = {queue: moved[queue] / busy[queue] for queue in ("read", "write") if queue in busy}
    return rates, 1 - busy["compute"] / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path.cwd(), help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=240, help="no round begins after so many")
    parser.add_argument("--words", nargs="*", default=[], help="for all cases, for example train.accumulate=4")
    parser.add_argument("--cases", nargs="*", help="only these, and the one without tiers")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--claims", action="store_true", help="exit with 1 if a claim does not hold")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    cases = {n: w for n, w in CASES.items() if n == "none" or not args.cases or n in args.cases}
    disks = [f'offload.nvme_paths=["{args.folder.resolve()}"]']
    words = {n: w + (disks if any("nvme" in x for x in w) else []) for n, w in cases.items()}
    plugins = [str(args.build / "plugins" / p) for p in ("llama", "offload", *PLUGINS)]
    step = [str(args.build / "benchmarks/step/engine-bench-step"), str(HERE / "step" / MODELS["llama"]), "serve",
            *plugins, *args.words]
    sides, seconds = {}, {n: [] for n in cases}
    rates, moves, still = {"products": [], "streams": []}, {n: {} for n in cases}, {n: [] for n in cases}
    try:
        memory = Side([str(args.build / "benchmarks/kernels/bench-adamw"), str(ELEMENTS)],
                      {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
        sides["memory"] = memory
        for name in cases:
            sides[name] = Side(step + words[name])

        def rate(name):
            if name == "products":
                return sides["none"].about["gemm_flops"] / sides["none"].ask("products")
            return 28 * ELEMENTS / memory.ask("streams 2")

        def one(name):
            seconds[name].append(sides[name].step())
            found, exposed = queues(sides[name].ask("trace")["actions"])
            still[name].append(exposed)
            for queue, value in found.items():
                moves[name].setdefault(queue, []).append(value)

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
    free = [f"offload.nvme_{queue}_bandwidth={FREE}" for queue in ("read", "write")]
    out = {"model": "llama", "cpu": cpu_name(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
           "words": args.words, "rounds": len(seconds["none"]), "rates": found, "cases": {}}
    more, failed = 0, []
    for name in cases:
        own = {queue: round(statistics.median(x)) for queue, x in moves[name].items()}
        at = [f"offload.nvme_{queue}_bandwidth={value}" for queue, value in own.items()]
        plan = played(args, words[name] + given + at)["step_seconds_estimate"]
        hidden = played(args, words[name] + given + free)["step_seconds_estimate"] if own else plan
        measured, quartiles = statistics.median(seconds[name]), statistics.quantiles(seconds[name], n=4)
        if name == "none":
            more = measured - plan
        case = out["cases"][name] = {
            "measured_seconds": round(measured, 3), "quartiles": [round(quartiles[0], 3), round(quartiles[2], 3)],
            "played_seconds": round(plan + more, 3), "measured_to_played": round(measured / (plan + more), 3),
            "played_exposed": round((plan - hidden) / (plan + more), 3),
            "traced_exposed": round(statistics.median(still[name]), 3), "rates": own}
        if abs(case["measured_to_played"] - 1) > AGREE:
            failed.append(f"{name}: the played and the measured step differ by more than {AGREE:.0%}")
        if case["played_exposed"] <= HIDDEN and case["traced_exposed"] > EXPOSED:
            failed.append(f"{name}: the plan hides reads and writes, but more than {EXPOSED:.0%} of the step is exposed")
    out["no_rate_covers_seconds"] = round(more, 3)
    for name, case in out["cases"].items():
        print(f"{name:20} measured {case['measured_seconds']:7.3f} s  played {case['played_seconds']:7.3f} s  ratio "
              f"{case['measured_to_played']:.3f}  exposed: played {case['played_exposed']:.3f}, "
              f"traced {case['traced_exposed']:.3f}")
    print(json.dumps(out))
    if args.out:
        args.out.write_text(json.dumps(out, indent=1) + "\n")
    print("\n".join(failed) or "both claims hold in all cases")
    return int(args.claims and bool(failed))


if __name__ == "__main__":
    sys.exit(main())
