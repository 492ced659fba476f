#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/models/hf: tiny models as Hugging Face transformers saves them, and their losses.

    pip install torch transformers safetensors      (CPU builds are enough)
    python tools/goldens/hf_weights.py [OUT_DIR]

single      fp32, one file, grouped heads, llama3 rotary scaling
sharded     the same weights in several files with an index
bf16, f16   the same weights rounded, in the spelling of that element type
tied        a tied head, which is not in the file
tied_head   the same with the head in the file
old         config.json as transformers 4.30 wrote it: rope_scaling with `type`, torch_dtype, inv_freq tensors
opt         pre-norm; opt_bare: post-norm with projections, tensors without the `model.` prefix
mamba       as saved; mamba_wide: expand 1.5; mamba_ssm: the spelling of that package, 250 ids padded to 256
expected.json   tokens and labels (2, 16), and per directory the mean loss, computed in fp32 from the stored weights;
                a prompt, and per directory the 40 likeliest next bytes, one after the other
"""

import json
import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers import MambaConfig, MambaForCausalLM, OPTConfig, OPTForCausalLM

BASE = dict(vocab_size=256, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)


OPT = dict(vocab_size=256, hidden_size=16, ffn_dim=24, num_hidden_layers=2, num_attention_heads=2,
           max_position_embeddings=64, pad_token_id=None)
MAMBA = dict(vocab_size=256, hidden_size=16, state_size=8, num_hidden_layers=2)


def make(seed, kind=LlamaForCausalLM, config=LlamaConfig, base=BASE, **options):
    torch.manual_seed(seed)
    model = kind(config(**base, **options)).eval()
    if kind is MambaForCausalLM:
        return model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3) if parameter.dim() > 1 else parameter.normal_(1.0, 0.1)
    return model


def loss(model, tokens, labels):
    with torch.no_grad():
        logits = model.float()(input_ids=tokens).logits
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-100).item()


def greedy(model, prompt):
    ids = torch.tensor([list(prompt.encode())])
    model.generation_config.eos_token_id = None
    out = model.float().generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=40)
    return out[0, ids.shape[1]:].tolist()


def main():
    here = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "hf"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    shutil.rmtree(out, ignore_errors=True)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(256, (2, 16), generator=generator)
    labels = torch.randint(256, (2, 16), generator=generator)
    labels[0, 3] = labels[1, 15] = -100

    make(1, rope_parameters=LLAMA3).save_pretrained(out / "single")
    make(1, rope_parameters=LLAMA3).save_pretrained(out / "sharded", max_shard_size="20KB")
    make(1, rope_parameters=LLAMA3).bfloat16().save_pretrained(out / "bf16")
    make(1, rope_parameters=LLAMA3).half().save_pretrained(out / "f16")
    make(2, tie_word_embeddings=True).save_pretrained(out / "tied")
    shutil.copytree(out / "tied", out / "tied_head")
    head = load_file(out / "tied_head" / "model.safetensors")
    head["lm_head.weight"] = head["model.embed_tokens.weight"].clone()
    save_file(head, out / "tied_head" / "model.safetensors", metadata={"format": "pt"})
    make(3, rope_parameters=dict(rope_type="linear", rope_theta=20000.0, factor=4.0)).save_pretrained(out / "old")
    config = json.loads((out / "old" / "config.json").read_text())
    for key in ("rope_parameters", "dtype", "head_dim"):
        config.pop(key, None)
    config |= dict(rope_scaling=dict(type="linear", factor=4.0), rope_theta=20000, torch_dtype="float32",
                   transformers_version="4.30.0", pretraining_tp=1)
    (out / "old" / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    old = load_file(out / "old" / "model.safetensors")
    old |= {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(2)}
    save_file(old, out / "old" / "model.safetensors", metadata={"format": "pt"})

    make(4, OPTForCausalLM, OPTConfig, OPT, dropout=0.1).save_pretrained(out / "opt")
    make(5, OPTForCausalLM, OPTConfig, OPT, do_layer_norm_before=False,
         word_embed_proj_dim=12).save_pretrained(out / "opt_bare")
    bare = load_file(out / "opt_bare" / "model.safetensors")
    bare = {name.removeprefix("model."): value for name, value in bare.items()}
    losses = {"opt_bare": loss(AutoModelForCausalLM.from_pretrained(out / "opt_bare"), tokens, labels)}
    save_file(bare, out / "opt_bare" / "model.safetensors", metadata={"format": "pt"})

    make(6, MambaForCausalLM, MambaConfig, MAMBA, use_bias=True).save_pretrained(out / "mamba")
    make(7, MambaForCausalLM, MambaConfig, MAMBA, intermediate_size=24).save_pretrained(out / "mamba_wide")
    make(8, MambaForCausalLM, MambaConfig, MAMBA).save_pretrained(out / "mamba_ssm")
    losses["mamba_ssm"] = loss(AutoModelForCausalLM.from_pretrained(out / "mamba_ssm"), tokens, labels)
    (out / "mamba_ssm" / "config.json").write_text(json.dumps(dict(
        d_model=16, n_layer=2, vocab_size=250, ssm_cfg=dict(d_state=8), rms_norm=True, residual_in_fp32=True,
        fused_add_norm=True, pad_vocab_size_multiple=8), indent=4) + "\n")
    ssm = load_file(out / "mamba_ssm" / "model.safetensors")
    ssm["backbone.embedding.weight"] = ssm.pop("backbone.embeddings.weight")
    ssm["lm_head.weight"] = ssm["backbone.embedding.weight"].clone()
    save_file(ssm, out / "mamba_ssm" / "model.safetensors", metadata={"format": "pt"})

    expected = {"tokens": tokens.tolist(), "labels": labels.tolist(), "loss": losses, "prompt": "Once upon a time",
                "greedy": {}}
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        (folder / "generation_config.json").unlink(missing_ok=True)
        if folder.name in losses:
            continue
        model = AutoModelForCausalLM.from_pretrained(folder)
        expected["loss"][folder.name] = loss(model, tokens, labels)
        expected["greedy"][folder.name] = greedy(model, expected["prompt"])
        print(folder.name, expected["loss"][folder.name], expected["greedy"][folder.name])
    (out / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
