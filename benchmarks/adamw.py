#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AdamW on this CPU: the engine's beside a pass over memory with the same streams, and beside PyTorch's fused one.

    ninja -C build benchmarks/kernels/bench-adamw
    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch numpy
    /tmp/peers/bin/python benchmarks/adamw.py [--elements 30000128] [--rounds 15] [--build build] [--out FILE.json]

All in fp32, with all cores. The pass reads p, grad, m and v and writes p, m and v, in the process of the engine's update.
Two more updates leave the new weight in bf16 as well: `written` in the same pass over memory, `cast` in another one.
Every round measures each once, every other round backwards. Printed are medians: bytes per second, and over the rounds
the time of the pass, and of PyTorch, to the engine's, and of `cast` to `written`: above 1 the latter is faster. All memory is in huge pages, as the
engine's arenas are. A power of two of elements would put all streams on the same lines of a cache: each side is slow then.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from cpu_step import HERE, Side, cpu_name

PEER = """
import json, sys, time, torch
n = int(sys.argv[1])
p = torch.randn(n, requires_grad=True)
p.grad = torch.randn(n)
adamw = torch.optim.AdamW([p], lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
adamw.step()
print(json.dumps("PyTorch " + torch.__version__), flush=True)
for line in sys.stdin:
    count = int(line.split()[1])
    start = time.perf_counter()
    for _ in range(count):
        adamw.step()
    print((time.perf_counter() - start) / count, flush=True)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=30_000_128)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    huge = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    engine = Side([str(args.build / "benchmarks/kernels/bench-adamw"), str(args.elements)], huge)
    torch = Side([sys.executable, "-c", PEER, str(args.elements)], huge)
    cases = {"adamw": engine, "written": engine, "cast": engine, "streams": engine, "torch": torch}
    times = {name: [] for name in cases}
    try:
        for name, side in cases.items():
            side.ask(f"{name} 2")
        for r in range(args.rounds):
            for name in list(cases) if r % 2 == 0 else reversed(cases):
                times[name].append(cases[name].ask(f"{name} 3"))
                time.sleep(0.05)
    finally:
        engine.stop(), torch.stop()
    out = {"cpu": cpu_name(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "elements": args.elements,
           "rounds": args.rounds, "library": torch.about,
           "bytes_per_second": {n: round(28 * args.elements / statistics.median(times[n]))
                                for n in ("adamw", "streams", "torch")}}
    for name in ("streams", "torch"):
        out[f"{name}_to_engine"] = round(statistics.median(o / e for o, e in zip(times[name], times["adamw"])), 3)
    out["cast_to_written"] = round(statistics.median(c / w for c, w in zip(times["cast"], times["written"])), 3)
    out["seconds"] = {n: round(statistics.median(times[n]), 5) for n in ("adamw", "written", "cast")}
    for name, rate in out["bytes_per_second"].items():
        print(f"{name:8} {rate / 1e9:6.2f} GB/s")
    print(f"an update and a cast to bf16 take {out['cast_to_written']} of the time of one that writes bf16 itself")
    print(f"the engine has {out['streams_to_engine']} of the rate of the pass, {out['torch_to_engine']} of PyTorch's")
    print(json.dumps(out))
    if args.out:
        args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
