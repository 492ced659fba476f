// SPDX-License-Identifier: Apache-2.0
// engine ckpt export --to FILE.gguf of families whose tensors or keys differ from LLaMA's: each beside the directory
// that the same run exports for transformers. llama.cpp itself: tools/roundtrip_gguf.py.
#include <cmath>
#include <functional>

#include "from.hpp"
#include "tests/session/gguf/reader.hpp"

using namespace cli;

namespace {

using Floats = std::vector<float>;

// One run, as a GGUF file and as a directory for transformers.
struct Exported {
  gguf::File file;
  std::map<std::string, std::string> weights;
  std::string notes;
  Floats theirs(const std::string& name) const { return file.tensors.at(name).floats(); }
  Floats own(const std::string& name) const {  // type and shape stand before the bytes
    const std::string& all = weights.at(name);
    const std::string bytes = all.substr(all.find(']') + 1);
    Floats out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
};

constexpr const char* small =
    "hidden_size = 16\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
    "max_position_embeddings = 64\nintermediate_size = 24\n";

void write_config(const Scratch& scratch, const std::string& plugin, const std::string& keys) {
  scratch.write("c.toml",
                "[model]\nplugin = '" + plugin + "'\npreset = 'tiny'\n" + keys +
                    "[data]\npaths = ['text.txt']\n[train]\nsteps = 2\nsequence_length = 16\nmicro_batch = 2\n"
                    "[optimizer]\nlearning_rate = 0.1\n[device]\nthreads = 1\n");
}

Exported exported(const Scratch& scratch, const std::string& plugin, const std::string& keys, const Args& more = {}) {
  write_config(scratch, plugin, keys);
  const std::string run = "run-" + plugin;
  good(scratch, {"run", "c.toml", "--out", run});
  good(scratch, {"ckpt", "export", run, "--to", run + "-hf"});
  Args args = {"ckpt", "export", run, "--to", run + ".gguf"};
  args.insert(args.end(), more.begin(), more.end());
  const Result out = good(scratch, args);
  return {gguf::read_gguf(read(scratch / (run + ".gguf"))), stored(scratch / (run + "-hf")), out.err};
}

// Rows of `columns` elements, in this order.
Floats rows(const Floats& all, size_t columns, const std::vector<size_t>& order) {
  Floats out;
  for (const size_t row : order)
    out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(row * columns),
               all.begin() + static_cast<std::ptrdiff_t>((row + 1) * columns));
  return out;
}

std::string not_possible(const Scratch& scratch, const std::string& plugin, const std::string& keys) {
  write_config(scratch, plugin, keys);
  const std::string out = good(scratch, {"check", "c.toml"}).out;
  CHECK(has(out, "not possible"));
  return out;
}

}  // namespace

TEST_CASE("rows of groups of heads as GGUF: internlm2 and gpt_neox", "[cli][gguf]") {
  Scratch scratch;
  const Exported one = exported(scratch, "internlm2", std::string(small) + "num_key_value_heads = 2\nbias = false\n");
  CHECK(one.file.text("general.architecture") == "internlm2");
  CHECK(one.file.number("internlm2.attention.head_count_kv") == 2);
  // Two groups of two query heads, a key head and a value head, of four rows each; rows of a head alternate.
  const Floats all = one.own("model.layers.1.attention.wqkv.weight");
  CHECK(one.theirs("blk.1.attn_q.weight") == rows(all, 16, {0, 2, 1, 3, 4, 6, 5, 7, 16, 18, 17, 19, 20, 22, 21, 23}));
  CHECK(one.theirs("blk.1.attn_k.weight") == rows(all, 16, {8, 10, 9, 11, 24, 26, 25, 27}));
  CHECK(one.theirs("blk.1.attn_v.weight") == rows(all, 16, {12, 13, 14, 15, 28, 29, 30, 31}));
  CHECK(one.file.tensors.at("blk.1.attn_k.weight").dims == std::vector<uint64_t>{16, 8});
  CHECK(one.theirs("blk.1.ffn_up.weight") == one.own("model.layers.1.feed_forward.w3.weight"));

  const Exported two = exported(scratch, "gpt_neox", std::string(small) + "rotary_pct = 0.5\n");
  CHECK(two.file.number("gptneox.rope.dimension_count") == 2);
  CHECK(two.file.flag("gptneox.use_parallel_residual"));
  std::vector<size_t> order;
  for (size_t part = 0; part < 3; ++part)
    for (size_t head = 0; head < 4; ++head)
      for (size_t row = 0; row < 4; ++row) order.push_back(head * 12 + part * 4 + row);
  const std::string map = "gpt_neox.layers.0.attention.query_key_value.";
  CHECK(two.theirs("blk.0.attn_qkv.weight") == rows(two.own(map + "weight"), 16, order));
  CHECK(two.theirs("blk.0.attn_qkv.bias") == rows(two.own(map + "bias"), 1, order));
  CHECK(has(two.notes, "tanh form"));
}

TEST_CASE("joined matrices and factors of rotary embedding as GGUF: phi3", "[cli][gguf]") {
  Scratch scratch;
  const Exported one =
      exported(scratch, "phi3",
               std::string(small) +
                   "partial_rotary_factor = 0.5\nsliding_window = 48\noriginal_max_position_embeddings = 32\n"
                   "rope_type = 'longrope'\nrope_short_factor = [1.5]\nrope_long_factor = [2.5]\n");
  CHECK(one.theirs("blk.1.attn_qkv.weight") == one.own("model.layers.1.self_attn.qkv_proj.weight"));
  CHECK(one.theirs("blk.1.ffn_up.weight") == one.own("model.layers.1.mlp.gate_up_proj.weight"));
  CHECK(one.file.number("phi3.context_length") == 48);
  CHECK(one.file.number("phi3.rope.dimension_count") == 2);
  CHECK(one.file.number("phi3.rope.scaling.original_context_length") == 32);
  CHECK(one.file.real("phi3.rope.scaling.attn_factor") == Approx(std::sqrt(1 + std::log(2.0) / std::log(32.0))));
  CHECK(one.theirs("rope_factors_short.weight") == Floats{1.5f});
  CHECK(one.theirs("rope_factors_long.weight") == Floats{2.5f});
  CHECK(has(one.notes, "no window of attention"));
  CHECK(has(one.notes, "rope_long_factor"));
}

TEST_CASE("norms, windows and caps as GGUF: gemma2 and gemma3", "[cli][gguf]") {
  Scratch scratch;
  const std::string keys = std::string(small) + "head_dim = 4\nquery_pre_attn_scalar = 4\nsliding_window = 8\n";
  const Exported one = exported(scratch, "gemma2", keys);
  for (const auto& [own, name] : std::map<std::string, std::string>{{"input_layernorm", "attn_norm"},
                                                                    {"post_attention_layernorm", "post_attention_norm"},
                                                                    {"pre_feedforward_layernorm", "ffn_norm"},
                                                                    {"post_feedforward_layernorm", "post_ffw_norm"}}) {
    Floats added = one.own("model.layers.1." + own + ".weight");
    for (float& x : added) x += 1.0f;
    CHECK(one.theirs("blk.1." + name + ".weight") == added);
  }
  CHECK(one.file.number("gemma2.attention.sliding_window") == 8);
  CHECK(one.file.real("gemma2.attn_logit_softcapping") == 50.0f);  // of the preset
  CHECK(one.file.real("gemma2.final_logit_softcapping") == 30.0f);
  CHECK_FALSE(one.file.tensors.count("output.weight"));
  const Exported two = exported(scratch, "gemma3", keys + "rope_local_base_freq = 500.0\n");
  CHECK(two.file.real("gemma3.rope.freq_base_swa") == 500.0f);
  CHECK(two.file.real("gemma3.rope.freq_base") == 1000000.0f);
  Floats added = two.own("model.layers.0.self_attn.k_norm.weight");
  for (float& x : added) x += 1.0f;
  CHECK(two.theirs("blk.0.attn_k_norm.weight") == added);
}

TEST_CASE("stacked experts as GGUF: mixtral, qwen2_moe, qwen3_moe and olmoe", "[cli][gguf]") {
  Scratch scratch;
  const Exported one = exported(scratch, "mixtral", std::string(small) + "num_local_experts = 3\n");
  CHECK(one.file.text("general.architecture") == "llama");
  CHECK(one.file.number("llama.expert_count") == 3);
  CHECK(one.file.number("llama.expert_used_count") == 2);
  for (const auto& [name, map] : std::map<std::string, std::string>{{"gate", "w1"}, {"up", "w3"}, {"down", "w2"}}) {
    Floats all;
    for (int e = 0; e < 3; ++e) {
      const Floats own =
          one.own("model.layers.1.block_sparse_moe.experts." + std::to_string(e) + "." + map + ".weight");
      all.insert(all.end(), own.begin(), own.end());
    }
    CHECK(one.theirs("blk.1.ffn_" + name + "_exps.weight") == all);
  }
  CHECK(one.file.tensors.at("blk.0.ffn_up_exps.weight").dims == std::vector<uint64_t>{16, 24, 3});
  const std::string ffn = "moe_intermediate_size = 32\n";
  const std::string keys =
      "hidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 4\nmax_position_embeddings = 64\n";
  const Exported two = exported(scratch, "qwen3_moe", keys + ffn, {"--type", "q8_0"});
  CHECK(two.file.number("qwen3moe.expert_feed_forward_length") == 32);
  CHECK(two.file.tensors.at("blk.0.ffn_gate_exps.weight").type == 8);
  CHECK(two.file.tensors.at("blk.0.ffn_gate_inp.weight").type == 0);
  CHECK(two.theirs("blk.0.ffn_gate_inp.weight") == two.own("model.layers.0.mlp.gate.weight"));
  CHECK(has(not_possible(scratch, "qwen3_moe", keys + ffn + "mlp_only_layers = [1]\n"), "mlp_only_layers"));
  const Exported three = exported(scratch, "qwen2_moe", keys + ffn + "shared_expert_intermediate_size = 64\n");
  CHECK(three.file.number("qwen2moe.expert_shared_feed_forward_length") == 64);
  CHECK(three.theirs("blk.1.ffn_up_shexp.weight") == three.own("model.layers.1.mlp.shared_expert.up_proj.weight"));
  CHECK(three.theirs("blk.1.ffn_gate_inp_shexp.weight") == three.own("model.layers.1.mlp.shared_expert_gate.weight"));
  CHECK(three.theirs("blk.1.attn_q.bias") == three.own("model.layers.1.self_attn.q_proj.bias"));
  CHECK(has(not_possible(scratch, "olmoe", keys + "norm_topk_prob = true\n"), "norm_topk_prob"));
  CHECK(has(not_possible(scratch, "olmoe", keys + "num_key_value_heads = 2\n"), "head_count_kv"));
}

TEST_CASE("vectors that become matrices, and computed factors, as GGUF: mamba2 and minicpm", "[cli][gguf]") {
  Scratch scratch;
  const Exported one =
      exported(scratch, "mamba2",
               "hidden_size = 16\nnum_hidden_layers = 2\nnum_heads = 8\nhead_dim = 4\nn_groups = 2\nstate_size = 8\n",
               {"--type", "f16"});
  CHECK(one.file.number("mamba2.ssm.group_count") == 2);
  CHECK(one.file.number("mamba2.ssm.time_step_rank") == 8);
  CHECK(one.file.tensors.at("blk.0.ssm_a").dims == std::vector<uint64_t>{1, 8});
  CHECK(one.file.tensors.at("blk.0.ssm_d").dims == std::vector<uint64_t>{1, 8});
  CHECK(one.file.tensors.at("blk.0.ssm_norm.weight").dims == std::vector<uint64_t>{16, 2});
  CHECK(one.file.tensors.at("blk.0.ssm_norm.weight").type == 0);
  CHECK(one.theirs("blk.1.ssm_norm.weight") == one.own("backbone.layers.1.mixer.norm.weight"));
  CHECK(one.theirs("blk.1.ssm_dt.bias") == one.own("backbone.layers.1.mixer.dt_bias"));
  const Floats own = one.own("backbone.layers.1.mixer.A_log"), theirs = one.theirs("blk.1.ssm_a");
  for (size_t k = 0; k < own.size(); ++k) CHECK(theirs[k] == Approx(-std::exp(own[k])).epsilon(1e-6));
  const Exported two =
      exported(scratch, "minicpm", std::string(small) + "scale_emb = 3.0\nscale_depth = 1.4\ndim_model_base = 6\n");
  CHECK(two.file.real("minicpm.embedding_scale") == 3.0f);
  CHECK(two.file.real("minicpm.residual_scale") == Approx(1.4 / std::sqrt(2.0)));
  CHECK(two.file.real("minicpm.logit_scale") == Approx(16.0 / 6.0));
}

TEST_CASE("values for each layer as GGUF: granitemoehybrid, nemotron_h, bamba and falcon_h1", "[cli][gguf]") {
  using Layers = std::vector<int32_t>;
  Scratch scratch;
  const std::string keys =
      "hidden_size = 16\nnum_attention_heads = 4\nmax_position_embeddings = 64\nnum_key_value_heads = 2\n";
  const std::string mixer = "mamba_n_heads = 4\nmamba_d_state = 8\nnum_hidden_layers = 3\n";
  const Exported one = exported(
      scratch, "granitemoehybrid",
      keys + mixer + "shared_intermediate_size = 24\nlayer_types = ['mamba', 'attention', 'linear_attention']\n");
  CHECK(one.file.text("general.architecture") == "granitehybrid");
  CHECK(one.file.get<Layers>("granitehybrid.attention.head_count_kv") == Layers{0, 2, 0});
  CHECK_FALSE(one.file.flag("granitehybrid.rope.scaling.finetuned"));
  CHECK(one.file.tensors.at("blk.0.ssm_norm.weight").dims == std::vector<uint64_t>{32, 1});
  CHECK(one.theirs("blk.2.ssm_in.weight") == one.own("model.layers.2.mamba.in_proj.weight"));
  CHECK(one.theirs("blk.1.ffn_down.weight") == one.own("model.layers.1.shared_mlp.output_linear.weight"));
  const Exported two =
      exported(scratch, "nemotron_h",
               keys +
                   "hybrid_override_pattern = 'M-*'\nhead_dim = 4\nintermediate_size = 24\nmamba_num_heads = 4\n"
                   "mamba_head_dim = 8\nssm_state_size = 8\n");
  CHECK(two.file.number("nemotron_h.block_count") == 3);
  CHECK(two.file.get<Layers>("nemotron_h.attention.head_count_kv") == Layers{0, 0, 2});
  CHECK(two.file.get<Layers>("nemotron_h.feed_forward_length") == Layers{0, 24, 0});
  CHECK(two.theirs("blk.1.ffn_up.weight") == two.own("backbone.layers.1.mixer.up_proj.weight"));
  CHECK(has(two.notes, "time_step_min"));
  CHECK(has(not_possible(scratch, "falcon_h1", "embedding_multiplier = 0.5\ntie_word_embeddings = true\n"),
            "only with embedding_multiplier = 1.0, and this model has 0.5"));
  const Exported three =
      exported(scratch, "bamba", keys + mixer + "intermediate_size = 24\nattn_layer_indices = [1]\n");
  CHECK(three.file.get<Layers>("granitehybrid.attention.head_count_kv") == Layers{0, 2, 0});
  CHECK(three.file.number("granitehybrid.rope.dimension_count") == 2);
  CHECK(three.file.flag("granitehybrid.rope.scaling.finetuned"));
}

TEST_CASE("experts of hybrids as GGUF: granitemoehybrid, nemotron_h and jamba", "[cli][gguf]") {
  using Layers = std::vector<int32_t>;
  Scratch scratch;
  const std::string keys =
      "hidden_size = 16\nnum_attention_heads = 4\nmax_position_embeddings = 64\nnum_key_value_heads = 2\n";
  const Exported one =
      exported(scratch, "granitemoehybrid",
               keys +
                   "mamba_n_heads = 4\nmamba_d_state = 8\nnum_hidden_layers = 2\nshared_intermediate_size = 24\n"
                   "layer_types = ['mamba', 'attention']\nnum_local_experts = 3\nintermediate_size = 12\n");
  CHECK(one.file.text("general.architecture") == "granitehybrid");
  CHECK(one.file.number("granitehybrid.expert_count") == 3);
  CHECK(one.file.number("granitehybrid.expert_used_count") == 2);
  CHECK(one.file.number("granitehybrid.feed_forward_length") == 12);
  CHECK(one.file.number("granitehybrid.expert_shared_feed_forward_length") == 24);
  const std::string block = "model.layers.1.block_sparse_moe.";
  CHECK(one.theirs("blk.1.ffn_down_shexp.weight") == one.own("model.layers.1.shared_mlp.output_linear.weight"));
  CHECK(one.theirs("blk.1.ffn_down_exps.weight") == one.own(block + "output_linear.weight"));
  CHECK(one.theirs("blk.1.ffn_gate_inp.weight") == one.own(block + "router.layer.weight"));
  const Floats both = one.own(block + "input_linear.weight");  // of each expert gate, then up
  std::vector<size_t> gates;
  for (size_t row = 0; row < 36; ++row) gates.push_back(row / 12 * 24 + row % 12);
  CHECK(one.theirs("blk.1.ffn_gate_exps.weight") == rows(both, 16, gates));

  const std::string mixers =
      "head_dim = 4\nmamba_num_heads = 4\nmamba_head_dim = 8\nssm_state_size = 8\nn_groups = 2\n";
  const std::string experts =
      "n_routed_experts = 4\nmoe_intermediate_size = 12\nmoe_shared_expert_intermediate_size = 20\n";
  const Exported two = exported(scratch, "nemotron_h", keys + mixers + experts + "hybrid_override_pattern = 'ME*'\n");
  CHECK(two.file.text("general.architecture") == "nemotron_h_moe");
  CHECK(two.file.number("nemotron_h_moe.expert_count") == 4);
  CHECK(two.file.flag("nemotron_h_moe.expert_weights_norm"));
  CHECK(two.theirs("blk.1.ffn_up_shexp.weight") == two.own("backbone.layers.1.mixer.shared_experts.up_proj.weight"));
  CHECK(two.theirs("blk.1.exp_probs_b.bias") == two.own("backbone.layers.1.mixer.gate.e_score_correction_bias"));
  write_config(scratch, "nemotron_h", keys + mixers + experts + "hybrid_override_pattern = 'E-*'\n");
  CHECK(has(good(scratch, {"check", "c.toml"}).out, "no name for the tensor"));

  const Exported three =
      exported(scratch, "jamba",
               keys + "intermediate_size = 24\nnum_hidden_layers = 3\nattn_layer_period = 3\nattn_layer_offset = 1\n");
  CHECK(three.file.get<Layers>("jamba.attention.head_count_kv") == Layers{0, 2, 0});
  CHECK(three.file.number("jamba.expert_count") == 4);
  CHECK(three.theirs("blk.0.ssm_b_norm.weight") == three.own("model.layers.0.mamba.b_layernorm.weight"));
  CHECK(three.theirs("blk.0.ssm_dt.bias") == three.own("model.layers.0.mamba.dt_proj.bias"));
  CHECK(three.theirs("blk.1.ffn_gate_inp.weight") == three.own("model.layers.1.feed_forward.router.weight"));
  CHECK(three.theirs("blk.2.ffn_up.weight") == three.own("model.layers.2.feed_forward.up_proj.weight"));
}

TEST_CASE("factors in the matrices of a GGUF file: falcon_h1 and falcon_mamba", "[cli][gguf]") {
  Scratch scratch;
  const Exported one =
      exported(scratch, "falcon_h1",
               "hidden_size = 16\nnum_attention_heads = 4\nmax_position_embeddings = 64\nnum_key_value_heads = 2\n"
               "intermediate_size = 24\nnum_hidden_layers = 1\nmamba_n_heads = 4\nmamba_d_ssm = 32\nmamba_d_state = 8\n"
               "key_multiplier = 0.5\nattention_in_multiplier = 4.0\nssm_in_multiplier = 2.0\n"
               "ssm_multipliers = [0.5, 2.0, 4.0, 8.0, 16.0]\nmlp_multipliers = [0.25, 1.0]\n");
  CHECK(one.file.tensors.count("blk.0.ffn_norm") == 1);  // so called there
  const auto times = [](Floats all, const std::function<float(size_t)>& factor) {
    for (size_t k = 0; k < all.size(); ++k) all[k] *= factor(k / 16);
    return all;
  };
  const std::string layer = "model.layers.0.";
  CHECK(one.theirs("blk.0.attn_k.weight") ==
        times(one.own(layer + "self_attn.k_proj.weight"), [](size_t) { return 2.0f; }));
  CHECK(one.theirs("blk.0.ffn_gate.weight") ==
        times(one.own(layer + "feed_forward.gate_proj.weight"), [](size_t) { return 0.25f; }));
  CHECK(one.theirs("blk.0.ssm_in.weight") == times(one.own(layer + "mamba.in_proj.weight"), [](size_t row) {
          return row < 32 ? 1.0f : row < 64 ? 4.0f : row < 72 ? 8.0f : row < 80 ? 16.0f : 32.0f;
        }));

  const std::string keys = "hidden_size = 16\nnum_hidden_layers = 1\nstate_size = 4\nmixer_rms_eps = 1e-3\n";
  const Exported two = exported(scratch, "falcon_mamba", keys + "layer_norm_epsilon = 4e-3\n");
  CHECK(two.file.text("general.architecture") == "mamba");
  CHECK(two.file.flag("mamba.ssm.dt_b_c_rms"));
  CHECK(two.file.real("mamba.attention.layer_norm_rms_epsilon") == 4e-3f);
  CHECK(two.theirs("blk.0.ssm_x.weight") ==
        times(two.own("backbone.layers.0.mixer.x_proj.weight"), [](size_t) { return 2.0f; }));
  CHECK_FALSE(exported(scratch, "mamba", keys.substr(0, keys.find("mixer"))).file.keys.count("mamba.ssm.dt_b_c_rms"));
}

TEST_CASE("engine check says which layers and factors llama.cpp does not compute", "[cli][gguf]") {
  Scratch scratch;
  const std::string gemma = std::string(small) + "head_dim = 4\nsliding_window = 8\n";
  CHECK(has(not_possible(scratch, "gemma2", gemma + "query_pre_attn_scalar = 8\n"),
            "only with query_pre_attn_scalar = 4, and this model has 8"));
  CHECK(has(not_possible(scratch, "gemma2",
                         gemma + "query_pre_attn_scalar = 4\nlayer_types = ['full_attention', 'full_attention']\n"),
            "\"full_attention\" for layer 1"));
  CHECK(has(not_possible(scratch, "gemma3", gemma + "query_pre_attn_scalar = 4\nsliding_window_pattern = 2\n"),
            "only with no value or 6"));
  CHECK(has(not_possible(scratch, "smollm3", std::string(small) + "no_rope_layers = [1.0, 0.0]\n"), "for layer 2"));
  CHECK(has(not_possible(scratch, "internlm2", std::string(small) + "bias = true\n"), "model.bias = true"));
  CHECK(has(not_possible(scratch, "mamba2", "time_step_limit = [0.0, 0.1]\n"), "time_step_limit"));
  write_config(scratch, "mamba2", "time_step_limit = [0.0, 1.7976931348623157e308]\n");
  CHECK(has(good(scratch, {"check", "c.toml"}).out, "mamba2, "));
  write_config(scratch, "mistral", std::string(small) + "num_key_value_heads = 2\nsliding_window = 32\n");
  CHECK(has(good(scratch, {"check", "c.toml"}).out, "no window of attention"));
}
