#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of `engine generate` and of llama.cpp on the CPU: a prompt that is read, and new tokens after it.

    python3 benchmarks/generate.py [--build build] [--peer PROGRAM] [--model DIRECTORY] [--threads N] [--rounds 5]
        [--prompt 512] [--tokens 128] [--type bf16] [--out benchmarks/results/FILE.json]

llama.cpp is the program that benchmarks/generate_peer.cpp says how to build: for this processor, with all of its
instructions. Without --peer it is that of the package xllamacpp, whose build for CPUs has AVX2 at best.

The weights are those of a Hugging Face directory, or, without --model, random ones in the shape of SmolLM2-135M, which
`engine run` makes; llama.cpp gets them by `engine ckpt export`. Both compute in the type of the weights, greedily, on the
same ids with the same number of threads, and take turns: engine, llama.cpp. A ratio above 1 means that the engine is
faster. Each process reads its weights before its time begins. The JSON object at the end is what benchmarks/results/
keeps: medians of the rounds and the best round of each side, and of the ratios of the rounds also the lowest and the highest. On a
machine that does other work as well, the best rounds say most."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = """plugin = "llama"
preset = "tiny"
vocab_size = 49152
hidden_size = 576
intermediate_size = 1536
num_hidden_layers = 30
num_attention_heads = 9
num_key_value_heads = 3
max_position_embeddings = 8192
rope_theta = 100000.0
tie_word_embeddings = true
"""
CONFIG = """[model]
{model}[data]
paths = ["text.txt"]
[train]
steps = 1
sequence_length = 8
micro_batch = 1
[optimizer]
plugin = "sgd"
learning_rate = 1e-9
"""
TEXT = "The engine reads a prompt of some length, and writes what follows it. A river that was high in spring is low in autumn. "


class Engine:
    def __init__(self, build, folder):
        self.command, self.folder = str((ROOT / build / "tools/engine").resolve()), folder

    def call(self, *words):
        done = subprocess.run([self.command, *map(str, words)], cwd=self.folder, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"engine {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr.decode()}")
        return done.stderr.decode(errors="replace")

    def speeds(self, prompt, asked):
        """Tokens per second of the prompt and of what follows it; the ids of the prompt."""
        told = self.call("generate", "run", prompt, "--ids", "--temperature", 0, "--tokens", asked.tokens, f"device.threads={asked.threads}",
                         f"precision.plugin={'fp32' if asked.type == 'f32' else asked.type}")
        found = re.search(r"prompt (\d+) tokens, ([\d.]+) tokens/s; generated (\d+) tokens, ([\d.]+) tokens/s", told)
        if not found or int(found[3]) != asked.tokens:
            sys.exit(f"not the tokens that were asked for: {told}")
        return float(found[2]), float(found[4]), [int(word) for word in re.search(r"prompt ids: ([\d ]+)", told)[1].split()]


class Peer:
    """llama.cpp by benchmarks/generate_peer.cpp."""

    def __init__(self, file, asked):
        self.program = subprocess.Popen([asked.peer, file, str(asked.threads), str(2 * asked.prompt), str(asked.tokens)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.program.stdout.readline().strip()

    def speeds(self, ids, asked):
        print(*ids, file=self.program.stdin, flush=True)
        words = self.program.stdout.readline().split()
        if len(words) != 2 + asked.tokens:
            sys.exit("not the tokens that were asked for")
        return float(words[0]), float(words[1])


class Llama:
    """llama.cpp of xllamacpp, asked over HTTP on this machine."""

    def __init__(self, file, asked):
        import xllamacpp

        self.version = f"xllamacpp {xllamacpp.__version__}"
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.n_parallel, params.n_gpu_layers = 2 * asked.prompt + asked.tokens + 64, 1, 0
        params.verbosity, params.ctx_shift, params.cache_ram_mib = -1, False, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked.threads
        self.server = xllamacpp.Server(params)

    def speeds(self, ids, asked):
        body = {"prompt": ids, "n_predict": asked.tokens, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
        request = urllib.request.Request(self.server.listening_address + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            times = json.load(answer)["timings"]
        if (times["prompt_n"], times["predicted_n"]) != (len(ids), asked.tokens):
            sys.exit(f"not the tokens that were asked for: {times}")
        return times["prompt_per_second"], times["predicted_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--model", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--prompt", type=int, default=512, help="its tokens, about")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--type", default="bf16", choices=("bf16", "f32"))
    parser.add_argument("--out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text(TEXT * 20)
        (folder / "c.toml").write_text(CONFIG.format(model=f"from = '{asked.model}'\n" if asked.model else SHAPE))
        engine = Engine(asked.build, folder)
        engine.call("run", "c.toml", "--out", "run")
        engine.call("ckpt", "export", "run", "--to", "m.gguf", "--type", asked.type)
        few = argparse.Namespace(**{**vars(asked), "tokens": 1})
        each = len(engine.speeds(TEXT, few)[2])
        text = TEXT * max(asked.prompt // each, 1)
        llama = (Peer if asked.peer else Llama)(folder / "m.gguf", asked)
        rounds, prompt = [], []
        for number in range(asked.rounds + 1):
            *ours, prompt = engine.speeds(text, asked)
            theirs = llama.speeds(prompt, asked)
            if number == 0:  # more than is counted: memory is touched
                continue
            rounds.append((ours, theirs))
            print("prompt {:7.1f} and {:7.1f}, new {:6.1f} and {:6.1f} tokens/s".format(ours[0], theirs[0], ours[1], theirs[1]), flush=True)
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    result = {"cpu": cpu, "cores": os.cpu_count(), "date": str(datetime.date.today()), "commit": commit, "load_before": os.getloadavg()[0],
              "threads": asked.threads, "rounds": asked.rounds, "model": pathlib.Path(asked.model).name if asked.model else "the shape of SmolLM2-135M",
              "type": asked.type, "prompt": len(prompt), "tokens": asked.tokens, "llama.cpp": llama.version, "tokens_per_second": {}, "best": {}, "ratio": {}}
    for k, part in enumerate(("prompt", "new")):
        ratios = [ours[k] / theirs[k] for ours, theirs in rounds]
        result["tokens_per_second"][part] = {who: round(statistics.median(one[j][k] for one in rounds), 1)
                                             for j, who in enumerate(("engine", "llama.cpp"))}
        result["best"][part] = {who: round(max(one[j][k] for one in rounds), 1) for j, who in enumerate(("engine", "llama.cpp"))}
        result["ratio"][part] = {"median": round(statistics.median(ratios), 3), "lowest": round(min(ratios), 3), "highest": round(max(ratios), 3)}
    text = json.dumps(result, indent=1)
    print(text)
    if asked.out:
        pathlib.Path(asked.out).write_text(text + "\n")


main()
