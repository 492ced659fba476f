#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step with Muon on this CPU, by what its iteration multiplies, beside one with AdamW.

    tools/dev build
    python3 benchmarks/muon.py [--rounds 7] [--isa avx2] [--build build] [--out benchmarks/results/FILE.json]

The model is that of benchmarks/step/llama_58m.toml, 58 million parameters, with 2 x 64 tokens: most of the time is the
update's. One process per side; every round runs one step of each, every other round backwards. Printed are medians of
seconds.
"""
import argparse
import json
import pathlib
import statistics

from cpu_step import HERE, ISAS, PLUGINS, Side, cpu_name

SIDES = {"adamw": ["optimizer.plugin=adamw"],
         "muon f32": ["optimizer.plugin=muon", "optimizer.products=f32"],
         "muon bf16": ["optimizer.plugin=muon", "optimizer.products=bf16"],
         "muon bf16 polar_express": ["optimizer.plugin=muon", "optimizer.products=bf16",
                                     "optimizer.coefficients=polar_express"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--isa", choices=ISAS, default="auto")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    sides, seconds = {}, {name: [] for name in SIDES}
    try:
        for name, words in SIDES.items():
            plugins = [str(args.build / "plugins" / p) for p in ("llama", *PLUGINS)]
            sides[name] = Side([str(args.build / "benchmarks/step/engine-bench-step"), str(HERE / "step/llama_58m.toml"),
                                "serve", *plugins, "device.isa=" + args.isa, "train.micro_batch=2",
                                "train.sequence_length=64", *words])
            sides[name].step()
        for r in range(args.rounds):
            for name in list(sides) if r % 2 == 0 else reversed(sides):
                seconds[name].append(sides[name].step())
    finally:
        for side in sides.values():
            side.stop()
    medians = {name: round(statistics.median(all_of), 4) for name, all_of in seconds.items()}
    summary = {"cpu": cpu_name(), "isa": args.isa, "rounds": args.rounds, "seconds": medians}
    print(json.dumps(summary))
    if args.out:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
