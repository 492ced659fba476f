#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the curvature job's probes relative to their gradients, two for each probe.

    tools/dev build
    python3 benchmarks/curvature_cost.py [--rounds 5] [--words KEY=VALUE ...] [--out FILE.json]

A model of about a million parameters (examples/quickstart.toml), on one thread. One side is the curvature job with 8 and
with 40 probes; the difference is 32 probes. The other is a job that only computes gradients (curvature/gradients_job.c,
compiled here), 16 and 80 of the same windows; the difference is 64 gradients. So what both do once is in neither. The
sides take turns. Printed are the processor time and the time by the clock of each side, the least of all rounds, and
their ratios. The promise is at most 1.1 of the processor time. The state is saved once, after the last probe; after
each probe, as by default; and after each with checkpoint.asynchronous=true.
"""
import argparse
import json
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time

from cpu_step import HERE, cpu_name

ROOT = HERE.parent


def ran(command):
    """Seconds of the processor and by the clock."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--words", nargs="*", default=[], help="for both sides, for example train.sequence_length=128")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'abi'}", str(HERE / "curvature/gradients_job.c"), "-o",
                        str(folder / "gradients.eng.so")], check=True)
        same = [str(ROOT / "examples/quickstart.toml"), "job.windows=8", "job.micro_batch=4", "device.threads=1",
                *args.words]

        def side(job, *words):
            out = folder / "out"
            shutil.rmtree(out, ignore_errors=True)
            return ran([str(args.build / "tools/engine"), "--plugin-path", str(folder), "analyse", *same, "--job", job,
                        "--out", str(out), *words])

        def probes(n, save, *words):
            return side("curvature", f"job.probes={n}", f"job.save_every={save}", "job.noise_seeds=0",
                        'job.embedding="none"', "job.held_windows=4", "job.train_windows=4", *words)

        def gradients(n):
            return side("gradients", f"job.times={n}")

        cases = {"32 probes": [lambda: probes(8, 1000), lambda: probes(40, 1000)],
                 "32 probes, each saved": [lambda: probes(8, 1), lambda: probes(40, 1)],
                 "32 probes, each saved meanwhile": [lambda: probes(8, 1, "checkpoint.asynchronous=true"),
                                                     lambda: probes(40, 1, "checkpoint.asynchronous=true")],
                 "64 gradients": [lambda: gradients(16), lambda: gradients(80)]}
        least = {name: [[float("inf")] * 2, [float("inf")] * 2] for name in cases}
        for r in range(args.rounds):
            for name, both in cases.items():
                for k, run in enumerate(both):
                    least[name][k] = [min(a, b) for a, b in zip(least[name][k], run())]
            print(f"round {r + 1}: " + ", ".join(
                f"{name} {more[0] - few[0]:.2f} s" for name, (few, more) in least.items()), flush=True)
    seconds = {name: {"processor": round(more[0] - few[0], 3), "clock": round(more[1] - few[1], 3)}
               for name, (few, more) in least.items()}
    result = {"cpu": cpu_name(), "date": time.strftime("%Y-%m-%d"), "rounds": args.rounds, "seconds": seconds, "ratio": {
        name: {k: round(v / seconds["64 gradients"][k], 3) for k, v in of.items()}
        for name, of in seconds.items() if name != "64 gradients"}}
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    raise SystemExit(any(ratio["processor"] > 1.1 for ratio in result["ratio"].values()))


if __name__ == "__main__":
    main()
