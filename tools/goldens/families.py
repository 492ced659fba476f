#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/golden/FAMILY_* and tests/models/hf_families: the models of plugins/decoders, by transformers.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/families.py

golden/FAMILY_NAME      as golden/llama_NAME: tools/goldens/llama.py, without rope. Parameters and gradients have the names
                        that they have in the model here: of phi3 and gpt2, the matrices of the files are split, of
                        gpt2 also transposed
hf_families/NAME        the directory of a model as transformers saves it, in float32
hf_families/expected.json the mean loss of each, on the tokens and labels of tests/models/hf/expected.json

transformers has no minicpm and no internlm2: their code comes with their weights. A MiniCPM is a Granite with other
constants, and an InternLM2 a Llama whose q, k and v lie in one matrix, so those two models compute them.

Everything is computed in float64 from parameters in float32, but norms and angles, which transformers computes in
float32 whatever the type of the model: those are replaced by the same formulas in float64. The unmodified model in
float32 must agree with the result, or the script stops.
"""

import copy
import json
import math
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file

import common
from llama import check, loss_sum, train

ROOT = common.HERE.parent
BATCH, LENGTH, STEPS = 2, 12, 10
TRAINING = dict(learning_rate=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=3.0)
BASE = dict(vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64)
STRETCH = dict(rope_type="longrope", rope_short_factor=[1.25], rope_long_factor=[3.0])
MUP = dict(embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5)
MINICPM = dict(scale_emb=6.0, scale_depth=0.7, dim_model_base=8)
GEMMA = dict(hidden_size=20, head_dim=6, query_pre_attn_scalar=7, sliding_window=5)
# The variant "plain" of each family is trained, too. No other one is, nor are those with `directory`, which are saved.
FAMILIES = {
    "qwen3": dict(plain=dict(head_dim=6, rope_theta=1e6), bias=dict(head_dim=4, attention_bias=True)),
    "olmo2": dict(plain=dict(rms_norm_eps=1e-4)),
    "phi3": dict(plain=dict(), partial=dict(partial_rotary_factor=0.5, original_max_position_embeddings=8, **STRETCH)),
    "smollm3": dict(plain=dict(num_hidden_layers=3, no_rope_layer_interval=2), listed=dict(no_rope_layers=[0, 1])),
    "granite": dict(plain=dict(tie_word_embeddings=True, **MUP)),
    "gpt_neox": dict(plain=dict(rotary_pct=0.5), serial=dict(rotary_pct=1.0, use_parallel_residual=False,
                                                           attention_bias=False, hidden_act="gelu_new")),
    "minicpm": dict(plain=dict(**MINICPM)),
    "internlm2": dict(plain=dict(bias=False, rope_theta=1e6), bias=dict(bias=True)),
}
# The families with windows of attention, and what they add to others: made after those above.
WINDOWED = {
    "phi3": dict(window=dict(sliding_window=5)),
    "mistral": dict(plain=dict(head_dim=6, sliding_window=5)),
    "ministral": dict(plain=dict(head_dim=6, sliding_window=3, layer_types=["full_attention", "sliding_attention"])),
    "gemma3": dict(plain=dict(GEMMA, sliding_window_pattern=2, rope_theta=1e5, rope_local_base_freq=100.0),
                   linear=dict(GEMMA, layer_types=["full_attention", "sliding_attention"], rope_type="linear",
                               rope_factor=4.0, attention_bias=True)),
    "gemma2": dict(plain=dict(GEMMA, attn_logit_softcapping=1.5, final_logit_softcapping=2.5),
                   scores=dict(GEMMA, layer_types=["full_attention", "sliding_attention"], attn_logit_softcapping=1.5)),
}
# Families with learned positions: made after those above. tools/goldens/gpt2.py makes their directories.
LEARNED = {
    "gpt2": dict(plain=dict(), wide=dict(n_inner=36, activation_function="gelu", tie_word_embeddings=False,
                                         layer_norm_epsilon=1e-3, scale_attn_weights=False)),
}
DIRECTORIES = {
    "qwen3": ("qwen3", dict(head_dim=6, tie_word_embeddings=True)),
    "olmo2": ("olmo2", dict(tie_word_embeddings=True)),
    "phi3": ("phi3", dict(tie_word_embeddings=True, partial_rotary_factor=0.5, original_max_position_embeddings=8, **STRETCH)),
    "smollm3": ("smollm3", dict(no_rope_layers=[0, 1])),
    "granite": ("granite", dict(tie_word_embeddings=True, **MUP)),
    "gpt_neox": ("gpt_neox", dict(rotary_pct=0.5)),
    "minicpm": ("minicpm", dict(**MINICPM)),
    "internlm2": ("internlm2", dict(bias=False, tie_word_embeddings=True)),
    # Families that are read as LLaMA.
    "mistral": ("mistral", dict(head_dim=6, tie_word_embeddings=True, sliding_window=None)),
    "ministral": ("ministral", dict(head_dim=6, tie_word_embeddings=True, sliding_window=64)),
    "internlm3": ("internlm3", dict(head_dim=6, tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
    "phi3_window": ("phi3", dict(tie_word_embeddings=True, sliding_window=7)),
    "mistral_window": ("mistral", dict(head_dim=6, tie_word_embeddings=True, sliding_window=7)),
    "ministral_window": ("ministral", dict(head_dim=6, tie_word_embeddings=True, sliding_window=7,
                                           layer_types=["sliding_attention", "full_attention"])),
    "gemma3": ("gemma3", dict(GEMMA, rope_local_base_freq=100.0,
                              layer_types=["sliding_attention", "full_attention"])),
    "gemma2": ("gemma2", dict(GEMMA, attn_logit_softcapping=1.5, final_logit_softcapping=2.5)),
}
CLASSES = {"qwen3": "Qwen3", "olmo2": "Olmo2", "phi3": "Phi3", "smollm3": "SmolLM3", "granite": "Granite",
           "gpt_neox": "GPTNeoX", "minicpm": "Granite", "internlm2": "Llama", "mistral": "Mistral",
           "ministral": "Ministral", "internlm3": "InternLM3", "gemma3": "Gemma3Text", "gemma2": "Gemma2"}


ATTENTION = {"gemma2": "eager"}  # the only one that caps scores


def config_of(family, options):
    """The configuration of transformers for options of the engine."""
    o = copy.deepcopy(options)
    if family == "minicpm":
        o |= dict(embedding_multiplier=o.pop("scale_emb"), logits_scaling=o["hidden_size"] / o.pop("dim_model_base"),
                  residual_multiplier=o.pop("scale_depth") / math.sqrt(o["num_hidden_layers"]),
                  attention_multiplier=(o["hidden_size"] // o["num_attention_heads"]) ** -0.5)
        o.setdefault("tie_word_embeddings", True)
    if family == "internlm2":
        o["attention_bias"] = o.pop("bias")
    if family == "gpt_neox":
        o["partial_rotary_factor"] = o.pop("rotary_pct")
        o.pop("num_key_value_heads", None)
    tokens = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)
    if family == "gpt2":
        return transformers.GPT2Config(**o, attn_pdrop=0.0, **tokens)
    rope = {"rope_type": "default", "rope_theta": 2e6 if family == "smollm3" else 1e4}
    for key in list(o):
        if key.startswith("rope_"):
            value = o.pop(key)
            rope[key if key in ("rope_type", "rope_theta") else key.removeprefix("rope_")] = value
        elif key == "partial_rotary_factor":
            rope[key] = o.pop(key)
    if family == "gemma3":
        local = {"rope_type": "default", "rope_theta": rope.pop("local_base_freq", 1e4)}
        rope = {"full_attention": {**rope, "rope_theta": options.get("rope_theta", 1e6)}, "sliding_attention": local}
    if family == "gemma2":  # which has both by default
        o = {"attn_logit_softcapping": None, "final_logit_softcapping": None, **o}
    kind = getattr(transformers, CLASSES[family] + "Config")
    return kind(**o, rope_parameters=rope, **tokens)


def make_model(family, options, generator):
    config = config_of(family, options)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION.get(family, "sdpa")).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if ("norm" in name or "ln_" in name) and name.endswith("weight"):
                p.copy_((0.0 if family.startswith("gemma") else 1.0) + 0.2 * noise)
            else:
                # Wide enough that attention is far from uniform and every bias matters.
                p.copy_(noise * 0.3)
    return model


plain_softmax = torch.nn.functional.softmax


def softmax(x, dim, dtype=None):
    return plain_softmax(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype)


def in_double(model):
    """The model in float64, in every norm, every angle and every softmax, too."""
    model = model.double()
    torch.nn.functional.softmax = softmax

    def norm(module):
        one = hasattr(module, "eps")  # Gemma's: 1 + weight
        eps = module.eps if one else module.variance_epsilon
        module.forward = lambda x: (one + module.weight) * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))

    def rotary(module):
        chooses = module.forward  # the frequencies for this length

        def forward(x, position_ids, *rest):
            chooses(x, position_ids, *rest)
            prefix = f"{rest[0]}_" if rest else ""  # of layers with the window, or without it
            angles = position_ids[..., None].double() * getattr(module, prefix + "inv_freq").double()
            angles = torch.cat((angles, angles), dim=-1)
            scaling = getattr(module, prefix + "attention_scaling")
            return angles.cos() * scaling, angles.sin() * scaling

        module.forward = forward

    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            norm(module)
        if type(module).__name__.endswith("RotaryEmbedding"):
            rotary(module)
    return model


def names_here(family, tensors, options):
    """The tensors of transformers' model with the names, and as the parts, that they have in the model here."""
    heads, kv = options["num_attention_heads"], options.get("num_key_value_heads", options["num_attention_heads"])
    size, out = options["hidden_size"] // heads, {}
    for name, t in tensors.items():
        if family == "phi3" and "qkv_proj" in name:
            for part, value in zip("qkv", t.split([heads * size, kv * size, kv * size])):
                out[name.replace("qkv_proj", f"{part}_proj")] = value
        elif family == "phi3" and "gate_up_proj" in name:
            for part, value in zip(("gate", "up"), t.chunk(2)):
                out[name.replace("gate_up_proj", f"{part}_proj")] = value
        elif family == "gpt2":
            if t.dim() == 2 and ".h." in name:
                t = t.T
            for part, value in zip("qkv", t.chunk(3)) if "c_attn" in name else (("", t),):
                out[name.replace("c_attn", part)] = value
        elif family == "gpt_neox":
            out[name.replace("lm_head.", "embed_out.")] = t
        elif family == "internlm2":
            for theirs, ours in (("model.embed_tokens", "model.tok_embeddings"), ("lm_head", "output"),
                                 ("self_attn.o_proj", "attention.wo"), ("mlp.gate_proj", "feed_forward.w1"),
                                 ("mlp.up_proj", "feed_forward.w3"), ("mlp.down_proj", "feed_forward.w2"),
                                 ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm")):
                name = name.replace(theirs, ours)
            if "self_attn." not in name:
                out[name] = t
            elif "q_proj" in name:  # of each key and value head: its query heads, its key, its value
                q, k, v = (tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv")
                groups = [part.unflatten(0, (kv, -1)) for part in (q, k, v)]
                out[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(groups, dim=1).flatten(0, 1)
        else:
            out[name] = t
    return out


def make_batch(vocabulary, generator):
    tokens = torch.randint(0, vocabulary, (BATCH, LENGTH), generator=generator)
    labels = torch.randint(0, vocabulary, (BATCH, LENGTH), generator=generator)
    labels[0, 3] = -100
    labels[1, -2:] = -100
    return tokens, labels


def make_series(vocabulary, generator):
    """Sequences a model can learn: each token is the one before plus 7."""
    start = torch.randint(0, vocabulary, (STEPS, BATCH, 1), generator=generator)
    series = (start + 7 * torch.arange(LENGTH + 1)) % vocabulary
    return series[..., :-1].contiguous(), series[..., 1:].contiguous()


def make_golden(family, name, seed, variant):
    options = {**BASE, **variant}
    if family in ("gpt_neox", "gpt2"):
        del options["num_key_value_heads"]
    if family == "gpt2":
        del options["intermediate_size"]
        options |= dict(embd_pdrop=0.0, resid_pdrop=0.0)
    generator = torch.Generator().manual_seed(seed)
    model = make_model(family, options, generator)
    tokens, labels = make_batch(options["vocab_size"], generator)
    counted = int((labels != -100).sum())
    parameters = {key: p.detach().clone() for key, p in model.named_parameters()}
    tensors = {"tokens": tokens.int(), "labels": labels.int()}
    tensors |= {f"param.{key}": p for key, p in names_here(family, parameters, options).items()}

    plain_loss = loss_sum(model, tokens, labels) / counted
    plain_loss.backward()
    plain = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()
    model = in_double(model)
    total = loss_sum(model, tokens, labels)
    (total / counted).backward()
    with torch.no_grad():
        tensors["logits"] = model(input_ids=tokens).logits.float()
    check(f"{family} {name}: loss", plain_loss.detach(), total.detach() / counted, 1e-6)
    for key, p in model.named_parameters():
        check(f"{family} {name}: gradient of {key}", plain[key], p.grad, 1e-4)
    for key, g in names_here(family, {key: p.grad for key, p in model.named_parameters()}, options).items():
        if key.endswith("attn.k.bias"):  # adding one vector to all keys changes no attention weight: zero but for rounding
            check_zero(f"{family} {name}: gradient of {key}", g)
            g = torch.zeros_like(g)
        tensors[f"grad.{key}"] = g.float()
    about = {"model": family, "options": options, "loss": total.item() / counted, "loss_sum": total.item(),
             "labels_counted": counted}
    if name == "plain":
        series = make_series(options["vocab_size"], generator)
        common.add_training(about, tensors, TRAINING, series, lambda *run: train(model, *run))
    common.save(family, name, about, tensors, common.HERE)
    made = common.HERE / f"{family}_{name}.safetensors"  # its metadata names this script
    save_file(load_file(made), made, metadata={"made_by": "tools/goldens/families.py"})
    print(f"{family} {name}: loss {about['loss']:.6f}", "-> %.4f" % about["training"]["losses"][-1] if name == "plain" else "")


def check_zero(what, g):
    if g.abs().max() > 1e-15:
        raise SystemExit(f"{what} is {g.abs().max().item()}, not 0")


def own_config(family, options):
    """config.json as it is published, of a family whose code comes with its weights."""
    name = {"minicpm": "MiniCPM", "internlm2": "InternLM2"}[family]
    return {"architectures": [name + "ForCausalLM"], "attn_implementation": "eager",
            "auto_map": {"AutoConfig": f"configuration_{family}.{name}Config",
                         "AutoModelForCausalLM": f"modeling_{family}.{name}ForCausalLM"},
            "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02, "model_type": family,
            "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 10000, "torch_dtype": "float32",
            "transformers_version": "4.41.0", "use_cache": True, **options}


def make_directories(out):
    shutil.rmtree(out, ignore_errors=True)
    expected = json.loads((ROOT / "hf" / "expected.json").read_text())
    tokens, labels = torch.tensor(expected["tokens"]), torch.tensor(expected["labels"])
    losses = {}
    for seed, (name, (family, more)) in enumerate(DIRECTORIES.items(), start=51):
        options = {**BASE, "vocab_size": 256, **more}
        model = make_model(family, options, torch.Generator().manual_seed(seed))
        if family in ("minicpm", "internlm2"):
            (out / name).mkdir(parents=True)
            parameters = {key: p.detach().clone() for key, p in model.named_parameters()}
            save_file({key: t.contiguous() for key, t in names_here(family, parameters, options).items()},
                      out / name / "model.safetensors", metadata={"format": "pt"})
            (out / name / "config.json").write_text(json.dumps(own_config(family, options), indent=2) + "\n")
        else:
            model.save_pretrained(out / name)
            (out / name / "generation_config.json").unlink(missing_ok=True)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                out / name, attn_implementation=ATTENTION.get(family, "sdpa"))
        counted = (labels >= 0).sum()
        plain = (loss_sum(model, tokens, labels) / counted).detach()
        loss = (loss_sum(in_double(model), tokens, labels) / counted).detach()
        check(name, plain, loss, 1e-6)
        losses[name] = loss.item()
        print(name, losses[name])
    (out / "expected.json").write_text(json.dumps({"loss": losses}) + "\n")


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    seed = 0
    for families in (FAMILIES, WINDOWED, LEARNED):
        for family, variants in families.items():
            for name, variant in variants.items():
                seed += 1
                make_golden(family, name, seed, variant)
    make_directories(pathlib.Path(ROOT) / "hf_families")
    print("transformers", transformers.__version__)


if __name__ == "__main__":
    main()
