#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tier "nvme" beside fio, in one directory: sequential reads and writes past the page cache.

    tools/dev build && ninja -C build benchmarks/nvme/bench-nvme
    python3 benchmarks/nvme.py DIRECTORY [--gib 2] [--block 1048576] [--depth 16] [--rounds 7] [--call BYTES]
        [--cached] [--build build] [--out benchmarks/results/FILE.json]

Both have a file of --gib GiB that was written once before, and io_uring with --depth requests of --block bytes in
flight. fio 3 has to be installed (Debian, Ubuntu: apt-get install fio). The tier moves --call bytes per call, as a plan
moves one value (64 MiB: 4096 x 4096 in f32), and a call ends when all of it is done, so that the disks run empty; fio
has no such ends. The tier also computes a checksum of every 4096 bytes. Each round measures all four, every other round
backwards. Printed are medians over the rounds of the rates, and of the ratios of the tier's to fio's within a round:
above 1 the tier is faster. The JSON object at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess

from cpu_step import HERE, Side, cpu_name


class Fio:
    def __init__(self, args):
        self.args, self.file = args, args.directory / f"engine-fio-{os.getpid()}"
        self.pass_over("write")

    def pass_over(self, what):
        """Seconds for all of the file."""
        a = self.args
        command = ["fio", "--name=pass", f"--filename={self.file}", f"--rw={what}", f"--bs={a.block}", f"--size={a.gib}g",
                   f"--iodepth={a.depth}", f"--direct={int(not a.cached)}", "--ioengine=io_uring", "--numjobs=1",
                   "--refill_buffers=0", "--overwrite=1", "--invalidate=1", "--output-format=json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=a.directory)
        if done.returncode:
            self.stop()
            raise SystemExit(f"fio failed:\n{done.stderr}{done.stdout}")
        side = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0][what]
        return side["io_bytes"] / side["bw_bytes"]

    def stop(self):
        self.file.unlink(missing_ok=True)


def measure(args, tier, fio):
    seconds = {(side, what): [] for what in ("write", "read") for side in ("tier", "fio")}
    for r in range(args.rounds):
        for side, what in list(seconds) if r % 2 == 0 else reversed(list(seconds)):
            seconds[side, what].append(tier.ask(what) if side == "tier" else fio.pass_over(what))
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, help="on the disk")
    parser.add_argument("--gib", type=int, default=2)
    parser.add_argument("--block", type=int, default=1 << 20)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--call", type=int, default=64 << 20)
    parser.add_argument("--cached", action="store_true", help="through the page cache, where there is no O_DIRECT")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    program = args.build / "benchmarks/nvme/bench-nvme"
    if not shutil.which("fio"):
        raise SystemExit("fio is not installed: apt-get install fio")
    if not program.exists():
        raise SystemExit(f"{program} is not built: ninja -C {args.build} benchmarks/nvme/bench-nvme")
    if not args.directory.is_dir():
        raise SystemExit(f"{args.directory} is not a directory")
    command = [str(program), str(args.directory), "--bytes", str(args.gib << 30), "--block", str(args.block), "--depth",
               str(args.depth), "--call", str(args.call)] + ["--cached"] * args.cached
    fio = tier = None
    try:
        fio = Fio(args)
        tier = Side(command)
        seconds = measure(args, tier, fio)
    finally:
        for side in (tier, fio):
            if side:
                side.stop()
    out = {"cpu": cpu_name(), "cpus": os.cpu_count(), "gib": args.gib, "block": args.block, "depth": args.depth,
           "call": args.call, "direct": not args.cached, "rounds": args.rounds}
    for what in ("write", "read"):
        rate = {side: (args.gib << 30) / statistics.median(seconds[side, what]) for side in ("tier", "fio")}
        ratios = [f / t for t, f in zip(seconds["tier", what], seconds["fio", what])]
        out[what] = {"tier": round(rate["tier"]), "fio": round(rate["fio"]), "ratio": round(statistics.median(ratios), 3),
                     "ratios": [round(x, 3) for x in ratios]}
        print(f"{what:5}  tier {rate['tier'] / 1e6:8.1f} MB/s   fio {rate['fio'] / 1e6:8.1f} MB/s   "
              f"tier / fio {out[what]['ratio']:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    text = json.dumps(out)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
