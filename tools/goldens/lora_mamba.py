#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/lora_mamba: an adapter of all four linear maps of a Mamba (tests/models/hf/mamba), trained for 20 steps.

    pip install torch transformers safetensors peft      (CPU builds are enough)
    python tools/goldens/lora_mamba.py [OUT_DIR]

PEFT refuses dt_proj and out_proj of Mamba, as transformers reads their weights without calling them. Here transformers
computes the model in fp64 with the weights W + scale B A themselves; autograd gives the gradients of A and B. The files are
those of tools/goldens/lora.py, in PEFT's format."""

import json
import math
import pathlib
import sys

import peft
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models"
MAPS = ["in_proj", "x_proj", "dt_proj", "out_proj"]
HYPER = dict(learning_rate=2e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=1.0)
STEPS, RANK, ALPHA = 20, 4, 6
RANKS = {"dt_proj": 1}  # it has one input


class Path(torch.nn.Module):
    """W -> W + scale B A."""

    def __init__(self, weight, rank):
        super().__init__()
        out, inputs = weight.shape
        self.scale = ALPHA / math.sqrt(rank)  # rsLoRA
        self.a = torch.nn.Parameter((torch.rand(rank, inputs) * 2 - 1).double() / math.sqrt(inputs))
        self.b = torch.nn.Parameter(0.1 * torch.randn(out, rank).double())

    def forward(self, weight):
        return weight + self.scale * self.b @ self.a


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "lora_mamba"
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(ROOT / "hf/mamba", dtype=torch.float64)
    model.requires_grad_(False)
    paths = {}
    for name, module in list(model.named_modules()):
        if (last := name.rsplit(".", 1)[-1]) in MAPS:
            paths[name] = Path(module.weight, RANKS.get(last, RANK))
            torch.nn.utils.parametrize.register_parametrization(module, "weight", paths[name])
    with torch.no_grad():  # the file has f32
        for p in (q for path in paths.values() for q in path.parameters()):
            p.copy_(p.float().double())
    trained = [p for path in paths.values() for p in path.parameters()]

    def save(name):
        (out / name).mkdir(parents=True, exist_ok=True)
        config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, use_rslora=True, rank_pattern=RANKS, target_modules=MAPS,
                                 task_type="CAUSAL_LM", inference_mode=True,
                                 base_model_name_or_path="tests/models/hf/mamba")
        config.save_pretrained(out / name)
        file = out / name / "adapter_config.json"
        text = json.loads(file.read_text())
        text["target_modules"] = sorted(text["target_modules"])  # a set, whose order is not fixed
        file.write_text(json.dumps(text, indent=2) + "\n")
        tensors = {f"base_model.model.{path}.lora_{part.upper()}.weight": getattr(of, part).detach().float().contiguous()
                   for path, of in paths.items() for part in "ab"}
        save_file(tensors, out / name / "adapter_model.safetensors", metadata={"format": "pt"})

    save("start")
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(256, (STEPS, 2, 16), generator=generator)
    labels = torch.roll(tokens, -1, dims=2)
    labels[:, 0, 3] = labels[:, :, 15] = -100

    def loss_of(step):
        logits = model(input_ids=tokens[step]).logits
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels[step].reshape(-1), ignore_index=-100)

    optimizer = torch.optim.AdamW(trained, lr=HYPER["learning_rate"], betas=(HYPER["beta1"], HYPER["beta2"]),
                                  eps=HYPER["eps"], weight_decay=HYPER["weight_decay"])
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, HYPER["grad_clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    save("trained")
    with torch.no_grad():
        after = loss_of(0).item()
    about = dict(base="hf/mamba", tokens=tokens.reshape(STEPS, -1).tolist(), labels=labels.reshape(STEPS, -1).tolist(),
                 training=HYPER, losses=losses, grad_norms=norms, trained_loss=after,
                 versions={"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__})
    (out / "lora_mamba.json").write_text(json.dumps(about) + "\n")
    print(f"{len(paths)} maps, loss {losses[0]:.4f} -> {losses[-1]:.4f}, norms {min(norms):.2f} to {max(norms):.2f}")


main()
