#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training losses with products in fp8 beside those of the same run in bf16: with current scaling, and with delayed scaling
over two lengths of history. fp32 shows what bf16 itself changes.

    tools/dev build
    python3 benchmarks/fp8_loss.py [--steps 500] [--rate 3e-4] [--seeds 2] [--build build] [--out benchmarks/results/FILE.json]

A small llama (the preset tiny: 5 layers of 128, 1.07 million parameters) learns the English pages of docs/ byte by byte, with the same data and the same first
weights on all sides. The mean of the losses of all steps counts, for each seed: the exit status is 1 if that of a side in
fp8 is more than 0.3 % above that of bf16. The last 100 steps and the validation differ more from run to run, and are told. The JSON object at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from cpu_step import HERE, cpu_name

ALLOWED = 0.003  # of the mean loss
CONFIG = """[model]
plugin = "llama"
preset = "tiny"
[data]
plugin = "text"
paths = ["{docs}/*.md"]
tokenizer = "bytes"
validation = 0.05
[train]
steps = {steps}
micro_batch = 8
sequence_length = 128
seed = {seed}
eval_every = {steps}
eval_batches = 16
[optimizer]
plugin = "adamw"
learning_rate = {rate}
[schedule]
kind = "cosine"
warmup_steps = 20
[checkpoint]
every = 0
[device]
threads = {threads}
"""
BF16 = '[precision]\nplugin = "bf16"\n'
FP8 = BF16 + '[[transforms]]\nplugin = "fp8"\n'
DELAYED = FP8 + 'recipe = "delayed"\n'
SIDES = {"bf16": BF16, "fp8": FP8, "delayed": DELAYED, "delayed_16": DELAYED + "history = 16\n", "fp32": ""}
WHAT = ("mean", "last_100", "validation")


def losses(build, text, work, name):
    (work / f"{name}.toml").write_text(text)
    subprocess.run([build / "tools/engine", "run", work / f"{name}.toml", "--out", work / name], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (work / name / "metrics.jsonl").read_text().splitlines()]
    evaluated = [r["eval_loss"] for r in rows if "eval_loss" in r]
    return [r["loss"] for r in rows if "loss" in r], evaluated[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES, help="beside bf16")
    parser.add_argument("--threads", type=int, default=0, help="they change no number; 0: as many as there are processors")
    parser.add_argument("--options", default="", help="further lines of the transform")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    runs, worst = [], -1.0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for seed in range(1, args.seeds + 1):
            text = CONFIG.format(docs=HERE.parent / "docs", steps=args.steps, seed=seed, rate=args.rate,
                                 threads=args.threads)
            row = {"seed": seed}
            for side in ["bf16"] + [side for side in args.sides if side != "bf16"]:
                more = SIDES[side] + (args.options + "\n" if FP8 in SIDES[side] else "")
                all_losses, evaluated = losses(args.build, text + more, work, f"{side}-{seed}")
                row[side] = {"mean": statistics.fmean(all_losses), "last_100": statistics.fmean(all_losses[-100:]),
                             "validation": evaluated}
                row[side]["more"] = {key: row[side][key] / row["bf16"][key] - 1 for key in WHAT}
            worst = max([worst] + [row[side]["more"]["mean"] for side in row if FP8 in SIDES.get(side, "")])
            runs.append(row)
            for side in (side for side in row if side not in ("seed", "bf16")):
                print(f"seed {seed}, {side} beside bf16: " + ", ".join(
                    f"{key} {row[side][key]:.4f} and {row['bf16'][key]:.4f} ({100 * row[side]['more'][key]:+.2f} %)"
                    for key in WHAT), flush=True)
    result = {"steps": args.steps, "learning_rate": args.rate, "cpu": cpu_name(), "allowed": ALLOWED, "runs": runs}
    print(json.dumps(result))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    raise SystemExit(worst > ALLOWED)


if __name__ == "__main__":
    main()
