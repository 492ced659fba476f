#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains adapters with the engine, exports them, and checks that PEFT computes the same with them.

    pip install torch transformers safetensors peft      (CPU builds are enough)
    python3 tools/roundtrip_peft.py [ENGINE]             by default build/tools/engine

For models of tests/models, `engine run` trains an adapter for a few steps. `engine ckpt export --format peft` and
`--merge` write it. The logits of the base model with the adapter, by PEFT, must be those of the merged model, by
transformers, within 1e-4, and not those of the base model. PEFT refuses mamba's out_proj, so it is left out there.
"""

import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
from transformers import AutoModelForCausalLM, logging

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENGINE = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "tools" / "engine"
CASES = [("hf/single", '["all-linear"]', 'rank = 4\nalpha = 6.0\nrslora = true\nranks = ["*.down_proj=2"]'),
         ("hf/single", '["all-linear"]', 'rank = 4\nalpha = 6.0\ndora = true\nranks = ["*.down_proj=2"]'),
         ("hf/opt", '["*.fc1", "*.fc2", "*.out_proj"]', "rank = 2\nalpha = 8.0\ndora = true\ndropout = 0.2"),
         ("hf/mamba", '["*.in_proj", "*.x_proj"]', "rank = 2\nalpha = 4.0\ndora = true"),
         ("hf/tied", '["*.q_proj", "*.layers.1.*.up_proj"]', "rank = 3"),
         ("hf/opt", '["*.fc1", "*.fc2", "*.out_proj"]', "rank = 2\nalpha = 8.0"),
         ("hf/mamba", '["*.in_proj", "*.x_proj"]', "rank = 2\nalpha = 4.0"),
         ("hf_gpt2/wide", '["all-linear"]', 'rank = 4\nalpha = 6.0\nrslora = true\nranks = ["*.c_fc=3"]'),
         ("hf_gpt2/wide", '["all-linear"]', "rank = 2\nalpha = 6.0\ndora = true"),
         ("hf_gpt2/wide", '["*.attn.q", "*.attn.v"]', "rank = 3"),
         ("hf_families/phi3", '["*.v_proj", "*.gate_proj", "*.up_proj", "*.1.self_attn.o_proj"]', "rank = 2\nalpha = 8.0")]
CONFIG = """[model]
from = "{source}"
[data]
paths = ["{root}/docs/transforms.md"]
[train]
steps = 5
sequence_length = 16
micro_batch = 2
[optimizer]
learning_rate = 2e-2
[[transforms]]
plugin = "lora"
targets = {targets}
{keys}
"""


def engine(*words):
    done = subprocess.run([ENGINE, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"engine {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")


def logits(model, tokens):
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits


def main():
    logging.set_verbosity_error()
    tokens = torch.arange(48).reshape(2, 24) * 5 % 256
    failed = 0
    for name, targets, keys in CASES:
        source = ROOT / "tests" / "models" / name
        with tempfile.TemporaryDirectory() as place:
            work = pathlib.Path(place)
            (work / "c.toml").write_text(CONFIG.format(source=source, root=ROOT, targets=targets, keys=keys))
            engine("run", work / "c.toml", "--out", work / "run")
            engine("ckpt", "export", work / "run", "--to", work / "adapter", "--format", "peft")
            engine("ckpt", "export", work / "run", "--to", work / "merged", "--merge")
            merged = logits(AutoModelForCausalLM.from_pretrained(work / "merged", dtype=torch.float32), tokens)
            base = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
            plain = logits(base, tokens)
            adapted = logits(peft.PeftModel.from_pretrained(base, work / "adapter"), tokens)
        apart, moved = (adapted - merged).abs().max().item(), (adapted - plain).abs().max().item()
        good = apart < 1e-4 < moved
        failed += not good
        name += " dora" if "dora" in keys else ""
        print(f"{name:16} {'ok' if good else 'FAILED'}: PEFT and merged differ by {apart:.1e}, adapter and base by {moved:.1e}")
    sys.exit(failed)


main()
