#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long `engine run` takes to refuse a model that does not fit and to propose changes: from the start of
the command to its end, with a LLaMA of 7 billion parameters on a device of 16 GiB.

    tools/dev build
    python3 benchmarks/refusal.py [--times 9] [--build build] [--out FILE.json]

The device is the cpu device with a limit, so no GPU is needed. The command must end with code 5 before it makes a run
directory, and print at least one setting that fits. Beside the time stand the seconds of processor time, which other
programs on the machine hardly change. The JSON line at the end is what benchmarks/results/ keeps."""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile
import time

from cpu_step import cpu_name

HERE = pathlib.Path(__file__).resolve().parent
WORDS = ["model.preset=7b", "train.micro_batch=1", "device.memory=16GiB"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    engine = args.build.resolve() / "tools/engine"
    seconds, processor, printed = [], [], ""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder, "run")
        for _ in range(args.times):
            begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([engine, "run", HERE.parent / "examples/quickstart.toml", "--out", place, *WORDS],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL)
            seconds.append(time.monotonic() - begin)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            printed = done.stdout + done.stderr
            assert done.returncode == 5 and "these fits:" in printed and not place.exists(), (done.returncode, printed)
    print(printed)
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip()
    result = {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "date": time.strftime("%Y-%m-%d"), "commit": commit,
              "words": WORDS, "seconds": [round(s, 3) for s in seconds], "median": round(statistics.median(seconds), 3),
              "processor_seconds": round(statistics.median(processor), 3), "least": round(min(seconds), 3),
              "would_fit": len(re.findall(r"^  \S", printed, re.MULTILINE))}
    line = json.dumps(result)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(line)


if __name__ == "__main__":
    main()
