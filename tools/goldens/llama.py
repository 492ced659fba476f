#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/golden/llama_*: losses and gradients of tiny LLaMAs from Hugging Face transformers.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/llama.py [OUT_DIR]

Two files per variant.

llama_NAME.safetensors
    tokens, labels     (B, T) i32; labels[b, t] is the target of position t (nothing is shifted), -100 is ignored
    rope               (T, D) f32, [cos(D/2) | sin(D/2)] per position, as transformers computes them in fp32
    param.KEY          every parameter under its Hugging Face name, f32 (a tied head is absent)
    grad.KEY           gradient of the mean loss
    logits             (B, T, V) f32
    train.tokens, train.labels    (steps, B, T) i32, only where the .json has "training"
llama_NAME.json
    options            keys and values of the llama plugin's options
    loss               mean over the counted labels; loss_sum: their sum; labels_counted: their number
    training           hyper-parameters of torch.optim.AdamW (decay on matrices only), constant learning rate,
                       and per step the mean loss and the gradient norm before clipping
    versions           of the libraries that made the file

Loss, gradients and training are computed in float64 from f32 parameters. transformers computes norms and
angles in fp32 whatever the model's dtype, so those two are replaced by the same formulas in float64; the
unmodified fp32 model must agree with the result, or the script stops.
"""

import sys

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

import common

BATCH, LENGTH, STEPS = 2, 24, 20
BASE = dict(vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, rms_norm_eps=1e-5)
STRETCH = dict(rope_short_factor=[1.0, 1.05, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5],
               rope_long_factor=[1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 8.0, 12.0])
VARIANTS = {
    "mha": dict(vocab_size=96, intermediate_size=48, num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-6),
    "gqa": dict(num_attention_heads=4, num_key_value_heads=2, rope_theta=500000.0),
    "head_dim": dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12, hidden_act="gelu"),
    "tied": dict(num_attention_heads=4, tie_word_embeddings=True, hidden_act="gelu_new", rms_norm_eps=1e-2),
    "bias": dict(num_attention_heads=4, num_key_value_heads=2, attention_bias=True, mlp_bias=True, hidden_act="relu"),
    "linear": dict(rope_type="linear", rope_factor=4.0, hidden_act="gelu_pytorch_tanh"),
    "dynamic": dict(rope_type="dynamic", rope_factor=3.0, max_position_embeddings=16),
    "yarn": dict(rope_type="yarn", rope_factor=4.0, rope_original_max_position_embeddings=4096,
                 max_position_embeddings=16384),
    "longrope_short": dict(rope_type="longrope", rope_original_max_position_embeddings=32, **STRETCH),
    "longrope_long": dict(rope_type="longrope", rope_original_max_position_embeddings=16, **STRETCH),
    "llama3": dict(rope_type="llama3", rope_factor=8.0, rope_low_freq_factor=1.0, rope_high_freq_factor=4.0,
                   rope_original_max_position_embeddings=64, max_position_embeddings=512),
}
# Some of the norms lie below grad_clip and some above.
TRAINING = dict(variant="gqa", learning_rate=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=3.0)

hf_norm = modeling_llama.LlamaRMSNorm.forward
hf_rotary = modeling_llama.LlamaRotaryEmbedding.forward


def double_norm(self, x):
    return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.variance_epsilon))


def double_rotary(self, x, position_ids):
    hf_rotary(self, x, position_ids)  # chooses the frequencies for this length
    angles = position_ids[..., None].double() * self.inv_freq.double()
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling


def in_double(yes):
    modeling_llama.LlamaRMSNorm.forward = double_norm if yes else hf_norm
    modeling_llama.LlamaRotaryEmbedding.forward = double_rotary if yes else hf_rotary


def hf_config(options):
    rope = {"rope_type": options.get("rope_type", "default"), "rope_theta": options.get("rope_theta", 10000.0)}
    for key, value in options.items():
        if key.startswith("rope_") and key not in ("rope_type", "rope_theta"):
            rope[key.removeprefix("rope_")] = value
    rest = {key: value for key, value in options.items() if not key.startswith("rope_")}
    return LlamaConfig(**rest, rope_parameters=rope, attn_implementation="sdpa", use_cache=False, pad_token_id=None)


def make_model(options, generator):
    model = LlamaForCausalLM(hf_config(options))
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("norm.weight"):
                p.copy_(1.0 + 0.2 * noise)
            else:
                # Wide enough that attention is far from uniform and every bias matters.
                p.copy_(noise * (0.5 if "embed" in name else 0.25 if "bias" in name else 0.2))
    return model


def loss_sum(model, tokens, labels):
    logits = model(input_ids=tokens).logits
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


def make_batch(vocabulary, generator):
    tokens = torch.randint(0, vocabulary, (BATCH, LENGTH), generator=generator)
    labels = torch.randint(0, vocabulary, (BATCH, LENGTH), generator=generator)
    labels[0, 3] = labels[0, 11] = -100
    labels[1, -5:] = -100
    return tokens, labels


def make_series(vocabulary, generator):
    """Sequences a model can learn: each token is the one before plus 7, with some noise."""
    start = torch.randint(0, vocabulary, (STEPS, BATCH, 1), generator=generator)
    series = (start + 7 * torch.arange(LENGTH + 1)) % vocabulary
    noise = torch.rand(series.shape, generator=generator) < 0.1
    series = torch.where(noise, torch.randint(0, vocabulary, series.shape, generator=generator), series)
    return series[..., :-1].contiguous(), series[..., 1:].contiguous()


def check(name, a, b, limit):
    error = ((a.double() - b).abs().max() / b.abs().max()).item()
    if not error < limit:
        sys.exit(f"{name}: float64 and transformers in fp32 differ by {error:.1e}, more than {limit:.0e}")


def train(model, tokens, labels, h):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": h["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=h["learning_rate"], betas=(h["beta1"], h["beta2"]), eps=h["eps"])
    losses, norms = [], []
    for step_tokens, step_labels in zip(tokens, labels):
        optimizer.zero_grad()
        loss = loss_sum(model, step_tokens, step_labels) / step_labels.numel()
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

    in_double(False)
    positions = torch.arange(LENGTH)[None]
    cos, sin = model.model.rotary_emb(torch.zeros(1), positions)
    half = cos.shape[-1] // 2
    tensors["rope"] = torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1)
    plain_loss = model(input_ids=tokens, labels=labels, shift_labels=labels).loss
    plain_loss.backward()
    plain = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()

    in_double(True)
    model.double()
    total = loss_sum(model, tokens, labels)
    (total / counted).backward()
    with torch.no_grad():
        tensors["logits"] = model(input_ids=tokens).logits.float()
    check(f"{name}: loss", plain_loss.detach(), total.detach() / counted, 1e-6)
    for key, p in model.named_parameters():
        check(f"{name}: gradient of {key}", plain[key], p.grad, 2e-5)
        tensors[f"grad.{key}"] = p.grad.float()

    about = {"options": options, "loss": total.item() / counted, "loss_sum": total.item(), "labels_counted": counted}
    if TRAINING["variant"] == name:
        series = make_series(options["vocab_size"], generator)
        common.add_training(about, tensors, TRAINING, series, lambda *run: train(model, *run))
    common.save("llama", name, about, tensors, out)
    return about


if __name__ == "__main__":
    common.main(VARIANTS, make)
