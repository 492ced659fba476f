#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published runs on GPUs beside the estimate of `engine plan` for the same model, batch and cards.

    python3 benchmarks/published.py [ENGINE]            prints the table; nothing is run but `engine plan --json`
    python3 benchmarks/published.py [ENGINE] --write    and writes it to benchmarks/results/published.md
    python3 benchmarks/published.py [ENGINE] --check    exit status 1 if that file is not what the plans give, or if a
                                                        run is further off than 15 % that is not listed as a miss

One model of time serves all rows (docs/plan.md, "How long a step takes"). None of its numbers is from a row: they were
measured on an H200 of ours, or published for single kernels. The runs are those of other trainers, so a difference is
that of the estimate and that of the trainer together."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/published.md"
WITHIN = 15  # per cent

FP8, DELAYED = "fp8", "fp8 delayed"  # stand for the transform
LLMQ = "llmq, IST-DASLab/llmq benchmarks/{}.md"
LLMQ_WORDS = ["precision.plugin=bf16_sr", "train.sequence_length=1024"]
A100 = "torchtitan, pytorch/torchtitan docs/performance.md"
H100 = "torchtitan, pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md"
TENSOR = "torchtitan, pytorch/torchtitan benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md"
H200 = "torchtitan, pytorch/torchtitan benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md"
TITAN = ["zero.plugin=zero3", "precision.plugin=bf16"]
# The paper's models are GPTs with 51,200 tokens, in 16 bits with loss scales. `opt` has the same shapes.
MEGATRON = "Megatron-LM, Korthikanti et al. 2022, arXiv 2205.05198, tables 3 and 5"
MEGATRON_WORDS = ["precision.plugin=fp16", "train.sequence_length=2048", "parallel.tensor=8"]
BRIDGE = "Megatron-Bridge, NVIDIA-NeMo/Megatron-Bridge docs/performance-summary-archive.md"
OWN = "this engine, benchmarks/results/steps-h200.md"

QWEN_3B = ["hidden_size=2048", "intermediate_size=11008", "num_hidden_layers=36", "num_attention_heads=16",
           "num_key_value_heads=2"]
# Cards that differ from one of the engine's: from which, and in what.
CARDS = {
    # torchtitan's H100 have 96 GB at 2.4 TB/s, and are limited to 500 W. What products reach then: 585, 575 and 546 TFLOP/s
    # in bf16, 1126, 1083 and 1141 in fp8, of 989 and 1979: pytorch/FBGEMM pull request 2546, "H100 500W".
    "h100-96g-500w": ("h100-80g", {"memory": '"94GiB"', "memory_bandwidth": '"2400GB"', "reach": "0.57"}),
    # llmq and Megatron-Bridge compute attention by cuDNN at any length. The engine does as far as it may keep the scores.
    "h100-80g-cudnn": ("h100-80g", {"workspace": '"8GiB"'}),
    # Runs of this engine whose attention had 512 MiB of scratch, as it has by default on a card of less memory. The time
    # of a step does not depend on the memory.
    "h200-512m": ("h200", {"memory": '"32GiB"'}),
}


# In fp8, llmq finds the largest value of a tensor where it writes it, so that rounding reads it once: as delayed scaling
# does. With 7B in fp8 it computes the feed-forward twice, in both halves of its step; this is left out here.
def llmq(name, preset, speed, ranks, micro, accumulate, more=(), fp8=()):
    words = LLMQ_WORDS + [f"train.micro_batch={micro}", f"train.accumulate={accumulate}",
                          *(["zero.plugin=zero2"] if ranks > 1 else []), *(f"model.{m}" for m in more), *fp8]
    name = f"Qwen2.5 {name}{', fp8' if fp8 else ''}, {micro} x 1024 x {accumulate}"
    return name, "h100-80g-cudnn", ranks, ("qwen2", preset), words, speed, LLMQ.format(f"H100x{ranks}")


def titan(name, card, ranks, model, micro, length, recompute, speed, source):
    words = TITAN + [f"train.micro_batch={micro}", f"train.sequence_length={length}", *recompute]
    return f"{name}, {micro} x {length}", card, ranks, model, words, speed, source


def megatron(name, ranks, width, layers, heads, micro, accumulate, more, seconds):
    model = ("opt", "66b", "model.vocab_size=51200", f"model.hidden_size={width}", f"model.ffn_dim={4 * width}",
             f"model.num_hidden_layers={layers}", f"model.num_attention_heads={heads}")
    words = MEGATRON_WORDS + [f"train.micro_batch={micro}", f"train.accumulate={accumulate}", *more]
    return name, "a100-80g", ranks, model, words, micro * accumulate * 2048 / seconds / ranks, MEGATRON


LAYERS, FULL = ["recompute.every=2"], ["recompute.policy=full"]
# torchtitan's H100 and H200 keep every second product of a layer: k, o and up are computed again, 37 % of the products of
# all layers. Here a third of the layers is.
PRODUCTS = ["recompute.every=3"]
WITHIN_HOST = ["parallel.tensor=8", "parallel.sequence=true"]
LLAMA_3_8B = ("llama", "llama-3-8b")
LLAMA_3_70B = ("llama", "llama-2-70b", "model.vocab_size=128256", "model.max_position_embeddings=8192")
# "Selective": attention alone is recomputed there, which kernels that fuse it do anyway.
SELECTIVE = ["parallel.sequence=true"]
STAGES = ["parallel.pipeline=8", "parallel.virtual_stages=3"]
# name, card, GPUs, model, words, published tokens/s of a GPU, source
RUNS = [
    llmq("0.5B", "qwen2.5-0.5b", 149000, 1, 32, 16),
    llmq("1.5B", "qwen2.5-1.5b", 59100, 1, 32, 16),
    llmq("3B", "qwen2.5-1.5b", 30900, 1, 16, 32, QWEN_3B),
    llmq("7B", "qwen2.5-7b", 13850, 1, 4, 128),
    llmq("0.5B", "qwen2.5-0.5b", 1175000 / 8, 8, 32, 2),
    llmq("1.5B", "qwen2.5-1.5b", 457000 / 8, 8, 32, 2),
    llmq("3B", "qwen2.5-1.5b", 240000 / 8, 8, 16, 4, QWEN_3B),
    llmq("7B", "qwen2.5-7b", 112000 / 8, 8, 8, 8),
    llmq("0.5B", "qwen2.5-0.5b", 164000, 1, 32, 16, (), [DELAYED]),
    llmq("1.5B", "qwen2.5-1.5b", 73000, 1, 32, 16, (), [DELAYED]),
    llmq("3B", "qwen2.5-1.5b", 40400, 1, 16, 32, QWEN_3B, [DELAYED]),
    llmq("7B", "qwen2.5-7b", 19200, 1, 16, 32, (), [DELAYED]),
    llmq("0.5B", "qwen2.5-0.5b", 1307000 / 8, 8, 64, 1, (), [DELAYED]),
    llmq("1.5B", "qwen2.5-1.5b", 564000 / 8, 8, 32, 2, (), [DELAYED]),
    llmq("3B", "qwen2.5-1.5b", 313000 / 8, 8, 16, 4, QWEN_3B, [DELAYED]),
    llmq("7B", "qwen2.5-7b", 159000 / 8, 8, 16, 4, (), [DELAYED]),
    ("LLaMA 3 8B, fp8, 1 x 8192 x 16", "h100-80g-cudnn", 8, LLAMA_3_8B,
     ["precision.plugin=bf16", "zero.plugin=zero2", "train.micro_batch=1", "train.accumulate=16",
      "train.sequence_length=8192", FP8], 14451, BRIDGE),
    titan("LLaMA 3 8B", "h100-96g-500w", 8, LLAMA_3_8B, 2, 8192, PRODUCTS, 6667, H100),
    titan("LLaMA 3 8B", "h100-96g-500w", 128, LLAMA_3_8B, 2, 8192, PRODUCTS, 6514, H100),
    titan("LLaMA 3 8B, fp8", "h100-96g-500w", 8, LLAMA_3_8B, 2, 8192, [*PRODUCTS, FP8], 8532, H100),
    titan("LLaMA 3 8B, fp8", "h100-96g-500w", 128, LLAMA_3_8B, 2, 8192, [*PRODUCTS, FP8], 8380, H100),
    titan("LLaMA 3 8B, fp8", "h200", 32, LLAMA_3_8B, 2, 8192, [*PRODUCTS, FP8], 10938, H200),
    titan("LLaMA 3 8B, fp8", "h200", 64, LLAMA_3_8B, 2, 8192, [*PRODUCTS, FP8], 10753, H200),
    titan("LLaMA 3 8B, tensor 8", "h100-96g-500w", 64, LLAMA_3_8B, 12, 8192, [*PRODUCTS, *WITHIN_HOST], 4378, TENSOR),
    titan("LLaMA 3 70B, tensor 8, all recomputed", "h100-96g-500w", 256, LLAMA_3_70B, 16, 8192, [*FULL, *WITHIN_HOST],
          597.3, TENSOR),
    titan("LLaMA 3 8B, every second layer recomputed", "a100-80g", 64, LLAMA_3_8B, 1, 8192, LAYERS, 2904,
          A100),
    titan("LLaMA 3 70B, all recomputed", "a100-80g", 64, LLAMA_3_70B, 1, 8192, FULL, 331, A100),
    titan("LLaMA 2 13B", "a100-80g", 64, ("llama", "13b", "model.max_position_embeddings=4096"), 2, 4096, [], 2162,
          A100),
    titan("LLaMA 2 13B, every second layer recomputed", "a100-80g", 64,
          ("llama", "13b", "model.max_position_embeddings=4096"), 2, 4096, LAYERS, 1914, A100),
    titan("LLaMA 2 70B, all recomputed", "a100-80g", 64, ("llama", "llama-2-70b"), 2, 4096, FULL, 353, A100),
    megatron("GPT 22B, tensor 8, all recomputed", 8, 6144, 48, 64, 4, 1, FULL, 1.42),
    megatron("GPT 22B, tensor 8, sequence, selective", 8, 6144, 48, 64, 4, 1, SELECTIVE, 1.10),
    megatron("GPT 175B, tensor 8, 8 stages of 3, all recomputed", 64, 12288, 96, 96, 1, 64, STAGES + FULL, 18.13),
    megatron("GPT 175B, tensor 8, 8 stages of 3, sequence, selective", 64, 12288, 96, 96, 1, 64, STAGES + SELECTIVE,
             13.75),
    ("LLaMA 1.26B, 8 x 1024 x 16", "h200-512m", 1, ("llama", "tinyllama", "model.num_key_value_heads=32"),
     ["precision.plugin=bf16", "train.micro_batch=8", "train.accumulate=16", "train.sequence_length=1024"], 68700, OWN),
    ("LLaMA 1.26B, 4 x 2048", "h200", 1, ("llama", "tinyllama", "model.num_key_value_heads=32"),
     ["precision.plugin=bf16", "train.micro_batch=4", "train.sequence_length=2048"], 62200, OWN),
    ("LLaMA 7B, 8 x 1024 x 8", "h200-512m", 1, ("llama", "7b"),
     ["precision.plugin=bf16_sr", "train.micro_batch=8", "train.accumulate=8", "train.sequence_length=1024"], 13830,
     OWN),
    ("LLaMA 7B, 4 x 2048", "h200-512m", 1, ("llama", "7b"),
     ["precision.plugin=bf16_sr", "train.micro_batch=4", "train.sequence_length=2048"], 12600, OWN),
]


# Runs that the estimate misses by more, and why, as far as that is known.
MISSES = {
    "GPT 22B, tensor 8, all recomputed": "not known; the same model with `sequence` is met",
}


def card_path(card, folder):
    """The name of a card, or the path of one that differs from it."""
    if card not in CARDS:
        return card
    base, other = CARDS[card]
    text = (ROOT / f"session/cards/{base}.toml").read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if line.split(" = ")[0] not in other]
    path = folder / f"{card}.toml"
    path.write_text("\n".join([*kept, *(f"{key} = {value}" for key, value in other.items())]) + "\n", encoding="utf-8")
    return str(path)


def estimate(engine, run, folder):
    """Tokens per second of a GPU, and the part of a card's memory that the plan takes."""
    _, card, ranks, model, words, _, _ = run
    config = folder / "model.toml"
    transform = ""
    if FP8 in words or DELAYED in words:
        transform = f'[[transforms]]\nplugin = "fp8"\nrecipe = "{"delayed" if DELAYED in words else "current"}"\n'
    words = [w for w in words if w not in (FP8, DELAYED)]
    config.write_text(f'[model]\nplugin = "{model[0]}"\npreset = "{model[1]}"\n{transform}', encoding="utf-8")
    done = subprocess.run([engine, "plan", config, "--json", "--ranks", str(ranks),
                           f'device.describe="{card_path(card, folder)}"', *model[2:], *words],
                          stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 5):  # whether it fits there is not the question
        sys.exit(f"published.py: {' '.join(words)}: engine plan ended with {done.returncode}")
    plan = json.loads(done.stdout)
    numbers = {w.split("=")[0]: w.split("=")[1] for w in words}
    tokens = int(numbers["train.micro_batch"]) * int(numbers.get("train.accumulate", 1)) * int(
        numbers["train.sequence_length"])
    for key in ("parallel.tensor", "parallel.pipeline"):  # ranks that read the same tokens
        tokens /= int(numbers.get(key, 1))
    return tokens / plan["step_seconds_estimate"], plan["step_bound"]


def table(engine):
    lines = ["# Published runs beside estimates", "",
             "`benchmarks/published.py` writes this table. Estimates are those of `engine plan`, which ran nothing.", "",
             "| run | cards | published, tokens/s of a card | estimated | error | source |", "|---|---|---|---|---|---|"]
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        for run in RUNS:
            rate, _ = estimate(engine, run, pathlib.Path(folder))
            error = 100 * (rate / run[5] - 1)
            errors.append(error)
            lines.append(f"| {run[0]} | {run[2]} x {run[1]} | {run[5]:,.0f} | {rate:,.0f} | {error:+.1f} % | {run[6]} |")
    near = sum(abs(e) <= WITHIN for e in errors)
    lines += ["", f"{near} of {len(errors)} are within {WITHIN} %. The others:", ""]
    wrong = []
    for run, error in zip(RUNS, errors):
        reason = MISSES.get(f"{run[2]} x {run[1]}") or MISSES.get(run[0])
        if abs(error) > WITHIN:
            lines.append(f"* {run[0]}, {run[2]} x {run[1]}: {reason}")
        if (abs(error) > WITHIN) != bool(reason):
            wrong.append(f"{run[0]} on {run[2]} x {run[1]}: {error:+.0f} %")
    return "\n".join(lines) + "\n", wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="?", default=str(ROOT / "build/tools/engine"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    text, wrong = table(asked.engine)
    if not asked.check:
        print(text, end="")
    if asked.write:
        RESULTS.write_text(text, encoding="utf-8")
    if wrong and asked.check:
        sys.exit("published.py: MISSES does not say what is missed: " + "; ".join(wrong))
    if asked.check and RESULTS.read_text(encoding="utf-8") != text:
        sys.exit("published.py: benchmarks/results/published.md is not what these plans give: --write")


if __name__ == "__main__":
    main()
