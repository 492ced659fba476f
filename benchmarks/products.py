#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The matrix products of llama_58m and opt_125m on this CPU: the engine's beside those of MKL, oneDNN and OpenBLAS.

    ninja -C build benchmarks/kernels/bench-products
    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch numpy
    /tmp/peers/bin/python benchmarks/products.py [--isas avx2,avx512] [--types f32,bf16] [--models llama,opt] [--rounds 7]
        [--build build] [--out benchmarks/results/FILE.json]

Each shape runs forward (y = x w^T), dX (y w) and dW (y^T x). One process per library stays; in every round each
multiplies for some milliseconds, every other round backwards. Printed are the engine's rate, and the time of the fastest
other library, by its own median, to the engine's: the median over the rounds, and that of the fastest round of each side,
which other programs on the machine disturb least. Above 1 the engine is faster. In 16 bits the other library is PyTorch.
The head is multiplied as the engine does, some tokens at a time. All sides have their matrices on large pages, as far as
the operating system gives them: the engine in an arena of the device as in a step, NumPy asks for them, PyTorch with
THP_MEM_ALLOC_ENABLE. --quick: fewer and shorter.
--one-thread: the processor time of one thread, which tells more on a busy machine, but nothing of how work is shared.
The JSON object at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from cpu_step import HERE, ISAS, Side, cpu_name, torch_environment

# tokens, in, out
SHAPES = {"llama": [(2048, 512, 512), (2048, 512, 1376), (2048, 1376, 512), (1024, 512, 32000)],
          "opt": [(2048, 768, 768), (2048, 768, 3072), (2048, 3072, 768), (512, 768, 50272)]}
KINDS = ("forward", "dx", "dw")
OPENBLAS = {"avx2": "Haswell", "avx512": "SkylakeX"}


def peers(dtype, isa, threads):
    names = ["mkl", "onednn", "openblas"] if dtype == "f32" else ["mkl"]
    environment = torch_environment(isa) | {"THP_MEM_ALLOC_ENABLE": "1"}
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    if isa in OPENBLAS:
        environment["OPENBLAS_CORETYPE"] = OPENBLAS[isa]
    return {name: Side([sys.executable, str(HERE / "products_peer.py"), name], environment) for name in names}


def measure(sides, case, args):
    """Seconds of each side in each round."""
    counts, times = {}, {name: [] for name in sides}
    for name, side in sides.items():
        once = side.ask(f"{case} 1")
        counts[name] = max(1, min(200, round(args.milliseconds / 1000 / once)))
    for r in range(args.rounds):
        for name in list(sides) if r % 2 == 0 else reversed(sides):
            if r >= 2 and times[name][-1] > 1.0:  # as slow as that: two rounds tell
                times[name].append(times[name][-1])
                continue
            times[name].append(sides[name].ask(f"{case} {counts[name]}"))
            time.sleep(0.02)  # until its threads have stopped waiting for more
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isas", default="avx2,avx512")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--models", default="llama,opt")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--milliseconds", type=float, default=60, help="of one side in one round")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 30 milliseconds")
    parser.add_argument("--one-thread", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.milliseconds = 3, 30
    unknown = [i for i in args.isas.split(",") if i not in ISAS] + [m for m in args.models.split(",") if m not in SHAPES]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; instruction sets: {', '.join(ISAS)}; models: {', '.join(SHAPES)}")
    rows, libraries, threads = [], set(), 1 if args.one_thread else 0
    for dtype in args.types.split(","):
        for isa in args.isas.split(","):
            if dtype == "f32" and isa == "avx512_bf16":
                continue  # the same kernels as avx512
            sides = {"engine": Side([str(args.build / "benchmarks/kernels/bench-products"), str(threads), isa]),
                     **peers(dtype, isa, threads)}
            libraries |= {s.about for n, s in sides.items() if n != "engine"}
            try:
                for model in args.models.split(","):
                    for tokens, k, n in SHAPES[model]:
                        for kind in KINDS:
                            rows.append(row(sides, dtype, isa, model, kind, tokens, n, k, args))
            finally:
                for side in sides.values():
                    side.stop()
    summary = {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": threads or os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "rounds": args.rounds,
               "libraries": sorted(libraries), "rows": rows}
    for dtype, isa in dict.fromkeys((r["type"], r["isa"]) for r in rows):
        for name, key in (("medians", "ratio"), ("fastest rounds", "of_fastest")):
            ratios = [r[key] for r in rows if (r["type"], r["isa"]) == (dtype, isa)]
            print(f"{dtype} {isa}, by {name}: {sum(r >= 1 for r in ratios)} of {len(ratios)} at least as fast as the best; "
                  f"least {min(ratios):.3f}, median {statistics.median(ratios):.3f}")
    print(json.dumps(summary))
    if args.out:
        lines = ",\n  ".join(json.dumps(r) for r in rows)
        head = json.dumps({k: v for k, v in summary.items() if k != "rows"}, indent=1)[:-2]
        args.out.write_text(f'{head},\n "rows": [\n  {lines}\n ]\n}}\n')


def row(sides, dtype, isa, model, kind, tokens, n, k, args):
    flops = 2.0 * tokens * n * k
    times = measure(sides, f"{kind} {dtype} {tokens} {n} {k}", args)
    rate = {name: flops / statistics.median(t) / 1e9 for name, t in times.items()}
    best = max((name for name in sides if name != "engine"), key=rate.get)
    ratio = statistics.median(b / e for b, e in zip(times[best], times["engine"]))
    fastest = min(min(t) for name, t in times.items() if name != "engine") / min(times["engine"])
    out = {"type": dtype, "isa": isa, "model": model, "product": kind, "tokens": tokens, "in": k, "out": n,
           "gflops": {name: round(r, 1) for name, r in rate.items()}, "best": best, "ratio": round(ratio, 3),
           "of_fastest": round(fastest, 3)}
    print(f"{dtype:4} {isa:11} {model:5} {k:5} -> {n:5} {kind:7} x {tokens:4}  engine {rate['engine']:6.1f} GFLOP/s  "
          f"{ratio:6.3f} (fastest {fastest:.3f}) of {best:8} ("
          + ", ".join(f"{m} {r:.1f}" for m, r in rate.items() if m != "engine") + ")", flush=True)
    return out


if __name__ == "__main__":
    main()
