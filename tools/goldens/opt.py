#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/golden/opt_*: logits, losses and gradients of tiny OPTs from Hugging Face transformers.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/opt.py [OUT_DIR]

The files are like those of llama.py, without the rope table; options have the keys of the opt plugin. All numbers are
computed in float64 from f32 parameters; transformers in fp32 must agree with them, or the script stops.
"""

import sys

import torch
from transformers import OPTConfig, OPTForCausalLM

import common
from llama import check, loss_sum, make_batch, make_series, train

BASE = dict(vocab_size=64, hidden_size=24, ffn_dim=32, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=32)
VARIANTS = {
    "pre": dict(),  # heads of 8: their scale is no power of two
    "post": dict(hidden_size=32, num_attention_heads=2, word_embed_proj_dim=12, do_layer_norm_before=False),  # as 350m
    "plain": dict(enable_bias=False, layer_norm_elementwise_affine=False, activation_function="gelu"),  # as galactica
    "untied": dict(tie_word_embeddings=False, _remove_final_layer_norm=True, activation_function="gelu_new",
                   word_embed_proj_dim=40),
}
# Some of the norms lie below grad_clip and some above.
TRAINING = dict(variant="pre", learning_rate=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=3.0)


def make_model(options, generator):
    # Without a padding token every row of the embeddings is an ordinary one.
    model = OPTForCausalLM(OPTConfig(**options, dropout=0.0, attn_implementation="sdpa", use_cache=False,
                                     pad_token_id=None))
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("norm.weight"):
                p.copy_(1.0 + 0.2 * noise)
            else:
                # Wide enough that attention is far from uniform and every bias matters.
                p.copy_(noise * (0.5 if "embed" in name else 0.25))
    return model.train()


def make(name, seed, out):
    options = {**BASE, **VARIANTS[name]}
    generator = torch.Generator().manual_seed(seed)
    model = make_model(options, generator)
    tokens, labels = make_batch(options["vocab_size"], generator)
    counted = int((labels != -100).sum())
    tensors = {"tokens": tokens.int(), "labels": labels.int()}
    tensors |= {f"param.{key}": p.detach().clone() for key, p in model.named_parameters()}

    plain_loss = loss_sum(model, tokens, labels) / counted
    plain_loss.backward()
    plain = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()

    model.double()
    total = loss_sum(model, tokens, labels)
    (total / counted).backward()
    with torch.no_grad():
        tensors["logits"] = model(input_ids=tokens).logits.float()
    check(f"{name}: loss", plain_loss.detach(), total.detach() / counted, 1e-6)
    for key, p in model.named_parameters():
        # Adding one vector to all keys changes no attention weight: this gradient is zero except for rounding.
        if key.endswith("k_proj.bias"):
            if p.grad.abs().max() > 1e-15:
                sys.exit(f"{name}: {key} has a gradient")
            p.grad.zero_()
        else:
            check(f"{name}: gradient of {key}", plain[key], p.grad, 2e-5)
        tensors[f"grad.{key}"] = p.grad.float()

    about = {"model": "opt", "options": {**options, "dropout": 0.0}, "loss": total.item() / counted,
             "loss_sum": total.item(), "labels_counted": counted}
    if TRAINING["variant"] == name:
        series = make_series(options["vocab_size"], generator)
        common.add_training(about, tensors, TRAINING, series, lambda *run: train(model, *run))
    common.save("opt", name, about, tensors, out)
    return about


if __name__ == "__main__":
    common.main(VARIANTS, make, first_seed=101)
