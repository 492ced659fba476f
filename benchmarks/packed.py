#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Documents in samples of their own against packed documents: the share of padding, and the tokens of each second that
count. The quickstart's model of a million parameters on the paragraphs of this repository's documents, byte by byte.

    tools/dev build
    python3 benchmarks/packed.py [--cycles 5] [--steps 20] [--length 256] [--build build] [--out FILE.json]

  alone    one document in each sample, the rest of it padding; batches are given by this program
  packed   [data] pack = true: whole documents side by side, which do not see each other
  stream   the same text cut into windows, as without `pack`: no padding, but a window may begin inside a document and
           its documents see each other. What a step can do at most

Each cycle runs all three in turn; of a run the median of the steps' rates counts, and of that the median of the cycles'
own ratios. A position counts if it holds a token of a document. The JSON line at the end is what benchmarks/results/ keeps.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from cpu_step import cpu_name
from embed_step import Batch

HERE = pathlib.Path(__file__).resolve().parent
ROWS = 8
CONFIG = """[model]
plugin = "llama"
preset = "tiny"
%s
[train]
steps = %d
micro_batch = %d
sequence_length = %d
[optimizer]
plugin = "adamw"
"""
DATA = '[data]\npaths = ["documents.jsonl"]\n'


def documents(length):
    """Paragraphs of the documents, each of at most `length` bytes and with something to learn."""
    texts = [text for path in sorted((HERE.parent / "docs").glob("*.md")) for text in path.read_text().split("\n\n")]
    return [text for text in texts if 2 <= len(text.encode()) <= length]


def batches(texts, length):
    """Yields (tokens that count, fields) of batches with a document in each row; its last token has no label."""
    texts = [text.encode() for text in texts]
    for first in range(0, len(texts) - ROWS + 1, ROWS):
        tokens, labels, count = [], [], 0
        for text in texts[first:first + ROWS]:
            rest = length - len(text)
            tokens += list(text) + [0] * rest
            labels += list(text[1:]) + [-100] * (rest + 1)
            count += len(text)
        yield count, {"tokens": Batch(ROWS, length, tokens), "labels": Batch(ROWS, length, labels)}


def of_run(folder, kind, texts, args, out):
    """(median of tokens that count in each second, share of padding of all steps)"""
    import engine
    data = {"alone": "", "packed": DATA + "pack = true\n", "stream": DATA}[kind]
    counts = []
    with engine.open(None, text=CONFIG % (data, args.steps, ROWS, args.length), place=str(folder), out=str(out),
                     note=lambda _: None) as run:
        if kind == "alone":
            for count, fields in batches(texts[:args.steps * ROWS], args.length):
                run.step(**fields)
                counts.append(count)
        else:
            while run.step() is not None:
                pass
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == args.steps, f"{kind}: {len(steps)} steps"
    positions = ROWS * args.length
    if kind != "alone":
        counts = [positions * (1 - step.get("padding", 0)) for step in steps]
    # The first steps touch memory for the first time, the last one saves.
    rates = [count / step["step_seconds"] for count, step in zip(counts, steps)]
    return statistics.median(rates[2:-1]), 1 - sum(counts) / (positions * len(counts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    os.environ["ENGINE_LIBRARY"] = str(args.build.resolve() / "session/embed/libengine.so.1")
    sys.path.insert(0, str(HERE.parent / "tools/python"))
    texts = documents(args.length)
    assert len(texts) >= ROWS * args.steps, f"only {len(texts)} documents: fewer --steps, or a larger --length"
    results = {kind: [] for kind in ("alone", "packed", "stream")}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "documents.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        for cycle in range(args.cycles):
            for kind in results:
                results[kind].append(of_run(folder, kind, texts, args, folder / f"{kind}-{cycle}"))
    lengths = [len(text.encode()) for text in texts]
    print(f"{len(texts)} documents of {min(lengths)} to {max(lengths)} tokens, median {statistics.median(lengths):.0f}; samples of "
          f"{args.length}")
    rate = {kind: statistics.median(r for r, _ in rs) for kind, rs in results.items()}
    ratio = {kind: statistics.median(a[0] / b[0] for a, b in zip(rs, results["alone"])) for kind, rs in results.items()}
    padding = {kind: rs[0][1] for kind, rs in results.items()}
    for kind in results:
        print(f"{kind:7} {100 * padding[kind]:5.1f} % padding  {rate[kind]:8.0f} tokens/s that count, {ratio[kind]:.2f} of alone")
    summary = {"cpu": cpu_name(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "steps": args.steps,
               "cycles": args.cycles, "length": args.length, "documents": len(texts),
               "padding": {k: round(x, 4) for k, x in padding.items()}, "tokens_per_second": {k: round(x) for k, x in rate.items()},
               "to_alone": {k: round(x, 3) for k, x in ratio.items()}}
    print(json.dumps(summary))
    if args.out:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
