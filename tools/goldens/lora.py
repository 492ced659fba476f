#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/{lora,dora,lora_experts,lora_gpt2}: an adapter of PEFT for tests/models/hf/single, for
tests/models/hf_moe/qwen3_moe with its stacked experts, or for tests/models/hf_gpt2/wide, trained for 20 steps.

    pip install torch transformers safetensors peft      (CPU builds are enough)
    python tools/goldens/lora.py lora|dora|lora_experts|lora_gpt2 [OUT_DIR]

start       the adapter before training as peft saves it; B is not zero, so that reading it is seen
trained     the same adapter after training
KIND.json   steps of tokens and labels (2, 16), labels[b, t] being the target of position t; the hyper-parameters of
            torch.optim.AdamW; per step the mean loss and the gradient norm before clipping; the mean loss of the
            first step's batch with the trained adapter; the directory of the model
All is computed in fp32. `dora` is the same with use_dora; its magnitudes are those of the rows of the model, although B
is not zero.
"""

import json
import pathlib
import shutil
import sys

import peft
import torch
import torch.nn.functional as F
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
HYPER = dict(learning_rate=2e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=1.0)
STEPS = 20


def main():
    kind = sys.argv[1]
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / kind
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    experts = kind == "lora_experts"
    directory = {"lora_experts": "hf_moe/qwen3_moe", "lora_gpt2": "hf_gpt2/wide"}.get(kind, "hf/single")
    targets = {"lora_experts": TARGETS[:4], "lora_gpt2": ["c_attn", "c_proj", "c_fc"]}.get(kind, TARGETS)
    base = transformers.AutoModelForCausalLM.from_pretrained(ROOT / directory, dtype=torch.float32,
                                                             **({"experts_implementation": "eager"} if experts else {}))
    config = peft.LoraConfig(r=4, lora_alpha=6, use_rslora=True, rank_pattern={"c_fc" if kind == "lora_gpt2" else "down_proj": 2},
                             target_modules=targets, fan_in_fan_out=kind == "lora_gpt2",
                             target_parameters=EXPERTS if experts else None, task_type="CAUSAL_LM",
                             use_dora=kind == "dora")
    model = peft.get_peft_model(base, config)
    trained = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.1)

    def save(name):
        model.save_pretrained(out / name)
        for other in ("README.md",):
            (out / name / other).unlink(missing_ok=True)
        file = out / name / "adapter_config.json"
        text = json.loads(file.read_text())
        text["base_model_name_or_path"] = f"tests/models/{directory}"
        text["target_modules"] = sorted(text["target_modules"])  # a set, whose order is not fixed
        file.write_text(json.dumps(text, indent=2) + "\n")

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
    about = dict(**({"base": directory} if directory != "hf/single" else {}), tokens=tokens.reshape(STEPS, -1).tolist(), labels=labels.reshape(STEPS, -1).tolist(), training=HYPER,
                 losses=losses, grad_norms=norms, trained_loss=after,
                 versions={"torch": torch.__version__, "transformers": transformers.__version__,
                           "peft": peft.__version__})
    (out / f"{kind}.json").write_text(json.dumps(about) + "\n")
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, norms {min(norms):.2f} to {max(norms):.2f}, after {after:.4f}")


main()
