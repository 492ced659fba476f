#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/hf_gpt2: tiny GPT-2s as Hugging Face transformers saves them, their losses and logits.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/gpt2.py [OUT_DIR]

saved           fp32, as save_pretrained writes it: a tied head, which is not in the file, and the tokenizer of
                tests/data/golden/gpt2
wide            an inner width that is not 4 n_embd, exact gelu, an untied head, heads of 5
expected.json   per directory tokens and labels (2, 12), and the mean loss, computed in float64 from the stored weights
logits.safetensors  per directory the logits (2, 12, V), likewise, rounded to fp32
"""
import json
import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = dict(n_embd=16, n_layer=2, n_head=2, n_positions=32, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
            attn_implementation="eager")
DIRECTORIES = {"saved": dict(vocab_size=700, bos_token_id=0, eos_token_id=0),
               "wide": dict(vocab_size=256, n_embd=20, n_head=4, n_inner=36, activation_function="gelu",
                            layer_norm_epsilon=1e-3, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)}


def make(seed, options):
    generator = torch.Generator().manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(**{**BASE, **options})).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            # Wide enough that attention is far from uniform and every bias matters.
            p.copy_(1.0 + 0.2 * noise if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else 0.3 * noise)
    return model


def expected(folder, seed):
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    vocabulary = model.config.vocab_size
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (2, 12), generator=generator)
    labels = torch.randint(vocabulary, (2, 12), generator=generator)
    labels[0, 3] = labels[1, 11] = -100

    def loss_of(logits):
        return F.cross_entropy(logits.reshape(-1, vocabulary), labels.reshape(-1), ignore_index=-100).item()

    with torch.no_grad():
        plain = loss_of(model.float()(input_ids=tokens).logits)
        logits = model.double()(input_ids=tokens).logits
    loss = loss_of(logits)
    if abs(plain - loss) > 1e-6 * loss:
        sys.exit(f"{folder}: {plain} in fp32, {loss} in fp64")
    return {"tokens": tokens.tolist(), "labels": labels.tolist(), "loss": loss}, logits.float()


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests" / "models" / "hf_gpt2"
    shutil.rmtree(out, ignore_errors=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for seed, (name, options) in enumerate(DIRECTORIES.items(), start=1):
        make(seed, options).save_pretrained(out / name)
        (out / name / "generation_config.json").unlink(missing_ok=True)
    shutil.copy(ROOT / "tests" / "data" / "golden" / "gpt2" / "tokenizer.json", out / "saved")
    about, logits = {}, {}
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        about[folder.name], logits[folder.name] = expected(folder, 9)
        print(folder.name, about[folder.name]["loss"], logits[folder.name].abs().max().item())
    (out / "expected.json").write_text(json.dumps(about) + "\n")
    save_file({key: value.contiguous() for key, value in logits.items()}, out / "logits.safetensors")


if __name__ == "__main__":
    main()
