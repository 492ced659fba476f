#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/golden/qwen2_* and tests/models/hf_qwen2: losses and gradients of tiny Qwen2 models.

    pip install numpy safetensors transformers      (without torch)
    python tools/goldens/qwen2.py

The model is written here in NumPy, in float64, after the formulas of Qwen2ForCausalLM of transformers: LLaMA with biases
on q, k and v. Its gradients are central differences, so there is no backward that could be wrong. Before anything is
made, the same function must give the losses of the LLaMAs in tests/models, which transformers computed. transformers
itself writes each config.json here.

golden/qwen2_NAME      as golden/llama_NAME: tools/goldens/llama.py. No rope, no training
hf_qwen2/NAME          the directory of a model, in float32
hf_qwen2/expected.json the mean loss of each, on the tokens and labels of tests/models/hf/expected.json
"""

import json
import pathlib
import platform
import shutil

import numpy as np
import transformers
from safetensors.numpy import load_file, save_file
from transformers import Qwen2Config

MODELS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models"
STEP = 1e-5  # of the differences
BASE = dict(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64)
GOLDENS = {"untied": dict(rope_theta=1000000.0), "tied": dict(tie_word_embeddings=True, rms_norm_eps=1e-5)}
DIRECTORIES = {"untied": dict(vocab_size=256), "tied": dict(vocab_size=256, tie_word_embeddings=True)}
ACTIVATIONS = {"silu": lambda x: x / (1.0 + np.exp(-x)), "relu": lambda x: np.maximum(x, 0.0)}


def logits_of(p, o, tokens):
    """(B, T, V) of the model with parameters `p`, by their Hugging Face names, and options `o`."""
    heads, kv_heads = o["num_attention_heads"], o.get("num_key_value_heads", o["num_attention_heads"])
    size, (batch, length) = o["hidden_size"] // heads, tokens.shape

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + o.get("rms_norm_eps", 1e-6)) * p[name + ".weight"]

    def linear(x, name):
        return x @ p[name + ".weight"].T + p.get(name + ".bias", 0.0)

    def by_head(x, count):  # (B, heads, T, D)
        return x.reshape(batch, length, count, size).transpose(0, 2, 1, 3)

    frequencies = o.get("rope_theta", 10000.0) ** (-np.arange(0, size, 2) / size)
    angles = np.arange(length)[:, None] * frequencies
    cos, sin = np.cos(angles), np.sin(angles)

    def rotated(x):
        a, b = x[..., :size // 2], x[..., size // 2:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)

    x = p["model.embed_tokens.weight"][tokens]
    later = np.triu(np.full((length, length), -np.inf), 1)
    for i in range(o["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        n = norm(x, layer + "input_layernorm")
        query = rotated(by_head(linear(n, layer + "self_attn.q_proj"), heads))
        key = rotated(by_head(linear(n, layer + "self_attn.k_proj"), kv_heads)).repeat(heads // kv_heads, axis=1)
        value = by_head(linear(n, layer + "self_attn.v_proj"), kv_heads).repeat(heads // kv_heads, axis=1)
        scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(size) + later
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ value
        x = x + linear(mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1), layer + "self_attn.o_proj")
        n = norm(x, layer + "post_attention_layernorm")
        inner = ACTIVATIONS[o.get("hidden_act", "silu")](linear(n, layer + "mlp.gate_proj"))
        x = x + linear(inner * linear(n, layer + "mlp.up_proj"), layer + "mlp.down_proj")
    head = "model.embed_tokens" if o.get("tie_word_embeddings") else "lm_head"
    return norm(x, "model.norm") @ p[head + ".weight"].T


def loss_of(p, o, tokens, labels):
    """The sum over the labels that are counted."""
    logits = logits_of(p, o, tokens)
    top = logits.max(-1)
    total = top + np.log(np.exp(logits - top[..., None]).sum(-1))
    chosen = np.take_along_axis(logits, np.maximum(labels, 0)[..., None], axis=-1)[..., 0]
    return np.where(labels < 0, 0.0, total - chosen).sum()


def doubles(tensors):
    return {name: t.astype(np.float64) for name, t in tensors.items()}


def check(what, ours, theirs, limit):
    print(f"{what}: {ours:.9f}, by transformers {theirs:.9f}")
    if not abs(ours / theirs - 1.0) < limit:
        raise SystemExit(f"{what}: not the loss of transformers")


def check_with_llama():
    for name in ("mha", "gqa", "bias"):
        about = json.loads((MODELS / "golden" / f"llama_{name}.json").read_text())
        stored = load_file(MODELS / "golden" / f"llama_{name}.safetensors")
        p = {key.removeprefix("param."): t for key, t in stored.items() if key.startswith("param.")}
        ours = loss_of(doubles(p), about["options"], stored["tokens"], stored["labels"])
        check(f"llama_{name}", ours, about["loss_sum"], 2e-8)
    # Computed by transformers in float32.
    tokens, labels, expected = batch_of_directories()
    options = json.loads((MODELS / "hf" / "tied" / "config.json").read_text())
    p = doubles(load_file(MODELS / "hf" / "tied" / "model.safetensors"))
    check("hf/tied", loss_of(p, options, tokens, labels) / (labels >= 0).sum(), expected["loss"]["tied"], 1e-6)


def batch_of_directories():
    expected = json.loads((MODELS / "hf" / "expected.json").read_text())
    return np.array(expected["tokens"]), np.array(expected["labels"]), expected


def new_parameters(o, random):
    """As stored, in float32. Wide enough that attention is far from uniform and every bias matters."""
    hidden, ffn = o["hidden_size"], o["intermediate_size"]
    kv = hidden // o["num_attention_heads"] * o["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (o["vocab_size"], hidden)}
    for i in range(o["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, rows, columns in (("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", kv, hidden),
                                    ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, hidden),
                                    ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden),
                                    ("mlp.down_proj", hidden, ffn)):
            shapes[layer + name + ".weight"] = (rows, columns)
            if name[-6:] in ("q_proj", "k_proj", "v_proj"):
                shapes[layer + name + ".bias"] = (rows,)
        shapes[layer + "input_layernorm.weight"] = shapes[layer + "post_attention_layernorm.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    if not o.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (o["vocab_size"], hidden)
    return {name: (random.standard_normal(shape) * (0.2 if "norm" in name else 0.3) + ("norm" in name)).astype(np.float32)
            for name, shape in shapes.items()}


def gradient(p, name, o, tokens, labels):
    out, values = np.empty(p[name].shape), p[name].reshape(-1)
    for i, middle in enumerate(values.copy()):
        values[i] = middle + STEP
        above = loss_of(p, o, tokens, labels)
        values[i] = middle - STEP
        out.reshape(-1)[i] = (above - loss_of(p, o, tokens, labels)) / (2.0 * STEP)
        values[i] = middle
    return out


def make_golden(name, seed):
    o, random = {**BASE, **GOLDENS[name]}, np.random.default_rng(seed)
    stored = new_parameters(o, random)
    tokens = random.integers(0, o["vocab_size"], (2, 12), dtype=np.int32)
    labels = random.integers(0, o["vocab_size"], (2, 12), dtype=np.int32)
    labels[0, 3] = labels[1, -2:] = -100
    p, counted = doubles(stored), int((labels >= 0).sum())
    total = float(loss_of(p, o, tokens, labels))
    tensors = {"tokens": tokens, "labels": labels, "logits": logits_of(p, o, tokens).astype(np.float32)}
    tensors |= {f"param.{key}": t for key, t in stored.items()}
    tensors |= {f"grad.{key}": (gradient(p, key, o, tokens, labels) / counted).astype(np.float32) for key in p}
    save_file(tensors, MODELS / "golden" / f"qwen2_{name}.safetensors", metadata={"made_by": "tools/goldens/qwen2.py"})
    about = {"model": "qwen2", "options": o, "loss": total / counted, "loss_sum": total, "labels_counted": counted,
             "versions": {"numpy": np.__version__, "python": platform.python_version()}}
    (MODELS / "golden" / f"qwen2_{name}.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"golden {name}: loss {about['loss']:.6f}")


def make_directories(out):
    shutil.rmtree(out, ignore_errors=True)
    tokens, labels, _ = batch_of_directories()
    losses = {}
    for seed, (name, options) in enumerate(DIRECTORIES.items(), start=11):
        o = {**BASE, **options}
        config = Qwen2Config(**o, architectures=["Qwen2ForCausalLM"], dtype="float32")
        config.save_pretrained(out / name)
        stored = new_parameters(o, np.random.default_rng(seed))
        save_file(stored, out / name / "model.safetensors", metadata={"format": "pt"})
        losses[name] = float(loss_of(doubles(stored), o, tokens, labels) / (labels >= 0).sum())
    (out / "expected.json").write_text(json.dumps({"loss": losses}) + "\n")
    print(f"transformers {transformers.__version__}: {losses}")


if __name__ == "__main__":
    check_with_llama()
    for number, golden in enumerate(GOLDENS, start=1):
        make_golden(golden, number)
    make_directories(MODELS / "hf_qwen2")
