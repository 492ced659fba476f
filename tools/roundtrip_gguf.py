#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains small models with the engine, exports them as GGUF, and checks that llama.cpp computes and writes the same.

    pip install xllamacpp                         (a CPU build is enough; it has llama.cpp)
    pip install torch transformers                (if log probabilities shall be compared too)
    python3 tools/roundtrip_gguf.py [BUILD [NAME ...]]   by default build, and all models and tokenizers

1. Models: `engine run` trains each on README.md, `engine ckpt export` writes a directory and a GGUF file in f32. For 11
   prompts, the greedy text of `engine generate` must be that of llama.cpp, and the log probabilities of the next token
   those of transformers within 2e-3, where transformers is installed and has the model.
2. Types: the log probabilities of bf16, f16 and q8_0 files stay within 0.15 of those of f32.
3. Tokenizers: of tests/data/golden, whose strings (ids.json) must get the ids of the libraries from llama.cpp, but for
   those that the notes of the export are about: llama3 has two added tokens with rules for what stands beside them,
   neox normalises to NFC.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import xllamacpp

try:
    import torch
    from transformers import AutoModelForCausalLM, logging
except ImportError:
    torch = None

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
ONLY = sys.argv[2:]
PROMPTS = ["The engine", "engine run", "A plugin is", "```\n", "tokens and ", "## ", "| op |", "1234567890", "caf\u00e9 \u4e2d",
           "  two  spaces", "weights of the model,"]
LLAMA = "num_attention_heads = 4\nhidden_size = 64\nnum_hidden_layers = 2\nmax_position_embeddings = 128\n"
DEEP = LLAMA.replace("_layers = 2", "_layers = 6")
GEMMA = LLAMA.replace("_layers = 2", "_layers = 7") + "intermediate_size = 96\nsliding_window = 16\n"
PHI3 = 'rope_type = "longrope"\nrope_factor = 2.0\nrope_short_factor = [1.0, 1.0, 1.1, 1.3, 1.5, 1.7, 2.0, 2.5]\n' \
       "rope_long_factor = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]\n"
HYBRID = "hidden_size = 64\nnum_hidden_layers = 3\nnum_attention_heads = 4\nmax_position_embeddings = 128\nmamba_n_heads = 4\n"
JAMBA = "hidden_size = 64\nnum_hidden_layers = 4\nnum_attention_heads = 4\nmax_position_embeddings = 128\nintermediate_size = 96\n"
# By default llama.cpp keeps keys and values in f16, and its flash attention rounds them to f16 in any case. Of qwen2_moe
# with 3 experts a token and 243 pieces of a text, log probabilities are then up to 1.8e-3 apart (of other weights 7.9e-3
# were seen), also because a router whose logits are nearly equal takes another expert; in f32 they are within 5e-6.
CACHE, FLASH = xllamacpp.ggml_type.GGML_TYPE_F32, 0
# llama.cpp has no shortest time step, so that it is one that matters nowhere.
NEMOTRON = "hidden_size = 64\nhead_dim = 16\ntime_step_min = 1e-6\n"
NOT_THEIRS = ("minicpm", "internlm2")  # transformers does not have them
MODELS = {
    "llama": ("llama", LLAMA + "intermediate_size = 96"),
    "grouped heads, biases, tied": ("llama", LLAMA + "intermediate_size = 80\nnum_key_value_heads = 2\nhead_dim = 24\n"
                                    "attention_bias = true\nmlp_bias = true\ntie_word_embeddings = true"),
    "rope llama3": ("llama", LLAMA + 'rope_type = "llama3"\nrope_factor = 8.0\nrope_low_freq_factor = 1.0\n'
                    "rope_high_freq_factor = 4.0\nrope_original_max_position_embeddings = 16\nrope_theta = 5000.0"),
    "rope linear": ("llama", LLAMA + 'rope_type = "linear"\nrope_factor = 4.0'),
    "rope yarn": ("llama", LLAMA + 'rope_type = "yarn"\nrope_factor = 4.0\nrope_original_max_position_embeddings = 32'),
    "rope yarn, own factor": ("llama", LLAMA + 'rope_type = "yarn"\nrope_factor = 4.0\nrope_attention_factor = 1.3\n'
                              "rope_beta_fast = 24.0\nrope_original_max_position_embeddings = 32"),
    "qwen2": ("qwen2", LLAMA + "intermediate_size = 96\nnum_key_value_heads = 2"),
    "qwen2 rope yarn": ("qwen2", LLAMA + 'num_key_value_heads = 4\nrope_type = "yarn"\nrope_factor = 4.0\n'
                        "rope_original_max_position_embeddings = 32"),
    "qwen3": ("qwen3", LLAMA + "intermediate_size = 96\nnum_key_value_heads = 2\nhead_dim = 24"),
    "qwen3 tied, rope linear": ("qwen3", LLAMA + "head_dim = 16\ntie_word_embeddings = true\n"
                                'rope_type = "linear"\nrope_factor = 4.0'),
    "qwen3 rope yarn": ("qwen3", LLAMA + 'head_dim = 16\nrope_type = "yarn"\nrope_factor = 4.0\n'
                        "rope_original_max_position_embeddings = 32"),
    "olmo2": ("olmo2", LLAMA + "intermediate_size = 96"),
    "olmo2, grouped heads": ("olmo2", LLAMA + "intermediate_size = 96\nnum_key_value_heads = 2"),
    "phi3": ("phi3", LLAMA + "intermediate_size = 96\nnum_key_value_heads = 2\npartial_rotary_factor = 0.5"),
    "phi3 longrope, short": ("phi3", LLAMA.replace("= 128", "= 512") + PHI3 + "original_max_position_embeddings = 256"),
    # llama.cpp rounds its context of 128 up to 256
    "phi3 longrope, long": ("phi3", LLAMA + PHI3 + "original_max_position_embeddings = 2"),
    "smollm3": ("smollm3", DEEP + "intermediate_size = 96\nnum_key_value_heads = 2"),
    "smollm3 rope yarn": ("smollm3", DEEP + 'tie_word_embeddings = false\nrope_type = "yarn"\nrope_factor = 4.0\n'
                          "rope_original_max_position_embeddings = 32\nno_rope_layers = [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]"),
    "gpt_neox": ("gpt_neox", LLAMA + 'intermediate_size = 96\nhidden_act = "gelu_new"'),
    "gpt_neox, gelu, in series": ("gpt_neox", LLAMA + "use_parallel_residual = false\nrotary_pct = 1.0"),
    "minicpm": ("minicpm", LLAMA + "num_key_value_heads = 2\nscale_emb = 3.0\nscale_depth = 1.4\ndim_model_base = 32"),
    "internlm2": ("internlm2", LLAMA + "intermediate_size = 96\nnum_key_value_heads = 2"),
    "internlm2, rope linear": ("internlm2", LLAMA + 'rope_type = "linear"\nrope_factor = 4.0'),
    "mistral": ("mistral", LLAMA + "head_dim = 24\nsliding_window = 64"),
    "ministral": ("ministral", LLAMA + 'head_dim = 16\nlayer_types = ["full_attention", "sliding_attention"]\nsliding_window = 60'),
    "gemma2": ("gemma2", GEMMA + "attn_logit_softcapping = 5.0\nfinal_logit_softcapping = 6.0"),
    "gemma2 without caps": ("gemma2", GEMMA.replace("_layers = 7", "_layers = 2") + 'rope_type = "linear"\nrope_factor = 4.0\n'
                            'layer_types = ["sliding_attention", "full_attention"]'),
    "gemma3": ("gemma3", GEMMA + "rope_local_base_freq = 500.0"),
    "gemma3 rope linear": ("gemma3", GEMMA + 'rope_type = "linear"\nrope_factor = 4.0\nsliding_window_pattern = 6'),
    "mixtral": ("mixtral", LLAMA + "num_key_value_heads = 2\nnum_local_experts = 5"),
    "mixtral with a window": ("mixtral", LLAMA + "num_key_value_heads = 4\nsliding_window = 64\nnum_experts_per_tok = 3"),
    "qwen2_moe": ("qwen2_moe", LLAMA + "num_key_value_heads = 2\nnum_experts_per_tok = 3"),
    "qwen3_moe": ("qwen3_moe", LLAMA + "num_key_value_heads = 2\nhead_dim = 24"),
    "olmoe": ("olmoe", LLAMA + 'rope_type = "linear"\nrope_factor = 2.0'),
    "granite": ("granite", LLAMA + "intermediate_size = 96\nnum_key_value_heads = 2\nembedding_multiplier = 3.0\n"
                "attention_multiplier = 0.2\nresidual_multiplier = 0.5\nlogits_scaling = 2.0"),
    "mamba": ("mamba", "hidden_size = 64\nnum_hidden_layers = 2"),
    "mamba, own head": ("mamba", "hidden_size = 64\nnum_hidden_layers = 2\nstate_size = 8\ntime_step_rank = 3\n"
                        "tie_word_embeddings = false"),
    "falcon_mamba": ("falcon_mamba", "hidden_size = 64\nnum_hidden_layers = 2"),
    "falcon_mamba, other epsilons": ("falcon_mamba", "hidden_size = 64\nnum_hidden_layers = 2\nstate_size = 8\ntime_step_rank = 3\n"
                                     "tie_word_embeddings = false\nlayer_norm_epsilon = 1e-3\nmixer_rms_eps = 1e-1"),
    "mamba2": ("mamba2", "hidden_size = 64\nnum_hidden_layers = 2\nnum_heads = 8\nhead_dim = 16\nn_groups = 2\nstate_size = 16"),
    "mamba2, own head": ("mamba2", "hidden_size = 64\nnum_hidden_layers = 2\nnum_heads = 4\nhead_dim = 32\n"
                         "tie_word_embeddings = false"),
    "granitemoehybrid": ("granitemoehybrid", HYBRID + 'layer_types = ["mamba", "attention", "mamba"]'),
    "granitemoehybrid, rope": ("granitemoehybrid", HYBRID + 'layer_types = ["attention", "mamba", "attention"]\n'
                               'position_embedding_type = "rope"\nmamba_n_groups = 2\ntie_word_embeddings = false'),
    "bamba": ("bamba", HYBRID + "intermediate_size = 96\nattn_layer_indices = [1.0]\nmamba_n_groups = 2"),
    "falcon_h1": ("falcon_h1", HYBRID + "mamba_d_ssm = 128"),
    "falcon_h1 with factors": ("falcon_h1", HYBRID + "intermediate_size = 96\nhead_dim = 24\nmamba_n_groups = 2\nmamba_rms_norm = true\n"
                               "mamba_norm_before_gate = false\nembedding_multiplier = 3.0\nlm_head_multiplier = 0.7\n"
                               "key_multiplier = 1.3\nattention_in_multiplier = 0.8\nattention_out_multiplier = 1.2\n"
                               "ssm_in_multiplier = 1.1\nssm_out_multiplier = 0.6\nssm_multipliers = [0.5, 1.5, 0.8, 1.2, 0.9]\n"
                               "mlp_multipliers = [1.4, 0.6]"),
    "granitemoehybrid with experts": ("granitemoehybrid", HYBRID + 'layer_types = ["mamba", "attention", "mamba"]\n'
                                      "num_local_experts = 6\nnum_experts_per_tok = 3\nintermediate_size = 48"),
    "jamba": ("jamba", JAMBA + "num_experts_per_tok = 3"),
    "jamba without experts": ("jamba", JAMBA + "num_experts = 1\noutput_router_logits = false\ntie_word_embeddings = true\nmamba_dt_rank = 3"),
    "nemotron_h with experts": ("nemotron_h", NEMOTRON + 'hybrid_override_pattern = "ME*E"\n'
                                "n_routed_experts = 6\nnum_experts_per_tok = 3\nmoe_intermediate_size = 48\n"
                                "moe_shared_expert_intermediate_size = 40\nrouted_scaling_factor = 2.5"),
    "nemotron_h with groups, latent": ("nemotron_h", NEMOTRON + 'layers_block_type = ["moe", "mamba", "attention"]\n'
                                       'hybrid_override_pattern = "EM*"\n'
                                       "n_routed_experts = 6\nn_group = 3\ntopk_group = 2\nmoe_latent_size = 32\n"
                                       "moe_intermediate_size = 48\nmoe_shared_expert_intermediate_size = 40\n"
                                       "norm_topk_prob = false"),
    "nemotron_h": ("nemotron_h", NEMOTRON + 'hybrid_override_pattern = "M-*M"\nintermediate_size = 96'),
    "gpt2": ("gpt2", LLAMA),
    "gpt2, own width and head": ("gpt2", LLAMA + "n_inner = 96\ntie_word_embeddings = false\nlayer_norm_epsilon = 1e-3"),
}
NOTED = {"llama3": 2, "neox": 16}
CONFIG = """[model]
plugin = "{plugin}"
preset = "tiny"
vocab_size = {rows}
{keys}
[data]
paths = ["{root}/README.md", "{root}/docs/*.md"]
{data}
[train]
steps = {steps}
sequence_length = 64
micro_batch = 8
[optimizer]
learning_rate = 5e-3
[device]
threads = 1
"""


def engine(*words):
    done = subprocess.run([BUILD / "tools" / "engine", *map(str, words)], capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"engine {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr.decode()}")
    return done.stdout


class Llama:
    """llama.cpp with a file, asked over HTTP on this machine."""

    def __init__(self, file):
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.n_parallel, params.n_gpu_layers, params.warmup = 128, 1, 0, False
        params.verbosity, params.ctx_shift, params.cache_ram_mib = -1, False, 0
        params.cache_type_k = params.cache_type_v = CACHE
        params.flash_attn_type = FLASH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self.server = xllamacpp.Server(params)

    def ask(self, path, **body):
        request = urllib.request.Request(self.server.listening_address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def ids(self, text, special):
        return self.ask("/tokenize", content=text, add_special=False, parse_special=special)["tokens"]

    def text(self, prompt, tokens):
        return self.ask("/completion", prompt=prompt, n_predict=tokens, temperature=0, cache_prompt=False)["content"]

    def logprobs(self, ids, rows):
        """Log probabilities of the next token, by id. A space is forced, since a part of a character has none."""
        told = self.ask("/completion", prompt=ids, n_predict=1, temperature=0, n_probs=rows, cache_prompt=False,
                        logit_bias=[[32, 1e4]])
        return {one["id"]: one["logprob"] for one in told["completion_probabilities"][0]["top_logprobs"]}


def train(work, plugin, keys, rows=256, steps=60, data=""):
    (work / "c.toml").write_text(CONFIG.format(plugin=plugin, keys=keys, rows=rows, steps=steps, data=data, root=ROOT))
    engine("run", work / "c.toml", "--out", work / "run")


def difference(llama, theirs, ids):
    """The largest difference of the log probabilities of the next token, of tokens that are at all likely."""
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    return max(abs(expected[token].item() - value) for token, value in llama.logprobs(ids, 256).items() if value > -30)


def models(work, failed):
    for name, (plugin, keys) in MODELS.items():
        if ONLY and name not in ONLY:
            continue
        subprocess.run(["rm", "-rf", work / "run", work / "hf", work / "m.gguf"], check=True)
        train(work, plugin, keys)
        engine("ckpt", "export", work / "run", "--to", work / "m.gguf")
        engine("ckpt", "export", work / "run", "--to", work / "hf")
        llama, theirs = Llama(work / "m.gguf"), None
        if torch and plugin not in NOT_THEIRS:
            theirs = AutoModelForCausalLM.from_pretrained(work / "hf", dtype=torch.float32, pad_token_id=0).eval()
        apart, same = 0.0, 0
        for prompt in PROMPTS:
            if theirs:
                apart = max(apart, difference(llama, theirs, list(prompt.encode())))
            own = engine("generate", work / "run", prompt, "--temperature", "0", "--tokens", "32")
            same += own.decode(errors="replace").strip("\n") == llama.text(prompt, 32).strip("\n")
        good = same == len(PROMPTS) and apart < 2e-3
        failed.append(not good)
        print(f"{name:28} {'ok' if good else 'FAILED'}: {same} of {len(PROMPTS)} texts equal"
              + (f", log probabilities within {apart:.1e}" if theirs else ""), flush=True)
        if name == "llama":
            types(work, llama, failed)


def types(work, exact, failed):
    for kind in ("bf16", "f16", "q8_0"):
        engine("ckpt", "export", work / "run", "--to", work / f"{kind}.gguf", "--type", kind)
        llama, apart = Llama(work / f"{kind}.gguf"), 0.0
        for prompt in PROMPTS:
            ids = list(prompt.encode())
            expected = exact.logprobs(ids, 256)
            for token, value in llama.logprobs(ids, 256).items():
                if value > -10:
                    apart = max(apart, abs(expected[token] - value))
        good = 0 < apart < 0.15
        failed.append(not good)
        print(f"{kind:28} {'ok' if good else 'FAILED'}: log probabilities within {apart:.1e} of those of f32", flush=True)


def tokenizers(work, failed):
    golden = ROOT / "tests" / "data" / "golden"
    told = json.loads((golden / "ids.json").read_text())
    for name in ("gpt2", "llama3", "neox", "llama", "unigram"):
        if ONLY and f"tokenizer {name}" not in ONLY:
            continue
        subprocess.run(["rm", "-rf", work / "run", work / "t.gguf"], check=True)
        train(work, "llama", LLAMA, rows=768, steps=1, data=f'tokenizer = "{golden / name}"')
        engine("ckpt", "export", work / "run", "--to", work / "t.gguf")
        llama, other, all_strings = Llama(work / "t.gguf"), [], 0
        for text, ids in zip(told["strings"], told["ids"][name]):
            raw = bytes.fromhex(text)
            try:
                string = raw.decode()
            except UnicodeDecodeError:
                continue
            if ids is None or "\0" in string:
                continue
            all_strings += 1
            # sentencepiece never finds its control tokens in a text
            if llama.ids(string, name not in ("llama", "unigram")) != [int(word) for word in ids.split()]:
                other.append(string)
        good = len(other) == NOTED.get(name, 0)
        failed.append(not good)
        print(f"{'tokenizer ' + name:28} {'ok' if good else 'FAILED'}: {all_strings - len(other)} of {all_strings} strings get the same ids"
              + (f"; not {other}" if other and not good else ""), flush=True)


def main():
    if torch:
        logging.set_verbosity_error()
        torch.set_num_threads(1)
    failed = []
    with tempfile.TemporaryDirectory() as place:
        work = pathlib.Path(place).resolve()
        models(work, failed)
        tokenizers(work, failed)
    sys.exit(any(failed))


main()
