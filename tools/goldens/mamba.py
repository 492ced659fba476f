#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/golden/mamba_*: logits, losses and gradients of tiny Mambas from Hugging Face transformers.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/mamba.py [OUT_DIR]

Two files per variant, as described in tools/goldens/llama.py, without `rope` and with
    logits             (B, T, V) f32

transformers computes the scan and the norms in fp32 whatever the model's dtype. Logits, loss, gradients and training
are therefore computed in float64 by the formulas below from the parameters of the transformers model; the unmodified
fp32 model must agree with the result, or the script stops.
"""


import torch
import torch.nn.functional as F
from transformers import MambaConfig, MambaForCausalLM

import common
from llama import LENGTH, check, make_batch, make_series

BASE = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, layer_norm_epsilon=1e-5)
VARIANTS = {
    "n16": dict(state_size=16),
    "n8": dict(state_size=8, conv_kernel=3, time_step_rank=5, tie_word_embeddings=False),
    "wide": dict(state_size=8, intermediate_size=48, layer_norm_epsilon=1e-2),  # expand 1.5
    "bias": dict(state_size=16, use_bias=True, conv_kernel=2),
    "bare": dict(state_size=8, use_conv_bias=False),
}
TRAINING = dict(variant="n16", learning_rate=5e-4, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=12.0)


def hf_config(options):
    return MambaConfig(**{"time_step_rank": "auto", **options}, pad_token_id=None, use_cache=False)


def make_model(options, generator):
    model = MambaForCausalLM(hf_config(options))
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name:
                p.copy_(1.0 + 0.2 * noise)
            elif name.endswith("A_log"):
                p.add_(0.3 * noise)
            elif name.endswith("dt_proj.bias"):
                p.copy_(noise - 1.0)  # time steps of 0.1 to 2: what is forgotten matters
            elif name.endswith("mixer.D"):
                p.copy_(1.0 + 0.5 * noise)
            else:
                # Wide enough that every part of the state and every bias matters.
                p.copy_(noise * (0.5 if "embed" in name or "conv1d" in name else 0.25 if "bias" in name else 0.2))
    return model


def norm(x, weight, eps):
    return weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))


def mixer(m, x):
    """The slow path of transformers' MambaMixer, in the dtype of its parameters."""
    x, z = m.in_proj(x).chunk(2, dim=-1)  # (B, T, E)
    taps = m.conv1d.weight.shape[-1]
    u = F.silu(F.conv1d(F.pad(x.transpose(1, 2), (taps - 1, 0)), m.conv1d.weight, m.conv1d.bias,
                        groups=x.shape[-1]).transpose(1, 2))
    low, b, c = m.x_proj(u).split([m.time_step_rank, m.ssm_state_size, m.ssm_state_size], dim=-1)
    step = F.softplus(low @ m.dt_proj.weight.T + m.dt_proj.bias)
    rate = -torch.exp(m.A_log)
    h, out = torch.zeros(x.shape[0], *rate.shape, dtype=x.dtype), []  # (B, E, N)
    for t in range(x.shape[1]):
        h = torch.exp(step[:, t, :, None] * rate) * h + (step[:, t] * u[:, t])[..., None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1) + m.D * u[:, t])
    return m.out_proj(torch.stack(out, 1) * F.silu(z))


def logits_of(model, tokens):
    eps = model.config.layer_norm_epsilon
    h = model.backbone.embeddings(tokens)
    for layer in model.backbone.layers:
        h = h + mixer(layer.mixer, norm(h, layer.norm.weight, eps))
    return norm(h, model.backbone.norm_f.weight, eps) @ model.lm_head.weight.T


def train(model, tokens, labels, h):
    """AdamW as mamba_ssm means it: no decay on vectors and on what describes the recurrence."""
    named = list(model.named_parameters())
    decayed = [p for name, p in named if p.dim() > 1 and "A_log" not in name]
    others = [p for name, p in named if p.dim() == 1 or "A_log" in name]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": h["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=h["learning_rate"], betas=(h["beta1"], h["beta2"]), eps=h["eps"])
    losses, norms = [], []
    for step_tokens, step_labels in zip(tokens, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(logits_of(model, step_tokens).flatten(0, 1), step_labels.flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), h["grad_clip"]).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms


def make(name, seed, out):
    options = {**BASE, **VARIANTS[name]}
    generator = torch.Generator().manual_seed(seed)
    model = make_model(options, generator)
    tokens, labels = make_batch(options["vocab_size"], generator)
    counted = int((labels != -100).sum())
    tensors = {"tokens": tokens.int(), "labels": labels.int()}
    tensors |= {f"param.{key}": p.detach().clone() for key, p in model.named_parameters()}

    plain_logits = model(input_ids=tokens).logits
    plain_loss = F.cross_entropy(plain_logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    plain_loss.backward()
    plain = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()

    model.double()
    logits = logits_of(model, tokens)
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    (total / counted).backward()
    check(f"{name}: logits", plain_logits.detach(), logits.detach(), 2e-6)
    check(f"{name}: loss", plain_loss.detach(), total.detach() / counted, 1e-6)
    tensors["logits"] = logits.detach().float()
    for key, p in model.named_parameters():
        check(f"{name}: gradient of {key}", plain[key], p.grad, 2e-5)
        tensors[f"grad.{key}"] = p.grad.float()

    about = {"options": options, "loss": total.item() / counted, "loss_sum": total.item(), "labels_counted": counted}
    if TRAINING["variant"] == name:
        series = make_series(options["vocab_size"], generator)
        common.add_training(about, tensors, TRAINING, series, lambda *run: train(model, *run))
    common.save("mamba", name, about, tensors, out)
    return about


if __name__ == "__main__":
    common.main(VARIANTS, make)
