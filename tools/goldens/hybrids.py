#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/golden/{falcon_mamba,bamba,granitemoehybrid,nemotron_h,falcon_h1,jamba}_* and tests/models/hf_hybrids.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/hybrids.py [FAMILY | FAMILY_experts | FAMILY_more ...]

As tools/goldens/families.py. In float64 the mixers are computed token by token, by the formulas below; the unmodified
model of transformers in float32 must agree with the result, or the script stops. hf_hybrids/FAMILY are directories as
transformers saves them; nemotron_h_pattern has the spelling of NVIDIA's files. With experts whose routers have terms, the
loss of a golden is that of tools/goldens/moe.py.
"""
import json
import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

import common
import families
import mamba
from llama import check

ROOT = common.HERE.parent
TRAINING = dict(families.TRAINING, learning_rate=1e-3)
SIZES = dict(vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64)
MIXER = dict(mamba_n_heads=4, mamba_d_head=8, mamba_d_state=6, mamba_chunk_size=5)
LLAMA = dict(SIZES, **MIXER, intermediate_size=20)
MUP = dict(embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5)
GRANITE = dict(SIZES, **MIXER, **MUP, shared_intermediate_size=20)
NEMOTRON = dict(vocab_size=40, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
                max_position_embeddings=64, intermediate_size=20, mamba_num_heads=4, mamba_head_dim=6, ssm_state_size=6,
                n_groups=2, chunk_size=5)
FACTORS = dict(embedding_multiplier=3.0, lm_head_multiplier=0.7, key_multiplier=1.3, attention_in_multiplier=0.8,
               attention_out_multiplier=1.2, ssm_in_multiplier=1.1, ssm_out_multiplier=0.6,
               ssm_multipliers=[0.5, 1.5, 0.8, 1.2, 0.9], mlp_multipliers=[1.4, 0.6])
FALCON = dict(LLAMA, num_hidden_layers=2, mamba_d_ssm=24, mamba_d_head=6)
# The variants "plain" of each family, and all with experts, are trained, too.
FAMILIES = {
    "falcon_mamba": dict(plain=dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, state_size=6, time_step_rank=3),
                         bias=dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, state_size=5, expand=3,
                                   conv_kernel=3, use_bias=True, use_conv_bias=False, mixer_rms_eps=1e-2,
                                   tie_word_embeddings=False)),
    "bamba": dict(plain=dict(LLAMA, attn_layer_indices=[1], mamba_n_groups=2),
                  bias=dict(LLAMA, attn_layer_indices=[0, 2], num_attention_heads=2, num_key_value_heads=1, attention_bias=True,
                            mlp_bias=True, mamba_proj_bias=True, mamba_conv_bias=False, mamba_d_conv=3, tie_word_embeddings=True, rope_theta=100.0,
                            time_step_limit=[0.2, 1.5])),
    "granitemoehybrid": dict(plain=dict(GRANITE, layer_types=["mamba", "attention", "mamba"], tie_word_embeddings=True),
                             rope=dict(GRANITE, position_embedding_type="rope", attention_bias=True, mamba_n_groups=2,
                                       layer_types=["full_attention", "linear_attention", "full_attention"])),
    "nemotron_h": dict(plain=dict(NEMOTRON, hybrid_override_pattern="M-*M"),
                       bias=dict(NEMOTRON, hybrid_override_pattern="*-M", use_bias=True, mlp_bias=True, n_groups=1,
                                 use_conv_bias=False, time_step_min=0.3, time_step_max=0.5)),
    "falcon_h1": dict(plain=dict(FALCON, **FACTORS, mamba_n_groups=2),
                      norm=dict(FALCON, mamba_rms_norm=True, attention_bias=True, head_dim=6),
                      gated=dict(FALCON, **FACTORS, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=2,
                                 projectors_bias=True, mamba_proj_bias=True, mlp_bias=True)),
}
EXPERTS = dict(n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=10, moe_shared_expert_intermediate_size=14)
# Made after those above.
LATER = {
    "granitemoehybrid": dict(experts=dict(GRANITE, layer_types=["mamba", "attention", "mamba"], num_local_experts=5,
                                          num_experts_per_tok=2, intermediate_size=10, output_router_logits=True,
                                          router_aux_loss_coef=0.2, router_z_loss_coef=0.05)),
    "nemotron_h": dict(experts=dict(NEMOTRON, **EXPERTS, hybrid_override_pattern="ME*E-", routed_scaling_factor=2.5),
                       latent=dict(NEMOTRON, **EXPERTS, hybrid_override_pattern="EM*", mlp_bias=True, moe_latent_size=8,
                                   n_group=3, topk_group=2, norm_topk_prob=False)),
}
JAMBA = dict(SIZES, num_hidden_layers=4, intermediate_size=20, attn_layer_period=4, attn_layer_offset=1, num_experts=5,
             num_experts_per_tok=2, mamba_d_state=6, mamba_dt_rank=3)
NEWER = {
    "granitemoehybrid": dict(rope_experts=dict(GRANITE, layer_types=["attention", "mamba", "attention"], num_local_experts=6,
                                               num_experts_per_tok=3, intermediate_size=8, attention_bias=True,
                                               position_embedding_type="rope", rope_theta=100.0),
                             one_expert=dict(GRANITE, layer_types=["mamba", "mamba", "attention"], num_local_experts=4,
                                             num_experts_per_tok=1, intermediate_size=12, mamba_proj_bias=True,
                                             mamba_n_groups=2, tie_word_embeddings=True, router_z_loss_coef=0.1)),
    "nemotron_h": dict(all_experts=dict(NEMOTRON, **dict(EXPERTS, n_routed_experts=4, num_experts_per_tok=3),
                                        hybrid_override_pattern="E-M*E", use_bias=True, norm_topk_prob=False,
                                        routed_scaling_factor=1.7)),
    "jamba": dict(plain=dict(JAMBA, output_router_logits=True, router_aux_loss_coef=0.2, router_z_loss_coef=0.05),
                  bias=dict(JAMBA, mamba_proj_bias=True, mamba_conv_bias=False, mamba_expand=3, num_experts_per_tok=3,
                            expert_layer_period=3, expert_layer_offset=0, rms_norm_eps=1e-3, tie_word_embeddings=True),
                  dense=dict(JAMBA, num_experts=1, num_experts_per_tok=1, attn_layer_period=2, attn_layer_offset=0,
                             mamba_d_conv=3)),
}
TABLES = (("{}", FAMILIES), ("{}_experts", LATER), ("{}_more", NEWER))
OWN = ("router_z_loss_coef",)  # options that transformers does not have
families.CLASSES |= {"falcon_mamba": "FalconMamba", "bamba": "Bamba", "granitemoehybrid": "GraniteMoeHybrid",
                     "nemotron_h": "NemotronH", "falcon_h1": "FalconH1", "jamba": "Jamba"}


def make_model(family, options, generator):
    options = {key: value for key, value in options.items() if key not in OWN}
    if family in ("falcon_mamba", "nemotron_h", "jamba"):  # without rotary embedding
        config = getattr(transformers, families.CLASSES[family] + "Config")(
            **options, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    else:
        if family == "granitemoehybrid":
            options.setdefault("num_local_experts", 0)
        config = families.config_of(family, options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.set_experts_implementation("eager")  # the only one in float64
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name:
                p.copy_(1.0 + 0.2 * noise)
            elif name.endswith("A_log"):
                p.copy_(0.5 * noise)
            elif name.endswith(("dt_bias", "dt_proj.bias")):
                p.copy_(noise - 1.0)  # time steps of 0.1 to 2: what is forgotten matters
            elif name.endswith(".D"):
                p.copy_(1.0 + 0.5 * noise)
            else:
                p.copy_(noise * 0.3)
    return model


def gated_norm(norm, y, gate):
    groups = getattr(norm, "n_groups", None) or y.shape[-1] // norm.group_size
    before = getattr(norm, "norm_before_gate", False)
    if not before:
        y = y * F.silu(gate)
    parts = y.unflatten(-1, (groups, -1))
    y = norm.weight * (parts * torch.rsqrt((parts * parts).mean(-1, keepdim=True) + norm.variance_epsilon)).flatten(-2)
    return y * F.silu(gate) if before else y


def mixer(m, x):
    """A mixer of Mamba-2 token by token, in the type of its parameters."""
    inner, heads, groups, states = m.intermediate_size, m.num_heads, m.n_groups, m.ssm_state_size
    columns = m.in_proj(x * getattr(m, "ssm_in_multiplier", 1.0))
    if hasattr(m, "mup_vector"):
        columns = columns * m.mup_vector.to(x.dtype)
    z, xbc, dt = columns.split([inner, m.conv_dim, heads], dim=-1)
    taps = m.conv1d.weight.shape[-1]
    xbc = F.silu(F.conv1d(F.pad(xbc.transpose(1, 2), (taps - 1, 0)), m.conv1d.weight, m.conv1d.bias,
                          groups=m.conv_dim).transpose(1, 2))
    u, b, c = xbc.split([inner, groups * states, groups * states], dim=-1)
    u = u.unflatten(-1, (heads, -1))
    b, c = (t.unflatten(-1, (groups, states)).repeat_interleave(heads // groups, dim=2) for t in (b, c))
    step = F.softplus(dt + m.dt_bias).clamp(*m.time_step_limit)
    decay = torch.exp(-step * torch.exp(m.A_log))
    h, out = torch.zeros(x.shape[0], heads, states, u.shape[-1], dtype=x.dtype), []
    for t in range(x.shape[1]):
        h = decay[:, t, :, None, None] * h + (step[:, t, :, None] * b[:, t])[..., None] * u[:, t, :, None]
        out.append((c[:, t, :, None] @ h)[:, :, 0] + m.D[:, None] * u[:, t])
    y = torch.stack(out, 1).flatten(2)
    return m.out_proj(y * F.silu(z) if isinstance(m.norm, torch.nn.Identity) else gated_norm(m.norm, y, z))


def normed_mixer(m, x):
    """FalconMambaMixer and JambaMambaMixer token by token: that of mamba.py, where norms follow x_proj."""
    sizes = [m.time_step_rank, m.ssm_state_size, m.ssm_state_size]
    project = m.x_proj
    if hasattr(m, "dt_layernorm"):
        norms = [(norm.weight, norm.variance_epsilon) for norm in (m.dt_layernorm, m.b_layernorm, m.c_layernorm)]
    else:
        norms = [(1.0, m.rms_eps)] * 3

    def normed(u):
        parts = project(u).split(sizes, dim=-1)
        return torch.cat([weight * p * torch.rsqrt((p * p).mean(-1, keepdim=True) + eps)
                          for p, (weight, eps) in zip(parts, norms)], dim=-1)

    class Changed:
        x_proj = staticmethod(normed)

        def __getattr__(self, name):
            return getattr(m, name)

    return mamba.mixer(Changed(), x)


def route_granite(m, x):
    logits = F.linear(x, m.weight)
    top, chosen = logits.topk(m.top_k, dim=-1)
    return logits, torch.softmax(top, dim=-1), chosen


def route_jamba(m, x):
    logits = F.linear(x, m.weight)
    shares, chosen = torch.softmax(logits, dim=-1).topk(m.top_k, dim=-1)
    return logits, shares, chosen


def route_nemotron(m, x):
    logits = F.linear(x.reshape(-1, m.hidden_dim), m.weight)
    scores = logits.sigmoid()
    value = scores + m.e_score_correction_bias
    groups = value.unflatten(-1, (m.num_group, -1))
    best = groups.topk(2, dim=-1)[0].sum(-1).topk(m.topk_group, dim=-1)[1]
    left = torch.full(groups.shape[:2], float("-inf"), dtype=x.dtype).scatter(1, best, 0.0)
    chosen = (groups + left[..., None]).flatten(1).topk(m.top_k, dim=-1)[1]
    weights = scores.gather(1, chosen)
    if m.norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    return logits, weights * m.routed_scaling_factor, chosen


def in_double(model):
    model = families.in_double(model)
    for module in model.modules():
        kind = type(module).__name__
        if kind in ("FalconMambaMixer", "JambaMambaMixer"):
            module.forward = lambda hidden_states, m=module, **_: normed_mixer(m, hidden_states)
        elif kind.endswith(("Mixer", "MambaLayer")):
            module.forward = lambda hidden_states, m=module, **_: mixer(m, hidden_states)
        elif kind == "GraniteMoeHybridTopKRouter":
            module.forward = lambda x, m=module: route_granite(m, x)
        elif kind == "JambaTopKRouter":
            module.forward = lambda x, m=module: route_jamba(m, x)
        elif kind == "NemotronHTopkRouter":
            module.forward = lambda x, m=module: route_nemotron(m, x)
        elif kind == "FalconMambaBlock":
            module.residual_in_fp32 = False
    return model


def logits_of(model, tokens):
    """Logits in the type of the model, which some classes narrow."""
    config = model.config
    factor = getattr(config, "lm_head_multiplier", 1.0) / getattr(config, "logits_scaling", 1.0)
    return model.lm_head(model.base_model(input_ids=tokens, use_cache=False)[0]) * factor


def loss_sum(model, tokens, labels):
    return F.cross_entropy(logits_of(model, tokens).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


def experts_with_terms(options):
    experts = options.get("num_local_experts", options.get("num_experts", 0))
    return experts if experts > 1 else 0


def terms(model, tokens, options):
    """Balance and z of moe.py per sequence, and what they add to the loss."""
    experts = experts_with_terms(options)
    if not experts:
        return 0.0, 0.0, 0.0
    balance = z = 0.0
    for row in tokens:
        logits = torch.cat(model.base_model(input_ids=row[None], output_router_logits=True, use_cache=False).router_logits)
        shares, chosen = torch.softmax(logits, -1), logits.topk(options["num_experts_per_tok"], dim=-1).indices
        counts = torch.bincount(chosen.flatten(), minlength=experts).to(logits.dtype)
        balance = balance + experts * (counts / len(logits) * shares.mean(0)).sum()
        z = z + torch.logsumexp(logits, -1).square().mean()
    balance, z = balance / len(tokens), z / len(tokens)
    weight = options["router_aux_loss_coef"] if options.get("output_router_logits") else 0.0
    return weight * balance + options.get("router_z_loss_coef", 0.0) * z, balance, z


def train(model, tokens, labels, h, options):
    """AdamW as mamba_ssm means it: no decay on vectors and on A_log."""
    named = list(model.named_parameters())
    decays = [p.dim() > 1 and not name.endswith("A_log") for name, p in named]
    optimizer = torch.optim.AdamW(
        [{"params": [p for (_, p), yes in zip(named, decays) if yes], "weight_decay": h["weight_decay"]},
         {"params": [p for (_, p), yes in zip(named, decays) if not yes], "weight_decay": 0.0}],
        lr=h["learning_rate"], betas=(h["beta1"], h["beta2"]), eps=h["eps"])
    losses, norms = [], []
    for step_tokens, step_labels in zip(tokens, labels):
        optimizer.zero_grad()
        loss = loss_sum(model, step_tokens, step_labels) / step_labels.numel()
        (loss + terms(model, step_tokens, options)[0]).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), h["grad_clip"]).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms


def names_here(family, tensors):
    out = {}
    for name, t in tensors.items():
        if name.endswith("shared_mlp.input_linear.weight"):
            for part, value in zip(("gate", "up"), t.chunk(2)):
                out[name.replace("input_linear", f"{part}_proj")] = value
        elif "block_sparse_moe" in name:
            for theirs, ours in (("experts.gate_up_proj", "input_linear.weight"), ("router.weight", "router.layer.weight"),
                                 ("experts.down_proj", "output_linear.weight")):
                name = name.replace(theirs, ours)
            out[name] = t
        else:
            name = name.replace("model.", "backbone.", 1) if family == "nemotron_h" else name
            out[name + ".weight" if ".experts." in name else name] = t
    return out


def make_golden(family, name, seed, options):
    generator = torch.Generator().manual_seed(seed)
    model = make_model(family, options, generator)
    tokens, labels = families.make_batch(options["vocab_size"], generator)
    counted = int((labels != -100).sum())
    tensors = {"tokens": tokens.int(), "labels": labels.int()}
    parameters = {key: p.detach().clone() for key, p in model.named_parameters()}
    parameters |= {key: b.clone() for key, b in model.named_buffers() if key.endswith("e_score_correction_bias")}
    tensors |= {f"param.{key}": p for key, p in names_here(family, parameters).items()}
    logits = model(input_ids=tokens).logits
    plain_loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    (plain_loss + terms(model, tokens, options)[0]).backward()
    plain = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()
    model = in_double(model)
    total = loss_sum(model, tokens, labels)
    added, balance, z = terms(model, tokens, options)
    (total / counted + added).backward()
    with torch.no_grad():
        exact = logits_of(model, tokens)
    assert exact.dtype == torch.float64
    tensors["logits"] = exact.float()
    check(f"{family} {name}: logits", logits.detach(), exact, 1e-5)
    check(f"{family} {name}: loss", plain_loss.detach(), total.detach() / counted, 1e-6)
    for key, p in model.named_parameters():
        check(f"{family} {name}: gradient of {key}", plain[key], p.grad, 1e-4)
    gradients = {key: p.grad.float() for key, p in model.named_parameters()}
    tensors |= {f"grad.{key}": g for key, g in names_here(family, gradients).items()}
    about = {"model": family, "options": options, "loss": total.item() / counted, "loss_sum": total.item(),
             "labels_counted": counted}
    if experts_with_terms(options):
        about |= {"balance": balance.item(), "z": z.item()}
    if name == "plain" or any(options in table[family].values() for table in (LATER, NEWER) if family in table):
        series = families.make_series(options["vocab_size"], generator)
        common.add_training(about, tensors, TRAINING, series, lambda *run: train(model, *run, options))
    common.save(family, name, about, tensors, common.HERE)
    made = common.HERE / f"{family}_{name}.safetensors"  # its metadata names this script
    save_file(load_file(made), made, metadata={"made_by": "tools/goldens/hybrids.py"})
    print(f"{family} {name}: loss {about['loss']:.6f}", "-> %.4f" % about["training"]["losses"][-1] if "training" in about else "")


def as_nvidia(folder):
    """Gives the directory the spelling of NVIDIA's files."""
    config = json.loads((folder / "config.json").read_text())
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
    config["hybrid_override_pattern"] = "".join(letters[kind] for kind in config.pop("layers_block_type"))
    config |= dict(num_hidden_layers=len(config["hybrid_override_pattern"]), expand=2, rms_norm_eps=1e-5,
                   time_step_rank=256, attention_head_dim=config.pop("head_dim"))
    (folder / "config.json").write_text(json.dumps(config, indent=2).replace('{\n      "__float__": "Infinity"\n    }', "Infinity") + "\n")


def make_directories(out, chosen):
    expected = json.loads((ROOT / "hf" / "expected.json").read_text())
    tokens, labels = torch.tensor(expected["tokens"]), torch.tensor(expected["labels"])
    file = out / "expected.json"
    losses = json.loads(file.read_text())["loss"] if file.exists() else {}
    kinds = [(family, "plain") for family in FAMILIES] + [(family, "experts") for family in LATER] + [("jamba", "plain")]
    for seed, (family, kind) in enumerate(kinds, start=91):
        directory = family if kind == "plain" else f"{family}_{kind}"
        if (f"{family}_more" if family == "jamba" else directory) not in chosen:
            continue
        for name in (family, "nemotron_h_pattern") if directory == "nemotron_h" else (directory,):
            shutil.rmtree(out / name, ignore_errors=True)
            options = next(table[family][kind] for _, table in TABLES if kind in table.get(family, ()))
            model = make_model(family, {**options, "vocab_size": 256}, torch.Generator().manual_seed(seed))
            model.save_pretrained(out / name)
            (out / name / "generation_config.json").unlink(missing_ok=True)
            model = transformers.AutoModelForCausalLM.from_pretrained(out / name, experts_implementation="eager")
            counted = (labels >= 0).sum()
            plain = (loss_sum(model, tokens, labels) / counted).detach()
            loss = (loss_sum(in_double(model), tokens, labels) / counted).detach()
            check(name, plain, loss, 1e-6)
            losses[name] = loss.item()
            print(name, losses[name], sorted(load_file(out / name / "model.safetensors"))[0])
            if name == "nemotron_h_pattern":
                as_nvidia(out / name)
    file.write_text(json.dumps({"loss": losses}) + "\n")


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    chosen = sys.argv[1:] or [key.format(family) for key, table in TABLES for family in table]
    made = [(key, family, name, options) for key, table in TABLES
            for family, variants in table.items() for name, options in variants.items()]
    for seed, (key, family, name, options) in enumerate(made, start=301):
        if key.format(family) in chosen:
            make_golden(family, name, seed, options)
    make_directories(pathlib.Path(ROOT) / "hf_hybrids", chosen)
    print("transformers", transformers.__version__)


if __name__ == "__main__":
    main()
