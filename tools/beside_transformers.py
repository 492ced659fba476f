#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every family beside transformers, on tiny configurations that are drawn: logits, gradients and AdamW steps in fp32.

    pip install numpy torch transformers safetensors      (CPU builds are enough)
    PYTHONPATH=tools/python python3 tools/beside_transformers.py [FAMILY ...] [--configurations 3] [--steps 20] [--seed 1]

Of each family so many configurations are drawn. transformers makes a model with random weights and writes its directory,
which the engine reads. Both train it in fp32 on the same sequences by AdamW with clipping and weight decay. Differences
are printed beside the limits: of the logits, relative to the largest; of each gradient of the first step, by norms; of
the loss of each step, relative. The gradient of every tensor is compared, where transformers joins several of them part
by part, and the norm of all. minicpm and internlm2 are left out, as transformers has no code for them."""
import argparse
import pathlib
import random
import sys
import tempfile

import engine
import numpy
import torch
import torch.nn.functional as F
import transformers

LOGITS, GRADIENT, LOSS = 1e-5, 2e-4, 2e-5
ROWS, LENGTH, VOCABULARY = 2, 24, 48
RATE, DECAY, CLIP = 1e-3, 0.1, 1.0
CONFIG = """[model]
from = "{model}"
[train]
steps = {steps}
micro_batch = {rows}
sequence_length = {length}
grad_clip = {clip}
[optimizer]
plugin = "adamw"
learning_rate = {rate}
beta1 = 0.9
beta2 = 0.95
eps = 1e-8
weight_decay = {decay}
[schedule]
kind = "constant"
[precision]
plugin = "fp32"
"""


def sizes(d):
    """Sizes of a decoder: heads of 4 to 8 channels, one or more of them for each key and value."""
    heads = d.choice([2, 4])
    kv = d.choice([n for n in (1, 2, 4) if heads % n == 0])
    return dict(vocab_size=VOCABULARY, hidden_size=heads * d.choice([4, 6, 8]), intermediate_size=d.choice([12, 20, 28]),
                num_hidden_layers=d.choice([2, 3]), num_attention_heads=heads, num_key_value_heads=kv,
                max_position_embeddings=64)


def turned(d, **more):
    return dict(rope_parameters={"rope_type": "default", "rope_theta": d.choice([100.0, 1e4, 1e6]), **more})


def layers(d, n, *kinds):
    """A kind for each of n layers, of which every kind has one."""
    drawn = list(kinds) + [d.choice(kinds) for _ in range(n - len(kinds))]
    d.shuffle(drawn)
    return drawn


def windows(d, o):
    o["num_hidden_layers"] = max(2, o["num_hidden_layers"])
    return layers(d, o["num_hidden_layers"], "full_attention", "sliding_attention")


def experts(d, key="num_experts", least=1):
    n = d.choice([3, 4, 6])
    return {key: n, "num_experts_per_tok": d.randint(least, n - 1), "output_router_logits": False}


def mixer(d):
    """The mixer of Mamba-2 in a hybrid, whose width is twice the hidden size."""
    return dict(mamba_d_state=d.choice([4, 6]), mamba_chunk_size=d.choice([4, 8]), mamba_d_conv=d.choice([3, 4]),
                mamba_n_groups=d.choice([1, 2]), mamba_n_heads=4)


def llama(d):
    return sizes(d) | turned(d) | dict(attention_bias=d.random() < 0.5, mlp_bias=d.random() < 0.5,
                                       tie_word_embeddings=d.random() < 0.5)


def tied(d, **more):
    return sizes(d) | turned(d) | dict(tie_word_embeddings=d.random() < 0.5, **more)


def gemma(d):
    o = sizes(d) | dict(head_dim=d.choice([4, 6]), query_pre_attn_scalar=d.choice([5, 8]), sliding_window=d.choice([3, 7]))
    return o | dict(layer_types=windows(d, o))


def gemma3(d):
    rope = {"rope_type": "default", "rope_theta": d.choice([1e4, 1e6])}
    return gemma(d) | dict(rope_parameters={"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}})


def state_space(d, **more):
    return dict(vocab_size=VOCABULARY, hidden_size=d.choice([12, 16]), num_hidden_layers=2, state_size=d.choice([4, 6]),
                conv_kernel=d.choice([3, 4]), use_bias=d.random() < 0.5, use_conv_bias=d.random() < 0.5, **more)


def hybrid(d, key, *kinds):
    o = sizes(d) | mixer(d)
    o["num_hidden_layers"] = 3
    o["mamba_d_head"] = o["hidden_size"] // 2  # four heads make twice the hidden size
    return o | {key: layers(d, 3, *kinds)}


def bamba(d):
    o = hybrid(d, "kinds", "m", "a")
    kinds = o.pop("kinds")
    return o | turned(d, partial_rotary_factor=0.5) | dict(attn_layer_indices=[k for k, kind in enumerate(kinds) if kind == "a"])


def granite_hybrid(d):
    o = hybrid(d, "layer_types", "mamba", "attention") | granite_factors(d)
    o |= dict(shared_intermediate_size=o["intermediate_size"], num_local_experts=0)
    if d.random() < 0.7:
        o |= experts(d, "num_local_experts")
    return o | (dict(position_embedding_type="rope") | turned(d) if d.random() < 0.5 else dict(position_embedding_type="nope"))


def granite_factors(d):
    return dict(embedding_multiplier=d.uniform(1, 8), attention_multiplier=d.uniform(0.1, 0.5), residual_multiplier=d.uniform(0.2, 1),
                logits_scaling=d.uniform(1, 4))


def nemotron(d):
    o = sizes(d)
    return dict(vocab_size=VOCABULARY, hidden_size=o["hidden_size"], num_attention_heads=o["num_attention_heads"],
                num_key_value_heads=o["num_key_value_heads"], head_dim=d.choice([4, 6]), max_position_embeddings=64,
                intermediate_size=20, mamba_num_heads=4, mamba_head_dim=d.choice([4, 6]), ssm_state_size=d.choice([4, 6]),
                n_groups=d.choice([1, 2]), chunk_size=d.choice([4, 8]), n_routed_experts=6, num_experts_per_tok=d.choice([2, 3]),
                moe_intermediate_size=10, moe_shared_expert_intermediate_size=14, routed_scaling_factor=d.uniform(1, 3),
                norm_topk_prob=d.random() < 0.5, hybrid_override_pattern="".join(layers(d, 5, "M", "*", "-", "E")))


def falcon_h1(d):
    o = hybrid(d, "kinds", "m") | turned(d)
    del o["kinds"]
    o |= dict(mamba_d_ssm=4 * o["mamba_d_head"], mamba_rms_norm=o["mamba_n_groups"] == 1)
    return o | dict(key_multiplier=d.uniform(0.5, 1.5), ssm_out_multiplier=d.uniform(0.5, 1.5), lm_head_multiplier=d.uniform(0.5, 1.5))


def jamba(d):
    period = d.choice([2, 3])
    return sizes(d) | experts(d) | dict(num_hidden_layers=4, attn_layer_period=period, attn_layer_offset=d.randrange(period),
                                        expert_layer_period=2, expert_layer_offset=d.randrange(2), mamba_d_state=d.choice([4, 6]),
                                        mamba_dt_rank=3, mamba_proj_bias=d.random() < 0.5, use_mamba_kernels=False)


def mamba2(d):
    heads = d.choice([4, 8])
    return state_space(d) | dict(num_heads=heads, head_dim=6, hidden_size=heads * 3, n_groups=d.choice([1, 2, 4]), chunk_size=d.choice([4, 8]))


def opt(d):
    o = sizes(d)
    return dict(vocab_size=VOCABULARY, hidden_size=o["hidden_size"], word_embed_proj_dim=o["hidden_size"], ffn_dim=d.choice([12, 24]),
                num_hidden_layers=2, num_attention_heads=o["num_attention_heads"], max_position_embeddings=64, dropout=0.0)


def gpt2(d):
    o = sizes(d)
    return dict(vocab_size=VOCABULARY, n_embd=o["hidden_size"], n_layer=o["num_hidden_layers"], n_head=o["num_attention_heads"],
                n_positions=64, n_inner=d.choice([None, o["intermediate_size"]]), activation_function=d.choice(["gelu_new", "gelu", "relu"]),
                layer_norm_epsilon=d.choice([1e-5, 1e-3]), scale_attn_weights=d.random() < 0.7, tie_word_embeddings=d.random() < 0.5,
                reorder_and_upcast_attn=d.random() < 0.5, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)


def moe(d, **more):
    """The share of one expert alone is 1 if shares are normed, and the gradient of its router is rounding."""
    normed = d.random() < 0.5
    return tied(d) | experts(d, least=1 + normed) | dict(norm_topk_prob=normed, **more)


FAMILIES = {
    "llama": ("Llama", llama),
    "gpt2": ("GPT2", gpt2),
    "qwen2": ("Qwen2", tied),
    "qwen3": ("Qwen3", lambda d: tied(d, head_dim=d.choice([4, 6]), attention_bias=d.random() < 0.5)),
    "olmo2": ("Olmo2", tied),
    "phi3": ("Phi3", lambda d: tied(d, sliding_window=d.choice([None, 5]))),
    "smollm3": ("SmolLM3", lambda d: tied(d, no_rope_layer_interval=2)),
    "granite": ("Granite", lambda d: tied(d, **granite_factors(d))),
    "gpt_neox": ("GPTNeoX", lambda d: {k: v for k, v in sizes(d).items() if k != "num_key_value_heads"} | turned(
        d, partial_rotary_factor=d.choice([0.5, 1.0])) | dict(use_parallel_residual=d.random() < 0.5)),
    "mistral": ("Mistral", lambda d: tied(d, sliding_window=d.choice([3, 7]))),
    "ministral": ("Ministral", lambda d: (o := tied(d, sliding_window=5, head_dim=d.choice([4, 6]))) | dict(layer_types=windows(d, o))),
    "gemma2": ("Gemma2", lambda d: gemma(d) | dict(attn_logit_softcapping=d.choice([None, 2.0]), final_logit_softcapping=d.choice([None, 3.0]))),
    "gemma3": ("Gemma3Text", gemma3),
    "mixtral": ("Mixtral", lambda d: tied(d) | experts(d, "num_local_experts")),
    "qwen2_moe": ("Qwen2Moe", lambda d: moe(d, moe_intermediate_size=10, shared_expert_intermediate_size=14)),
    "qwen3_moe": ("Qwen3Moe", lambda d: moe(d, moe_intermediate_size=10, head_dim=d.choice([4, 6]))),
    "olmoe": ("Olmoe", moe),
    "opt": ("OPT", opt),
    "mamba": ("Mamba", lambda d: state_space(d, time_step_rank=3, use_mambapy=False)),
    "mamba2": ("Mamba2", mamba2),
    "falcon_mamba": ("FalconMamba", lambda d: state_space(d, time_step_rank=3)),
    "bamba": ("Bamba", bamba),
    "granitemoehybrid": ("GraniteMoeHybrid", granite_hybrid),
    "nemotron_h": ("NemotronH", nemotron),
    "falcon_h1": ("FalconH1", falcon_h1),
    "jamba": ("Jamba", jamba),
}


# Families whose tensors have other names here: a part of a name of transformers, and what stands there in the names of
# the tensors here that lie in it one after the other.
NAMES = {
    "gpt2": [("c_attn", ["q", "k", "v"])],
    "gpt_neox": [("lm_head", ["embed_out"])],
    "phi3": [("qkv_proj", ["q_proj", "k_proj", "v_proj"]), ("gate_up_proj", ["gate_proj", "up_proj"])],
    "mixtral": [("mlp.", ["block_sparse_moe."])],
    "granitemoehybrid": [("shared_mlp.input_linear", ["shared_mlp.gate_proj", "shared_mlp.up_proj"]), ("router", ["router.layer"]),
                         ("experts.gate_up_proj", ["input_linear"]), ("experts.down_proj", ["output_linear"])],
    "nemotron_h": [("model.", ["backbone."])],
}


def make_model(family, options):
    """Weights wide enough that attention is far from uniform, and that every bias and state matters."""
    config = getattr(transformers, FAMILIES[family][0] + "Config")(**options, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    attention = dict(attn_implementation="eager") if family == "gemma2" else {}  # the only one that caps scores
    model = transformers.AutoModelForCausalLM.from_config(config, **attention).eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape)
            if "norm" in name or ".ln_" in name:
                p.copy_((0.0 if family.startswith("gemma") or name.endswith("bias") else 1.0) + 0.2 * noise)
            elif name.endswith(("A_log", "dt_bias", "dt_proj.bias")):
                p.add_(0.2 * noise)
            elif name.endswith(".D"):
                p.copy_(1.0 + 0.5 * noise)
            else:
                p.copy_(0.3 * noise)
    return model


def by_transformers(model, batches):
    """(logits and gradients of the first step, losses, norms)."""
    decays = lambda name, p: p.dim() > 1 and not name.endswith("A_log")
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": [p for n, p in named if decays(n, p)], "weight_decay": DECAY},
                                   {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0}],
                                  lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    losses, norms, first = [], [], None
    for tokens, labels in batches:
        optimizer.zero_grad()
        logits = model(input_ids=tokens, use_cache=False).logits
        loss = F.cross_entropy(logits.double().flatten(0, 1), labels.flatten())
        loss.backward()
        if first is None:
            first = logits.detach().numpy().copy(), {n: p.grad.numpy().copy() for n, p in named}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    return *first, losses, norms


def by_engine(folder, batches):
    text = CONFIG.format(model=folder, steps=len(batches), rows=ROWS, length=LENGTH, clip=CLIP, rate=RATE, decay=DECAY)
    with engine.open(text=text, files=False, gradients=True, logits=True) as run:
        logits = numpy.from_dlpack(run.logits(batches[0][0].int())).copy()
        losses, norms, gradients = [], [], None
        for tokens, labels in batches:
            metrics = run.step(tokens=tokens.int(), labels=labels.int())
            losses.append(metrics.loss), norms.append(metrics.grad_norm)
            if gradients is None:
                gradients = {t.name: numpy.from_dlpack(t).copy() for t in run.tensors("gradient")}
    return logits, gradients, losses, norms


def parts(family, name, g, ours):
    """(ours, theirs) of each tensor here that lies in a tensor of transformers, in the shape of the latter."""
    theirs, here = next(((a, b) for a, b in NAMES.get(family, []) if a in name), (name, [name]))
    names = [name.replace(theirs, one, 1) for one in here]
    mine = [ours[one if one in ours else one + ".weight"] for one in names]
    if family == "gpt2" and g.ndim == 2 and ".h." in name:
        g = g.T  # matrices of a layer are (in, out) there
    if len(mine) == 1:
        return [(mine[0].reshape(g.shape), g)]
    return list(zip(mine, numpy.split(g, numpy.cumsum([len(one) for one in mine[:-1]]))))


def compare(family, ours, theirs):
    """(logits, worst gradient, worst loss, gradients compared)."""
    logits = abs(ours[0] - theirs[0]).max() / abs(theirs[0]).max()
    worst, compared = abs(ours[3][0] / theirs[3][0] - 1), 0
    for name, g in theirs[1].items():
        for mine, other in parts(family, name, g, ours[1]):
            assert mine.shape == other.shape, (name, mine.shape, other.shape)
            compared += 1
            apart = numpy.linalg.norm(mine - other)
            worst = max(worst, apart / max(numpy.linalg.norm(other), 1e-3 * theirs[3][0]))  # some are of rounding alone
    assert compared == len(ours[1]), (compared, ours[1].keys())
    losses = max(abs(a / b - 1) for a, b in zip(ours[2], theirs[2]))
    return logits, worst, losses, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", choices=[*FAMILIES, []])
    parser.add_argument("--configurations", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed = 0
    for family in options.families or FAMILIES:
        for k in range(options.configurations):
            dice = random.Random(f"{options.seed} {family} {k}")
            torch.manual_seed(dice.randrange(2 ** 31))
            drawn = FAMILIES[family][1](dice)
            starts = torch.randint(0, VOCABULARY, (options.steps, ROWS, 1))
            series = (starts + 7 * torch.arange(LENGTH + 1)) % VOCABULARY
            batches = [(s[:, :-1].contiguous(), s[:, 1:].contiguous()) for s in series]
            with tempfile.TemporaryDirectory() as folder:
                model = make_model(family, drawn)
                model.save_pretrained(folder)
                try:
                    got = compare(family, by_engine(pathlib.Path(folder), batches), by_transformers(model, batches))
                except engine.Error as why:
                    print(f"{family:16} {k + 1}  FAILED: {why}\n{drawn}", flush=True)
                    failed += 1
                    continue
            logits, gradient, loss, compared = got
            good = logits < LOGITS and gradient < GRADIENT and loss < LOSS
            failed += not good
            print(f"{family:16} {k + 1}  {'ok' if good else 'FAILED'}: logits {logits:.1e}, gradients {gradient:.1e} of {compared} tensors, "
                  f"{options.steps} losses {loss:.1e}" + ("" if good else f"\n{drawn}"), flush=True)
    print(f"limits: logits {LOGITS:.0e}, gradients {GRADIENT:.0e}, losses {LOSS:.0e}; {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
