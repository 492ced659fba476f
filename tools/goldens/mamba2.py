#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/golden/mamba2_* and tests/models/hf_mamba2: tiny Mamba-2 models of Hugging Face transformers.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/mamba2.py

Files of golden as described in tools/goldens/mamba.py. transformers computes the scan and the norms in fp32 whatever the
model's dtype. Logits, loss, gradients and training are therefore computed in float64, token by token, by the formulas
below from the parameters of the transformers model; the unmodified fp32 model, whose slow path scans by chunks, must
agree with the result, or the script stops.

hf_mamba2 has directories as save_pretrained writes them, and expected.json: the mean loss of each on the batch of
tests/models/hf/expected.json.
"""
import json
import shutil

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Mamba2Config, Mamba2ForCausalLM

import common
from llama import check, make_batch, make_series
from mamba import norm

BASE = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, layer_norm_epsilon=1e-5, chunk_size=5)
VARIANTS = {
    "one": dict(num_heads=4, head_dim=16, state_size=8, n_groups=1, tie_word_embeddings=True),
    "groups": dict(num_heads=8, head_dim=8, state_size=6, n_groups=4, conv_kernel=3, tie_word_embeddings=False,
                   layer_norm_epsilon=1e-2),
    "bias": dict(num_heads=6, head_dim=16, expand=3, state_size=5, n_groups=2, use_bias=True, use_conv_bias=False,
                 conv_kernel=2, tie_word_embeddings=True, time_step_limit=[0.2, 1.5]),
}
TRAINING = dict(variant="one", learning_rate=5e-4, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=12.0)
DIRECTORIES = {"plain": "one", "groups": "groups", "bias": "bias"}


def make_model(options, generator):
    model = Mamba2ForCausalLM(Mamba2Config(**options, pad_token_id=None, bos_token_id=None, eos_token_id=None,
                                           use_cache=False))
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name:
                p.copy_(1.0 + 0.2 * noise)
            elif name.endswith("A_log"):
                p.copy_(0.5 * noise)
            elif name.endswith("dt_bias"):
                p.copy_(noise - 1.0)  # time steps of 0.1 to 2: what is forgotten matters
            elif name.endswith("mixer.D"):
                p.copy_(1.0 + 0.5 * noise)
            else:  # wide enough that every part of the state and every bias matters
                p.copy_(noise * (0.5 if "embed" in name or "conv1d" in name else 0.25 if "bias" in name else 0.2))
    return model


def mixer(m, x):
    """Mamba2Mixer token by token, in the dtype of its parameters."""
    batch, length, inner = x.shape[0], x.shape[1], m.intermediate_size
    heads, width, groups, states = m.num_heads, m.head_dim, m.n_groups, m.ssm_state_size
    z, xbc, dt = m.in_proj(x).split([inner, m.conv_dim, heads], dim=-1)
    taps = m.conv1d.weight.shape[-1]
    xbc = F.silu(F.conv1d(F.pad(xbc.transpose(1, 2), (taps - 1, 0)), m.conv1d.weight, m.conv1d.bias,
                          groups=m.conv_dim).transpose(1, 2))
    u, b, c = xbc.split([inner, groups * states, groups * states], dim=-1)
    u = u.unflatten(-1, (heads, width))
    b, c = (t.unflatten(-1, (groups, states)).repeat_interleave(heads // groups, dim=2) for t in (b, c))
    step = F.softplus(dt + m.dt_bias).clamp(*m.time_step_limit)
    decay = torch.exp(-step * torch.exp(m.A_log))
    h, out = torch.zeros(batch, heads, states, width, dtype=x.dtype), []
    for t in range(length):
        h = decay[:, t, :, None, None] * h + (step[:, t, :, None] * b[:, t])[..., None] * u[:, t, :, None]
        out.append((c[:, t, :, None] @ h)[:, :, 0] + m.D[:, None] * u[:, t])
    y = (torch.stack(out, 1).flatten(2) * F.silu(z)).unflatten(-1, (groups, -1))
    y = y * torch.rsqrt((y * y).mean(-1, keepdim=True) + m.layer_norm_epsilon)
    return m.out_proj(m.norm.weight * y.flatten(2))


def logits_of(model, tokens):
    eps = model.config.layer_norm_epsilon
    h = model.backbone.embeddings(tokens)
    for layer in model.backbone.layers:
        h = h + mixer(layer.mixer, norm(h, layer.norm.weight, eps))
    return norm(h, model.backbone.norm_f.weight, eps) @ model.lm_head.weight.T


def train(model, tokens, labels, h):
    """AdamW as mamba_ssm means it: no decay on vectors, which A_log and D are, too."""
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for _, p in named if p.dim() > 1], "weight_decay": h["weight_decay"]},
         {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0}],
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
    check(f"{name}: logits", plain_logits.detach(), logits.detach(), 5e-6)
    check(f"{name}: loss", plain_loss.detach(), total.detach() / counted, 1e-6)
    tensors["logits"] = logits.detach().float()
    for key, p in model.named_parameters():
        check(f"{name}: gradient of {key}", plain[key], p.grad, 5e-5)
        tensors[f"grad.{key}"] = p.grad.float()

    about = {"model": "mamba2", "options": options, "loss": total.item() / counted, "loss_sum": total.item(),
             "labels_counted": counted}
    if TRAINING["variant"] == name:
        series = make_series(options["vocab_size"], generator)
        common.add_training(about, tensors, TRAINING, series, lambda *run: train(model, *run))
    common.save("mamba2", name, about, tensors, out)
    return about


def make_directories():
    models = common.HERE.parent
    given = json.loads((models / "hf" / "expected.json").read_text())
    tokens, labels = torch.tensor(given["tokens"]), torch.tensor(given["labels"])
    out, losses = models / "hf_mamba2", {}
    shutil.rmtree(out, ignore_errors=True)
    for seed, (name, variant) in enumerate(DIRECTORIES.items(), start=71):
        options = {**BASE, **VARIANTS[variant], "vocab_size": 256}
        make_model(options, torch.Generator().manual_seed(seed)).save_pretrained(out / name)
        (out / name / "generation_config.json").unlink(missing_ok=True)
        model = AutoModelForCausalLM.from_pretrained(out / name).double()
        with torch.no_grad():
            loss = F.cross_entropy(logits_of(model, tokens).flatten(0, 1), labels.flatten(), ignore_index=-100)
        losses[name] = loss.item()
        print(name, losses[name])
    (out / "expected.json").write_text(json.dumps({"loss": losses}) + "\n")


if __name__ == "__main__":
    common.main(VARIANTS, make, 11)
    make_directories()
