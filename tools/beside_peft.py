#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one adapter with the engine and with PEFT, both in fp32 on the CPU, and compares the losses of every step.

    pip install numpy torch transformers safetensors peft      (CPU builds are enough)
    PYTHONPATH=tools/python python3 tools/beside_peft.py MODEL [--steps 20] [--length 64] [--dora]

MODEL is a Hugging Face directory of a decoder, such as SmolLM2-135M. PEFT makes the adapter (rank 8, all linear maps) and
writes it; its B is not zero, so that reading it is seen. Both sides train it with AdamW at the same rate on the same tokens
of docs/, of which every fifth label is masked. The losses must agree within 2e-5 in every step; the last line says by how
much they differ."""
import argparse
import pathlib
import sys
import tempfile

import engine
import peft
import torch
import torch.nn.functional as F
import transformers

CONFIG = """[model]
from = "{model}"
adapter = "{adapter}"
[adapter]
plugin = "lora"
targets = ["all-linear"]
rank = 8
alpha = 16.0
{keys}
[data]
paths = ["{data}"]
[train]
steps = {steps}
micro_batch = 2
sequence_length = {length}
grad_clip = 1.0
[optimizer]
plugin = "adamw"
learning_rate = 1e-3
beta1 = 0.9
beta2 = 0.95
eps = 1e-8
weight_decay = 0.1
[schedule]
kind = "constant"
[precision]
plugin = "fp32"
"""


def by_peft(options, start, batches):
    base = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", use_dora=options.dora)
    model = peft.get_peft_model(base, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.01)
    model.save_pretrained(start)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for tokens, labels in batches:
        optimizer.zero_grad()
        logits = model(input_ids=tokens).logits.double()  # torch's f32 cross-entropy of 49,152 ids is 8e-6 off
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_engine(options, start, batches):
    text = CONFIG.format(model=options.model.resolve(), adapter=start, steps=options.steps, length=options.length,
                         data=pathlib.Path(__file__).resolve(), keys="dora = true" if options.dora else "")
    with engine.open(text=text, files=False) as run:
        return [run.step(tokens=tokens.int(), labels=labels.int()).loss for tokens, labels in batches]


def main():
    parser = argparse.ArgumentParser(description="an adapter's training beside PEFT")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--dora", action="store_true")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(1)
    text = "".join(p.read_text() for p in sorted((pathlib.Path(__file__).resolve().parents[1] / "docs").glob("d*.md")))
    ids = torch.tensor(transformers.AutoTokenizer.from_pretrained(options.model)(text)["input_ids"])
    batches = []
    for k in range(options.steps):
        tokens = ids[2 * k * options.length:][:2 * options.length].reshape(2, options.length)
        labels = torch.roll(tokens, -1, dims=1)
        labels[:, -1] = labels[:, ::5] = -100
        batches.append((tokens, labels))
    with tempfile.TemporaryDirectory() as place:
        start = pathlib.Path(place) / "start"
        theirs = by_peft(options, start, batches)
        ours = by_engine(options, start, batches)
    apart = [abs(a - b) for a, b in zip(ours, theirs)]
    for k, (a, b) in enumerate(zip(ours, theirs)):
        print(f"step {k + 1:3}  engine {a:.6f}  PEFT {b:.6f}  apart {apart[k]:.1e}")
    good = max(apart) < 2e-5
    print(f"{'ok' if good else 'FAILED'}: {options.steps} losses, at most {max(apart):.1e} apart")
    sys.exit(not good)


main()
