#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""adapter_memory_test.py BUILD [SEED]: runs with adapters and packed weights take the planned memory.

Twenty random runs: models, targets, ranks, DoRA, dropout, formats of frozen weights, strategies over two ranks,
recomputation, tiers. The arena has the planned bytes exactly. The process takes what was planned within 1 %, or within
1 MiB: Linux counts pages in batches, so a run that is off is made twice again, and the median counts."""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
RUNS = 20
CONFIG = """[model]
plugin = "{model}"
preset = "tiny"
{sizes}
[data]
paths = ["{root}/docs/transforms.md"]
validation = 0.1
[train]
steps = 3
micro_batch = {rows}
accumulate = {accumulate}
sequence_length = 64
[optimizer]
learning_rate = 1e-3
[checkpoint]
every = 1
[device]
threads = 1
"""
SIZES = {"llama": "hidden_size = 256\nintermediate_size = 704\nnum_hidden_layers = 4\nnum_attention_heads = 8",
         "opt": "hidden_size = 256\nffn_dim = 1024\nnum_hidden_layers = 4\nnum_attention_heads = 8\nword_embed_proj_dim = 256",
         "mamba": "hidden_size = 256\nnum_hidden_layers = 4"}
TARGETS = {"llama": [["all-linear"], ["*.q_proj", "*.v_proj"], ["*.down_proj", "*.gate_proj", "*.o_proj"]],
           "opt": [["all-linear"], ["*.fc1", "*.fc2"], ["*.q_proj", "*.out_proj"]],
           "mamba": [["*.in_proj", "*.out_proj"], ["*.in_proj"], ["*.in_proj", "*.x_proj", "*.out_proj"]]}


def draw(dice):
    """The configuration of a run, and the words of its command line."""
    model = dice.choice(list(SIZES))
    text = CONFIG.format(model=model, sizes=SIZES[model], root=ROOT, rows=dice.choice([2, 4]), accumulate=dice.choice([1, 2]))
    text += f'[adapter]\nplugin = "lora"\ntargets = {json.dumps(dice.choice(TARGETS[model]))}\nrank = {dice.randint(1, 16)}\n'
    text += f"dora = {json.dumps(dice.random() < 0.6)}\ndropout = {dice.choice([0.0, 0.0, 0.1])}\n"
    precision = dice.choice(["fp32", "bf16", "bf16", "bf16_sr"])
    text += f'[precision]\nplugin = "{precision}"\n'
    frozen = dice.choice(["", "nf4", "nf4_double", "int8", "e4m3"])
    text += f'frozen = "{frozen}"\n' if frozen else ""
    text += dice.choice(["", '[recompute]\npolicy = "full"\n', "[recompute]\nevery = 2\n"])
    tiers = dice.sample(["parameters", "optimizer", "gradients"], dice.randint(0, 2))
    text += "[offload]\n" if tiers else ""
    for state in tiers:
        tier = dice.choice(["host", "nvme"]) if state == "parameters" else "host"
        text += f'{state} = "{tier}"\n' + ('nvme_paths = ["PLACE"]\nnvme_direct = false\n' if tier == "nvme" else "")
    stage = dice.randint(0, 3)
    text += f'[zero]\nplugin = "zero{stage}"\nbucket = "256KiB"\n' if stage else ""
    return text, ["--ranks", "2"] if stage else []


def engine(work, *words):
    done = subprocess.run([str(BUILD / "tools/engine"), *words], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def measure(work, words):
    """Bytes of the process and the arena: measured less planned, and the planned process."""
    shutil.rmtree(work / "run", ignore_errors=True)
    engine(work, "run", "c.toml", "--out", "run", *words)
    last = json.loads((work / "run/metrics.jsonl").read_text().splitlines()[-1])
    plan = (work / "run/plan.txt").read_text()
    process, arena = (int(re.search(line + r" +(\d+) bytes", plan)[1]) for line in ("process peak", "    total"))
    return last["host_peak_bytes"] - process, last["device_peak_bytes"] - arena, process


def main():
    if b"__asan_init" in (BUILD / "tools/engine").read_bytes():
        return  # a sanitizer's own memory is in no plan
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    dice = random.Random(SEED)
    failed = 0
    for number in range(RUNS):
        text, words = draw(dice)
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            (work / "c.toml").write_text(text.replace("PLACE", folder))
            off, arena, process = measure(work, words)
            limit = max(process / 100, 1 << 20)
            if abs(off) >= limit:
                off = sorted([off] + [measure(work, words)[0] for _ in range(2)])[1]
        good = abs(off) < limit and arena == 0
        failed += not good
        print(f"{number:2} {'ok' if good else 'FAILED'}: planned {process}, off by {off} ({100 * off / process:.2f} %), arena {arena}")
        if not good:
            print(text, words)
    sys.exit(failed > 0)


main()
