#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the models of tests/models/hf_{families,gpt2,moe,mamba2,hybrids}, exports them, and compares what transformers reads.

    pip install torch transformers safetensors      (CPU builds are enough)
    python3 tools/roundtrip_families.py [ENGINE]     by default build/tools/engine

`engine run` makes one step at a rate that changes no weight, `engine ckpt export` writes a directory. transformers must
find the same configuration in it, key by key, and compute the same logits. Families that are read as LLaMA come back as
LLaMA: of those the logits alone are compared. minicpm and internlm2 are left out, as transformers has no code for them.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, logging

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENGINE = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "tools" / "engine"
CASES = sys.argv[2:] or ("qwen3", "olmo2", "phi3", "smollm3", "granite", "gpt_neox", "mistral", "ministral", "internlm3",
                         "phi3_window", "mistral_window", "ministral_window", "gemma2", "gemma3", "hf_gpt2/saved", "hf_gpt2/wide", "hf_moe/mixtral",
                         "hf_moe/qwen2_moe", "hf_moe/qwen3_moe", "hf_moe/qwen3_moe_dense", "hf_moe/olmoe", "hf_mamba2/plain", "hf_mamba2/groups", "hf_mamba2/bias",
                         "hf_hybrids/falcon_mamba", "hf_hybrids/bamba", "hf_hybrids/granitemoehybrid", "hf_hybrids/granitemoehybrid_experts",
                         "hf_hybrids/nemotron_h", "hf_hybrids/nemotron_h_experts",
                         "hf_hybrids/falcon_h1", "hf_hybrids/jamba")
CONFIG = """[model]
from = "{source}"
[data]
paths = ["{root}/docs/transforms.md"]
[train]
steps = 1
sequence_length = 16
micro_batch = 2
[optimizer]
learning_rate = 1e-30
"""
# Keys that are not of the model, or that say in two places what one of them would.
APART = {"dtype", "torch_dtype", "transformers_version", "_name_or_path", "rope_scaling", "rope_theta", "rotary_pct",
         "rotary_emb_base", "partial_rotary_factor", "bos_token_id", "eos_token_id", "pad_token_id"}


def engine(*words):
    done = subprocess.run([ENGINE, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"engine {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")


def read(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, experts_implementation="eager").eval()
    with torch.no_grad():
        logits = model(input_ids=torch.arange(48).reshape(2, 24) * 5 % 256).logits
    return {key: value for key, value in model.config.to_dict().items() if key not in APART}, logits


def main():
    logging.set_verbosity_error()
    failed = 0
    for name in CASES:
        source = ROOT / "tests" / "models" / (name if "/" in name else f"hf_families/{name}")
        with tempfile.TemporaryDirectory() as place:
            work = pathlib.Path(place)
            (work / "c.toml").write_text(CONFIG.format(source=source, root=ROOT))
            engine("run", work / "c.toml", "--out", work / "run")
            engine("ckpt", "export", work / "run", "--to", work / "out", "--dtype", "f32")
            (before, logits), (after, again) = read(source), read(work / "out")
        apart = {key: (before.get(key), after.get(key)) for key in {*before, *after} if before.get(key) != after.get(key)}
        if after["model_type"] == "llama":
            apart = {}
        good = not apart and torch.equal(logits, again)
        failed += not good
        print(f"{name:16} {'ok' if good else 'FAILED'}: logits {'equal' if torch.equal(logits, again) else 'DIFFER'}",
              apart or "")
    sys.exit(failed)


main()
