#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/golden/{mixtral,qwen2_moe,qwen3_moe,olmoe}_* and tests/models/hf_moe: the models of plugins/moe, by transformers.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/moe.py [FAMILY_NAME ...]

As tools/goldens/families.py, with routers in float64, too. The loss of a golden and of its updates is

    cross-entropy + router_aux_loss_coef * B / sequences + router_z_loss_coef * Z / sequences

with B the sum over sequences of transformers' load_balancing_loss_func of that sequence alone, and Z the sum of the mean
over tokens and layers of the squared log-sum-exp of the router's logits, which transformers does not have. `balance` and
`z` are B and Z per sequence. The losses of hf_moe/expected.json are cross-entropies.
"""
import json
import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

import common
import families
from llama import check

ROOT = common.HERE.parent
BASE = dict(vocab_size=40, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, num_experts_per_tok=2, output_router_logits=True,
            router_aux_loss_coef=0.2, router_z_loss_coef=0.05)
MIXTRAL = dict(BASE, rope_theta=1e4)
QWEN = dict(BASE, moe_intermediate_size=10, num_experts=6)
del QWEN["intermediate_size"]
QWEN2 = dict(QWEN, intermediate_size=12, shared_expert_intermediate_size=14)
# The variant "plain" of each family is trained, too.
FAMILIES = {
    "mixtral": dict(plain=dict(MIXTRAL, num_local_experts=4),
                    one=dict(MIXTRAL, num_local_experts=3, num_experts_per_tok=1),
                    window=dict(MIXTRAL, num_local_experts=5, num_experts_per_tok=3, sliding_window=5, head_dim=6,
                                output_router_logits=False)),
    "qwen3_moe": dict(plain=dict(QWEN, norm_topk_prob=True), raw=dict(QWEN, head_dim=6, num_experts_per_tok=3),
                      bias=dict(QWEN, attention_bias=True, num_experts=2, tie_word_embeddings=True)),
    "olmoe": dict(plain=dict(BASE, num_experts=5), all=dict(BASE, num_experts=4, num_experts_per_tok=4),
                  normed=dict(BASE, num_experts=8, norm_topk_prob=True, router_z_loss_coef=0.0)),
}
# Made after those above: layers without experts between others, and Qwen2-MoE.
LATER = {
    "qwen3_moe": dict(dense=dict(QWEN, intermediate_size=20, num_hidden_layers=5, decoder_sparse_step=2, mlp_only_layers=[3],
                                 norm_topk_prob=True)),
    "qwen2_moe": dict(plain=dict(QWEN2), dense=dict(QWEN2, num_hidden_layers=3, mlp_only_layers=[0, 2], head_dim=6,
                                                    qkv_bias=False, norm_topk_prob=True, tie_word_embeddings=True),
                      one=dict(QWEN2, num_experts=4, num_experts_per_tok=1, hidden_act="gelu", output_router_logits=False)),
}
# The directory of a model begins with the name of its family.
DIRECTORIES = {"mixtral": dict(MIXTRAL, num_local_experts=4), "qwen3_moe": dict(QWEN, norm_topk_prob=True),
               "olmoe": dict(BASE, num_experts=5), "qwen2_moe": dict(QWEN2),
               "qwen3_moe_dense": dict(QWEN, intermediate_size=20, num_hidden_layers=3, mlp_only_layers=[1])}
OWN = ("router_z_loss_coef",)  # options that transformers does not have
families.CLASSES |= {"mixtral": "Mixtral", "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe", "olmoe": "Olmoe"}


def experts_of(options):
    return options.get("num_experts", options.get("num_local_experts"))


def routers_in_double(model):
    """Routers whose softmax is in the type of the model."""
    def route(module, always):
        def forward(x):
            logits = F.linear(x.reshape(-1, module.hidden_dim), module.weight)
            top, chosen = torch.topk(torch.softmax(logits, -1), module.top_k, dim=-1)
            if always or module.norm_topk_prob:
                top = top / top.sum(-1, keepdim=True)
            return logits, top, chosen
        return forward

    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.forward = route(module, not hasattr(module, "norm_topk_prob"))
    return model


def terms(model, tokens, labels, options):
    """Sums over sequences: cross-entropy, balance, z."""
    loss = balance = z = 0.0
    for row, label in zip(tokens, labels):
        out = model(input_ids=row[None], output_router_logits=True)
        loss = loss + F.cross_entropy(out.logits[0], label, ignore_index=-100, reduction="sum")
        logits = torch.cat(tuple(out.router_logits))
        probabilities, n = torch.softmax(logits, -1), logits.shape[0]
        chosen = torch.topk(probabilities, options["num_experts_per_tok"], dim=-1).indices
        counts = torch.bincount(chosen.flatten(), minlength=experts_of(options)).to(logits.dtype)
        mine = experts_of(options) * (counts / n * probabilities.mean(0)).sum()
        theirs = load_balancing_loss_func(tuple(x.float() for x in out.router_logits), experts_of(options),
                                          options["num_experts_per_tok"])
        check("balance", theirs.detach(), mine.detach().double(), 1e-5)
        balance = balance + mine
        z = z + torch.logsumexp(logits, -1).square().mean()
    return loss, balance, z


def total(model, tokens, labels, options, counted):
    """The loss, and its parts per label and per sequence."""
    loss, balance, z = terms(model, tokens, labels, options)
    weight = options["router_aux_loss_coef"] if options["output_router_logits"] else 0.0
    loss, balance, z = loss / counted, balance / len(tokens), z / len(tokens)
    return loss + weight * balance + options["router_z_loss_coef"] * z, loss, balance, z


def train(model, tokens, labels, h, options):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": h["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=h["learning_rate"], betas=(h["beta1"], h["beta2"]), eps=h["eps"])
    losses, norms = [], []
    for step_tokens, step_labels in zip(tokens, labels):
        optimizer.zero_grad()
        loss, plain, *_ = total(model, step_tokens, step_labels, options, step_labels.numel())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), h["grad_clip"]).item())
        losses.append(plain.item())
        optimizer.step()
    return losses, norms


def names_here(family, tensors):
    block = ".block_sparse_moe." if family == "mixtral" else ".mlp."
    out = {}
    for name, t in tensors.items():
        name = name.replace(".mlp.", block)
        out[name + ".weight" if name.endswith(("gate_up_proj", "down_proj")) else name] = t
    return out


def make_model(family, options, generator):
    model = families.make_model(family, {key: value for key, value in options.items() if key not in OWN}, generator)
    model.set_experts_implementation("eager")  # the only one in float64
    return model


def make_golden(family, name, seed, options):
    generator = torch.Generator().manual_seed(seed)
    model = make_model(family, options, generator)
    tokens, labels = families.make_batch(options["vocab_size"], generator)
    counted = int((labels != -100).sum())
    tensors = {"tokens": tokens.int(), "labels": labels.int()}
    tensors |= {f"param.{key}": p.detach().clone() for key, p in names_here(family, dict(model.named_parameters())).items()}
    plain_loss = total(model, tokens, labels, options, counted)[0]
    plain_loss.backward()
    plain = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()
    model = routers_in_double(families.in_double(model))
    loss, cross_entropy, balance, z = total(model, tokens, labels, options, counted)
    loss.backward()
    with torch.no_grad():
        tensors["logits"] = model(input_ids=tokens).logits.float()
    check(f"{family} {name}: loss", plain_loss.detach(), loss.detach(), 1e-6)
    for key, p in model.named_parameters():
        check(f"{family} {name}: gradient of {key}", plain[key], p.grad, 2e-4)
    gradients = {key: p.grad.float() for key, p in model.named_parameters()}
    tensors |= {f"grad.{key}": g for key, g in names_here(family, gradients).items()}
    about = {"model": family, "options": options, "loss": cross_entropy.item(), "labels_counted": counted,
             "balance": balance.item(), "z": z.item()}
    if name == "plain":
        series = families.make_series(options["vocab_size"], generator)
        common.add_training(about, tensors, families.TRAINING, series, lambda *run: train(model, *run, options))
    common.save(family, name, about, tensors, common.HERE)
    made = common.HERE / f"{family}_{name}.safetensors"  # its metadata names this script
    save_file(load_file(made), made, metadata={"made_by": "tools/goldens/moe.py"})
    print(f"{family} {name}: loss {about['loss']:.6f}, balance {about['balance']:.4f}, z {about['z']:.4f}",
          "-> %.4f" % about["training"]["losses"][-1] if name == "plain" else "")


def make_directories(out, chosen):
    expected = json.loads((ROOT / "hf" / "expected.json").read_text())
    tokens, labels = torch.tensor(expected["tokens"]), torch.tensor(expected["labels"])
    file = out / "expected.json"
    losses = json.loads(file.read_text())["loss"] if file.exists() else {}
    for seed, (name, options) in enumerate(DIRECTORIES.items(), start=71):
        if name not in chosen:
            continue
        shutil.rmtree(out / name, ignore_errors=True)
        options = {**options, "vocab_size": 256}
        model = make_model(name.removesuffix("_dense"), options, torch.Generator().manual_seed(seed))
        model.save_pretrained(out / name)
        (out / name / "generation_config.json").unlink(missing_ok=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(out / name, experts_implementation="eager")
        counted = (labels >= 0).sum()
        plain = terms(model, tokens, labels, options)[0].detach() / counted
        loss = terms(routers_in_double(families.in_double(model)), tokens, labels, options)[0].detach() / counted
        check(name, plain, loss, 1e-6)
        losses[name] = loss.item()
        print(name, losses[name])
    file.write_text(json.dumps({"loss": losses}) + "\n")


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    made = [(family, name, options) for table in (FAMILIES, LATER) for family, variants in table.items()
            for name, options in variants.items()]
    chosen = sys.argv[1:] or [f"{family}_{name}" for family, name, _ in made] + list(DIRECTORIES)
    for seed, (family, name, options) in enumerate(made, start=201):
        if f"{family}_{name}" in chosen:
            make_golden(family, name, seed, options)
    make_directories(pathlib.Path(ROOT) / "hf_moe", chosen)
    print("transformers", transformers.__version__, file=sys.stderr)


if __name__ == "__main__":
    main()
