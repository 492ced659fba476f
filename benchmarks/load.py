#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what waiting between threads of the cpu device costs: the quickstart's steps, alone and beside processes
that want the same cores.

    tools/dev build
    python3 benchmarks/load.py [--rounds 7] [--steps 40] [--neighbours 2] [--threads 0] [--counts 0,1000]
        [--build build] [--out FILE.json]

Each round runs `engine run` once in each way to wait, every other round backwards, first alone, then beside
--neighbours shells that loop. The ways: the engine's default; OMP_WAIT_POLICY=active, which spins for minutes; passive,
which sleeps at once; GOMP_SPINCOUNT=300000, which is libgomp's default, a spin of milliseconds; and the counts of
--counts. What counts is the rate over all steps but the first five: where threads have to wait for a core, single steps
differ by a factor of ten. Ratios are those within a round. Other work on the machine counts as neighbours, so `alone`
means that only on an idle machine. The JSON object at the end is what benchmarks/results/ keeps.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from cpu_step import cpu_name

ROOT = pathlib.Path(__file__).resolve().parents[1]
WAYS = {"default": {}, "active": {"OMP_WAIT_POLICY": "active"}, "passive": {"OMP_WAIT_POLICY": "passive"},
        "libgomp": {"GOMP_SPINCOUNT": "300000"}}
SKIPPED = 5  # steps


@contextlib.contextmanager
def neighbours(n):
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rate(args, variables, out):
    """Tokens per second, and the losses."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    command = [str(args.build.resolve() / "tools/engine"), "run", str(ROOT / "examples/quickstart.toml"), "--out", out,
               f"train.steps={args.steps}", f"device.threads={args.threads}", "train.eval_every=0", "checkpoint.every=0",
               *args.overrides]
    subprocess.run(command, check=True, env={**environment, **variables}, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()]
    tokens = lines[-1]["tokens"] - lines[SKIPPED - 1]["tokens"]
    return tokens / sum(line["step_seconds"] for line in lines[SKIPPED:]), [line["loss"] for line in lines]


def measured(args, ways, folder):
    """{"alone": {way: rate by round}, "beside": ...}"""
    rates = {"alone": {w: [] for w in ways}, "beside": {w: [] for w in ways}}
    losses = None
    for r in range(args.rounds):
        for where, n in (("alone", 0), ("beside", args.neighbours)):
            with neighbours(n):
                for way in list(ways) if r % 2 == 0 else reversed(ways):
                    got, numbers = rate(args, ways[way], f"{folder}/{r}-{where}-{way}")
                    rates[where][way].append(got)
                    losses = losses or numbers
                    if numbers != losses:
                        raise SystemExit(f"{way}: other losses")
            print(f"round {r + 1} {where:7}" + "".join(f"  {w} {t[-1]:.0f}" for w, t in rates[where].items()), flush=True)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--neighbours", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--counts", help="also these values of GOMP_SPINCOUNT")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    args = parser.parse_args()
    if args.steps <= SKIPPED:
        raise SystemExit(f"--steps: more than {SKIPPED}")
    counts = args.counts.split(",") if args.counts else []
    ways = {**WAYS, **{f"count {n}": {"GOMP_SPINCOUNT": n} for n in counts}}
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--match", "v[0-9]*"],
                            stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rates = measured(args, ways, folder)
    summary = {"cpu": cpu_name(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "commit": commit,
               "load_before": round(load, 2), "rounds": args.rounds, "steps": args.steps, "threads": args.threads,
               "neighbours": args.neighbours, "tokens_per_second": {}, "default_to_better": {}}
    for where, of in rates.items():
        summary["tokens_per_second"][where] = {way: round(statistics.median(t), 1) for way, t in of.items()}
        # The time of the default, in times of the better policy.
        better = [max(pair) / own for own, *pair in zip(of["default"], of["active"], of["passive"])]
        summary["default_to_better"][where] = {"median": round(statistics.median(better), 3),
                                               "worst": round(max(better), 3)}
        print(f"\n{'alone' if where == 'alone' else f'beside {args.neighbours} busy processes'}: tokens per second, and "
              "the rate in rates of the default")
        for way, t in of.items():
            print(f"  {way:14} {statistics.median(t):9.0f}   {statistics.median(a / b for a, b in zip(t, of['default'])):.3f}")
        print(f"  time of the default, in times of the better of active and passive: {statistics.median(better):.3f}")
    print("\n" + json.dumps(summary))
    if args.out:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
