#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""composed_memory_test.py BUILD [--seed SEED] [--runs N] [--results FILE]: drawn compositions take the planned memory.

Each run is drawn from tensor x context x strategy of [zero] and its group x tiers x recomputation x number format x fp8 x
adapter on 2, 4 or 8 ranks of a small model, and trains two steps. The arena of a rank has the planned bytes exactly. Its
process takes what was planned within 1 %, or within 1 MiB: Linux counts pages in batches, so a run that is off is made
twice again, and the median counts. The peaks are read from /proc until the ranks end, after they have saved; rank 0 also
says its own after the last step. What the engine refuses is drawn again, and the reasons are listed. Without a seed, the
commit draws."""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = 8  # sequences of a step, of all ranks
SIZES = {
    "llama": "hidden_size = 256\nintermediate_size = 704\nnum_hidden_layers = 4\nnum_attention_heads = 8\nnum_key_value_heads = 8",
    "opt": "hidden_size = 256\nffn_dim = 1024\nnum_hidden_layers = 4\nnum_attention_heads = 8\nword_embed_proj_dim = 256",
    "qwen3": "hidden_size = 256\nintermediate_size = 704\nnum_hidden_layers = 4\nnum_attention_heads = 8\nnum_key_value_heads = 4",
    "gemma3": "hidden_size = 256\nintermediate_size = 704\nnum_hidden_layers = 4\nnum_attention_heads = 8\nnum_key_value_heads = 8\nhead_dim = 32",
    "mamba": "hidden_size = 256\nnum_hidden_layers = 4\nstate_size = 8",
    "mamba2": "hidden_size = 256\nnum_hidden_layers = 4\nnum_heads = 8\nhead_dim = 64\nstate_size = 16\nn_groups = 2",
    "qwen3_moe": "hidden_size = 128\nmoe_intermediate_size = 64\nnum_hidden_layers = 3\nnum_attention_heads = 8\n"
                 "num_key_value_heads = 4\nnum_experts = 8\nnum_experts_per_tok = 2",
}
TARGETS = {"opt": ["*.fc1", "*.fc2", "*.q_proj"], "mamba": ["*.in_proj", "*.out_proj"], "mamba2": ["*.in_proj", "*.out_proj"],
           "qwen3_moe": ["*.q_proj", "*.o_proj"]}


def draw(dice):
    """The number of ranks, a description, and the configuration of a run."""
    ranks = dice.choice([2, 4, 4, 8])
    degrees = [d for d in (1, 2, 4, 8) if ranks % d == 0]
    tensor = dice.choice(degrees)
    context = dice.choice([d for d in degrees if ranks % (tensor * d) == 0])
    data, rows = ranks // tensor, ranks // tensor // context
    model = dice.choice(list(SIZES))
    micro = dice.choice([m for m in (1, 2, 4, 8) if SAMPLES // rows % m == 0])
    words = [model, f"{ranks} ranks", f"tensor {tensor}", f"context {context}", f"micro-batch {micro}"]
    text = (f'[model]\nplugin = "{model}"\nvocab_size = 512\n{SIZES[model]}\n' + ("dropout = 0.1\n" if model == "opt" else "") +
            f'[data]\npaths = ["{ROOT}/docs/transforms.md"]\ntokenizer = "bytes"\nvalidation = 0.1\n[train]\nsteps = 2\n'
            f"micro_batch = {micro}\naccumulate = {SAMPLES // rows // micro}\nsequence_length = 64\n"
            f"[optimizer]\nlearning_rate = 1e-3\n[device]\nthreads = 1\n[checkpoint]\nevery = 2\n"
            f"[parallel]\ntensor = {tensor}\ncontext = {context}\n")
    if tensor > 1 and dice.random() < 0.5:
        text += "sequence = true\n"
        words.append("positions")
    if data > 1:
        strategy = dice.choice(["none", "zero1", "zero2", "zero3", "hpz", "mics"])
        text += f'[zero]\nplugin = "{strategy}"\nbucket = "{dice.choice(["64KiB", "256KiB", "64MiB"])}"\n'
        if strategy in ("hpz", "mics"):
            group = dice.choice([d for d in (1, 2, 4, 8) if data % d == 0])
            text += f"group = {group}\n"
            strategy += f" of {group}"
        words.append(strategy)
    precision = dice.choice(["fp32", "bf16", "bf16", "bf16_sr", "fp16"])
    text += f'[precision]\nplugin = "{precision}"\n'
    words.append(precision)
    recompute = dice.choice(["", 'policy = "full"\n', "every = 2\n"])
    if recompute:
        text += "[recompute]\n" + recompute
        words.append("recompute " + recompute.split("=")[1].strip())
    tiers = dice.sample(["parameters", "optimizer", "gradients", "activations"], dice.choice([0, 0, 1, 2]))
    text += "[offload]\n" if tiers else ""
    for state in tiers:
        tier = dice.choice(["host", "nvme"])
        text += f'{state} = "{tier}"\n'
        words.append(f"{state} on {tier}")
    if any('"nvme"' in line for line in text.splitlines()):
        text += 'nvme_paths = ["PLACE"]\nnvme_direct = false\n'
    if dice.random() < 0.3:
        text += f'[adapter]\nplugin = "lora"\nrank = {dice.choice([2, 8])}\ntargets = {json.dumps(TARGETS.get(model, ["all-linear"]))}\n'
        text += f"dora = {json.dumps(dice.random() < 0.4)}\ndropout = {dice.choice([0.0, 0.1])}\n"
        words.append("lora")
    if dice.random() < 0.25:
        text += '[[transforms]]\nplugin = "fp8"\n'
        words.append("fp8")
    return ranks, ", ".join(words), text


class Engine:
    def __init__(self, build, work):
        self.program, self.work = str(build / "tools/engine"), work

    def refusal(self, ranks):
        """"" or why no such run is made."""
        done = subprocess.run([self.program, "check", "c.toml", "--ranks", str(ranks)], cwd=self.work, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode not in (0, 2):
            raise SystemExit(f"engine check ended with {done.returncode}:\n{done.stdout}")
        return done.stdout.strip() if done.returncode else ""

    def measure(self, ranks):
        """(planned bytes of each rank's process, measured less planned bytes of them, the same of the arena of rank 0)."""
        shutil.rmtree(self.work / "run", ignore_errors=True)
        with tempfile.TemporaryFile("w+") as output:
            child = subprocess.Popen([self.program, "run", "c.toml", "--out", "run", "--ranks", str(ranks)], cwd=self.work,
                                     stdout=output, stderr=subprocess.STDOUT)
            peaks = [0] * ranks
            pids = {}
            try:
                while child.poll() is None:
                    for rank in range(ranks):
                        if rank not in pids:
                            log = self.work / f"run/logs/rank-{rank:05}.log"
                            if log.exists() and (found := re.search(r"as process (\d+);", log.read_text())):
                                pids[rank] = found[1]
                        if rank in pids:
                            peaks[rank] = max(peaks[rank], resident(pids[rank]))
                    time.sleep(0.02)  # a save takes longer
            finally:
                child.terminate()
            output.seek(0)
            assert child.returncode == 0, output.read()
        last = json.loads((self.work / "run/metrics.jsonl").read_text().splitlines()[-1])
        plan = (self.work / "run/plan.txt").read_text()
        process, arena = (int(re.search(line + r" +(\d+) bytes", plan)[1]) for line in ("process peak", "    total"))
        planned = [int(re.search(r"its plan has (\d+) bytes", (self.work / f"run/logs/rank-{rank:05}.log").read_text())[1])
                   for rank in range(ranks)]
        assert planned[0] == process, (planned, process)
        peaks[0] = max(peaks[0], last["host_peak_bytes"])
        return planned, [peak - own for peak, own in zip(peaks, planned)], last["device_peak_bytes"] - arena


def resident(pid):
    """The largest size of a process so far, in bytes; 0 if it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seed", help="of the draw; that of the commit if absent")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="where the figures go, as JSON")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ranks end with this program
    build = options.build.resolve()
    if b"__asan_init" in (build / "tools/engine").read_bytes():
        return 77  # a sanitizer's own memory is in no plan
    seed = options.seed or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                                          check=False).stdout.strip() or "1"
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    dice, failed, done, refused, results = random.Random(seed), 0, 0, collections.Counter(), []
    print(f"seed {seed}")
    while done < options.runs:
        ranks, words, text = draw(dice)
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            (work / "c.toml").write_text(text.replace("PLACE", folder))
            engine = Engine(build, work)
            why = engine.refusal(ranks)
            if why:
                refused[re.sub(r"\d+", "N", re.search("error: .*|$", why)[0])] += 1
                assert sum(refused.values()) < 20 * options.runs, refused
                continue
            planned, off, arena = engine.measure(ranks)
            within = lambda off: all(abs(one) < max(own / 100, 1 << 20) for one, own in zip(off, planned))
            if not within(off):
                runs = [off] + [engine.measure(ranks)[1] for _ in range(2)]
                off = [median(each) for each in zip(*runs)]
        done += 1
        good = within(off) and arena == 0
        failed += not good
        most = max(off, key=abs)
        rank = off.index(most)
        results.append({"composition": words, "planned": planned, "off": off, "arena_off": arena})
        print(f"{done:2} {'ok' if good else 'FAILED'}: {words}: rank {rank} of {planned[rank]} planned is off by {most} "
              f"({100 * most / planned[rank]:+.2f} %), arena {arena:+}", flush=True)
        if not good:
            print(text, off)
    for why, count in refused.most_common():
        print(f"refused {count}: {why}")
    if options.results:
        options.results.write_text(json.dumps({"seed": seed, "runs": results}, indent=1) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
