// SPDX-License-Identifier: Apache-2.0
// One position at a time says what the forward of the whole sequence says.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>

#include "core/base/error.hpp"
#include "core/execute/executor.hpp"
#include "core/plan/prefill.hpp"
#include "core/program/program.hpp"
#include "core/trace/op.hpp"
#include "core/trace/stepping.hpp"
#include "core/verify/verify.hpp"
#include "engine/ops.h"
#include "session/config/schemas.hpp"
#include "session/plugins/search.hpp"

namespace {

using namespace eng;

constexpr int64_t batch = 2, length = 150;  // two chunks of prompt and more

Registry& registry() {
  static const std::unique_ptr<Registry> all = [] {
    PluginSearch search;
    for (const char* file : {"cpu/cpu", "cpu/reference", "llama/llama", "decoders/decoders", "opt/opt", "mamba/hybrids",
                             "mamba/mamba", "moe/moe", "precision/precision", "optim/optim", "data/data"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return find_plugins(search);
  }();
  return *all;
}

// Wide weights: attention is far from uniform.
const std::map<std::string, const char*> models = {
    {"llama", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"opt", "num_attention_heads = 4\nffn_dim = 40\ninit_std = 0.2\nmax_position_embeddings = 150\n"},
    {"mamba", "initializer_range = 0.2\n"},
    {"qwen3", "num_attention_heads = 4\nintermediate_size = 40\nhead_dim = 12\ninitializer_range = 0.2\n"},
    {"olmo2", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"phi3", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"smollm3", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"granite", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"gpt2", "num_attention_heads = 4\nn_inner = 40\ninitializer_range = 0.2\nmax_position_embeddings = 150\n"},
    {"gpt_neox", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"internlm2", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"mistral", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"ministral", "num_attention_heads = 4\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"mixtral",
     "num_attention_heads = 4\nnum_key_value_heads = 2\nintermediate_size = 20\nnum_local_experts = 4\n"
     "initializer_range = 0.2\n"},
    {"qwen2_moe",
     "num_attention_heads = 4\nnum_key_value_heads = 2\nmoe_intermediate_size = 12\nnum_experts = 6\n"
     "num_experts_per_tok = 2\nintermediate_size = 40\nshared_expert_intermediate_size = 20\n"
     "initializer_range = 0.2\n"},
    {"qwen3_moe",
     "num_attention_heads = 4\nnum_key_value_heads = 2\nmoe_intermediate_size = 12\nnum_experts = 8\n"
     "num_experts_per_tok = 3\nintermediate_size = 40\ninitializer_range = 0.2\n"},
    {"olmoe",
     "num_attention_heads = 4\nintermediate_size = 12\nnum_experts = 5\nnum_experts_per_tok = 2\n"
     "initializer_range = 0.2\n"},
    {"falcon_mamba", "initializer_range = 0.2\n"},
    {"bamba",
     "num_attention_heads = 4\nnum_key_value_heads = 2\nintermediate_size = 40\nmamba_n_heads = 4\nmamba_d_state = 8\n"
     "initializer_range = 0.2\n"},
    {"falcon_h1",
     "num_attention_heads = 4\nnum_key_value_heads = 2\nintermediate_size = 40\nmamba_n_heads = 4\nmamba_d_state = 8\n"
     "mamba_d_ssm = 32\ninitializer_range = 0.2\n"},
    {"granitemoehybrid",
     "num_attention_heads = 4\nnum_key_value_heads = 2\nshared_intermediate_size = 40\nmamba_n_heads = 4\n"
     "mamba_d_state = 8\ninitializer_range = 0.2\n"},
    {"jamba",
     "num_attention_heads = 4\nnum_key_value_heads = 2\nintermediate_size = 40\nmamba_d_state = 8\nnum_experts = 4\n"
     "attn_layer_period = 3\nattn_layer_offset = 1\ninitializer_range = 0.2\n"},
    {"nemotron_h",
     "num_attention_heads = 4\nnum_key_value_heads = 2\nhead_dim = 8\nintermediate_size = 40\nmamba_num_heads = 4\n"
     "mamba_head_dim = 8\nssm_state_size = 8\nn_groups = 2\ninitializer_range = 0.2\n"},
    {"gemma2", "num_attention_heads = 4\nintermediate_size = 40\nhead_dim = 8\ninitializer_range = 0.2\n"},
    {"gemma3", "num_attention_heads = 4\nintermediate_size = 40\nhead_dim = 8\ninitializer_range = 0.2\n"},
};
std::string config_text(const std::string& model, const std::string& options, const std::string& device,
                        const std::string& format) {
  return "[model]\nplugin = '" + model + "'\nvocab_size = 64\nhidden_size = 32\nnum_hidden_layers = 3\n" +
         models.at(model) + options + "\n[data]\nplugin = 'text'\npaths = ['none']\n[device]\nplugin = '" + device +
         "'\nthreads = 2\n[precision]\nplugin = '" + format + "'\n";
}

struct Sequence {
  Sequence(const std::string& options, const std::string& device_name, const std::string& name = "llama",
           const std::string& format = "fp32")
      : config(Config::parse(config_text(name, options, device_name, format), "test.toml", ".", {},
                             schemas_of(registry()))),
        kernels(registry(), device_name, config.section("device")),
        precision(make_precision(format, registry().table<eng_axis>(ENG_PRECISION_KIND, format),
                                 config.section("precision"))),
        model(trace(name, config.section("model"), precision.dtype(ENG_ROLE_ACT))),
        device(registry(), device_name, config.section("device")) {
    PlanRequest request{model, precision, nullptr, device_name, {}};
    request.workspace = [this](const Call& call) { return kernels.workspace(call); };
    request.train = request.evaluate = false;
    request.logits = request.generate = true;
    plan = make_plan(request);
    executor = std::make_unique<Executor>(plan, device, kernels);
    executor->run("init");
    uint32_t x = 1;
    for (int32_t& token : tokens) token = static_cast<int32_t>((x = x * 1664525 + 1013904223) >> 26);
    executor->upload(plan.field("tokens"), tokens.data());
    executor->run("logits");
    expected.resize(static_cast<size_t>(count(plan.logits.desc)));
    executor->download(expected.data(), plan.logits);
  }
  static Model trace(const std::string& name, const Section& options, int32_t dtype) {
    const eng_model table = registry().table<eng_model>(ENG_MODEL_KIND, name);
    load_ops(registry());
    return trace_model(name, table, options, batch, length, dtype);
  }
  int32_t token(int64_t b, int64_t t) const { return tokens[static_cast<size_t>(b * length + t)]; }

  // Runs `program` on the n tokens of each sequence from position t.
  void run(const char* program, int64_t t, int64_t n, int64_t pretended) {
    std::vector<int32_t> next;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t k = 0; k < n; ++k) next.push_back(token(b, t + k));
    executor->upload(plan.field("tokens"), 0, next.data(), next.size() * sizeof(int32_t));
    int64_t counters[ENG_C_COUNT] = {};
    counters[ENG_C_POSITION] = pretended;
    executor->upload(plan.counters, counters);
    executor->run(program);
  }
  // The largest error of the logits at position t, as a part of the largest logit.
  double decode(int64_t t, int64_t pretended) {
    run("decode", t, 1, pretended);
    const int64_t v = plan.logits.desc.dims[2];
    std::vector<float> ours(static_cast<size_t>(batch * v));
    executor->download(ours.data(), plan.next_logits);
    double difference = 0, size = 0;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t k = 0; k < v; ++k) {
        const float theirs = expected[static_cast<size_t>((b * length + t) * v + k)];
        const double d =
            std::abs(static_cast<double>(ours[static_cast<size_t>(b * v + k)]) - static_cast<double>(theirs));
        difference = d <= difference ? difference : d;  // a NaN stays
        size = std::max(size, std::abs(static_cast<double>(theirs)));
      }
    return difference / size;
  }
  // Over all positions, `chunks` of them read as a prompt.
  double error(int64_t chunks) {
    executor->run("reset");
    for (int64_t k = 0; k < chunks; ++k) run("prefill", k * prefill, prefill, k * prefill);
    double worst = 0;
    for (int64_t t = chunks * prefill; t < length; ++t) worst = std::max(worst, decode(t, t));
    return worst;
  }
  // The largest error if the prompt is read in one piece of each length from `first` on, as far as there is room.
  double error_of_pieces(int64_t first = prefill) {
    executor->run("reset");
    int64_t at = 0;
    for (int64_t n = first; n >= least_prefill; n /= 2)
      if (at + n < length) run(prefill_program(n).c_str(), at, n, at), at += n;
    double worst = 0;
    for (; at < length; ++at) worst = std::max(worst, decode(at, at));
    return worst;
  }
  std::vector<View> caches() const {
    std::vector<View> out;
    for (Id id = 1; id <= plan.buffers.size(); ++id)
      if (plan.buffer(id).line == Line::cache)
        out.push_back({id, 0, make_desc(ENG_F32, {static_cast<int64_t>(plan.buffer(id).bytes / 4)})});
    return out;
  }

  Config config;
  Kernels kernels;
  Precision precision;
  Model model;
  Plan plan;
  Device device;
  std::unique_ptr<Executor> executor;
  std::vector<int32_t> tokens = std::vector<int32_t>(static_cast<size_t>(batch * length));
  std::vector<float> expected;
};

const std::pair<const char*, const char*> variants[] = {
    {"mha", ""},
    {"gqa", "num_key_value_heads = 2"},
    {"one key head, wide heads", "num_key_value_heads = 1\nhead_dim = 36"},
    {"tied", "tie_word_embeddings = true\nhidden_act = 'gelu'"},
    {"biases", "attention_bias = true\nmlp_bias = true"},
    {"linear", "rope_type = 'linear'\nrope_factor = 4.0"},
    {"dynamic", "rope_type = 'dynamic'\nrope_factor = 3.0\nmax_position_embeddings = 64"},
    {"yarn", "rope_type = 'yarn'\nrope_factor = 4.0\nrope_original_max_position_embeddings = 128"},
    {"longrope",
     "rope_type = 'longrope'\nrope_original_max_position_embeddings = 64\nrope_short_factor = [1.0, 1.1, 1.2, 1.3]\n"
     "rope_long_factor = [1.0, 2.0, 3.0, 4.0]"},
    {"llama3",
     "rope_type = 'llama3'\nrope_factor = 8.0\nrope_low_freq_factor = 1.0\nrope_high_freq_factor = "
     "4.0\nrope_original_max_position_embeddings = 64"}};

}  // namespace

TEST_CASE("logits one position at a time are those of the whole forward") {
  const std::string device = GENERATE("cpu", "reference");
  for (const auto& [name, options] : variants) {
    INFO(name << " on " << device);
    Sequence sequence(options, device);
    CHECK(problems(sequence.plan).empty());
    CHECK(sequence.error(0) < 1e-5);
    CHECK(sequence.error_of_pieces(longest_prefill(batch)) < 1e-5);
    CHECK(sequence.error_of_pieces() < 1e-5);
    CHECK(sequence.error(2) < 1e-5);
  }
}

TEST_CASE("opt: logits one position at a time are those of the whole forward") {
  const std::string device = GENERATE("cpu", "reference");
  for (const char* options :
       {"", "do_layer_norm_before = false\nword_embed_proj_dim = 12",
        "enable_bias = false\nlayer_norm_elementwise_affine = false\nactivation_function = 'gelu'"}) {
    Sequence sequence(options, device, "opt");
    INFO(options << " on " << device);
    CHECK(problems(sequence.plan).empty());
    CHECK(sequence.error(0) < 1e-5);
    CHECK(sequence.error_of_pieces(longest_prefill(batch)) < 1e-5);
    CHECK(sequence.error_of_pieces() < 1e-5);
    CHECK(sequence.decode(length - 1, length - 2) > 1e-5);
    CHECK_THROWS_WITH(sequence.run("decode", 0, 1, length), Catch::Contains("position 150 is outside of the table"));
  }
}

TEST_CASE("families: logits one position at a time are those of the whole forward") {
  const std::pair<const char*, const char*> families[] = {
      {"qwen3", "num_key_value_heads = 2"},
      {"olmo2", ""},
      {"phi3", "partial_rotary_factor = 0.5"},
      {"smollm3", "no_rope_layer_interval = 2"},
      {"granite",
       "embedding_multiplier = 3.0\nattention_multiplier = 0.4\nresidual_multiplier = 0.5\nlogits_scaling = 2.0"},
      {"gpt2", ""},
      {"gpt_neox", ""},
      {"internlm2", "num_key_value_heads = 2"},
      {"mistral", "num_key_value_heads = 2\nsliding_window = 40"},
      {"ministral",
       "num_key_value_heads = 2\nsliding_window = 70\nlayer_types = ['sliding_attention', 'full_attention', "
       "'sliding_attention']"},
      {"gemma2",
       "sliding_window = 9\nquery_pre_attn_scalar = 8\nattn_logit_softcapping = 2.0\nfinal_logit_softcapping = 3.0"},
      {"gemma3", "sliding_window = 9\nsliding_window_pattern = 2\nquery_pre_attn_scalar = 8"},
      {"mixtral", ""},
      {"qwen2_moe", ""},
      {"qwen3_moe", "output_router_logits = true"},
      {"qwen3_moe", "mlp_only_layers = [1]"},
      {"olmoe", "norm_topk_prob = true"},
      {"falcon_mamba", "mixer_rms_eps = 1e-3\nstate_size = 5"},
      {"bamba", "attn_layer_indices = [1]\nmamba_n_groups = 2"},
      {"granitemoehybrid", "layer_types = ['attention', 'mamba', 'attention']\nresidual_multiplier = 0.5"},
      {"granitemoehybrid", "layer_types = ['mamba', 'attention', 'mamba']\nposition_embedding_type = 'rope'"},
      {"granitemoehybrid",
       "layer_types = ['mamba', 'attention', 'mamba']\nnum_local_experts = 4\nintermediate_size = 12"},
      {"jamba", ""},
      {"jamba", "mamba_proj_bias = true\nexpert_layer_period = 3\nexpert_layer_offset = 0\nnum_experts_per_tok = 3"},
      {"nemotron_h", "hybrid_override_pattern = 'M*-'\nresidual_in_fp32 = true"},
      {"nemotron_h",
       "hybrid_override_pattern = 'ME*'\nmoe_intermediate_size = 12\nmoe_shared_expert_intermediate_size = 20\n"
       "moe_latent_size = 16\nn_routed_experts = 6"},
      {"falcon_h1", "ssm_multipliers = [0.5, 1.5, 0.8, 1.2, 0.9]\nkey_multiplier = 0.7\nssm_in_multiplier = 1.5"},
      {"falcon_h1", "mamba_rms_norm = true\nmlp_multipliers = [0.7, 1.3]"}};
  for (const auto& [name, options] : families) {
    INFO(name);
    Sequence sequence(options, "cpu", name);
    CHECK(problems(sequence.plan).empty());
    CHECK(sequence.error(0) < 1e-5);
    CHECK(sequence.error_of_pieces(longest_prefill(batch)) < 1e-5);
    CHECK(sequence.error_of_pieces() < 1e-5);
  }
}

TEST_CASE("mamba: logits one position at a time are those of the whole forward") {
  const std::string device = GENERATE("cpu", "reference");
  for (const char* options : {"", "state_size = 5\nconv_kernel = 2\nexpand = 1.5\ntie_word_embeddings = false",
                              "conv_kernel = 3\nuse_conv_bias = false\nuse_bias = true\ninit = 'huggingface'"}) {
    Sequence sequence(options, device, "mamba");
    INFO(options << " on " << device);
    CHECK(problems(sequence.plan).empty());
    CHECK(sequence.error(0) < 1e-5);
    CHECK(sequence.error_of_pieces(longest_prefill(batch)) < 1e-5);
    CHECK(sequence.error_of_pieces() < 1e-5);
    CHECK(sequence.error(2) < 1e-5);
    sequence.executor->run("reset");  // a token once more moves the states too far
    sequence.run("prefill", 0, prefill, 0);
    sequence.run("decode", prefill - 1, 1, prefill - 1);
    CHECK(sequence.decode(prefill, prefill) > 1e-5);
  }
}

TEST_CASE("16-bit formats generate what their forward says, and hold no masters") {
  const auto weights = [](const Plan& plan) {
    uint64_t bytes = 0;
    for (const Buffer& b : plan.buffers) bytes += b.line == Line::weights ? b.bytes : 0;
    return bytes;
  };
  for (const char* model : {"llama", "opt", "mamba"}) {
    const Sequence wide("", "cpu", model);
    for (const auto& [format, limit] : {std::pair("bf16", 0.05), {"fp16", 0.01}})
      for (const char* device : {"cpu", "reference"}) {
        Sequence sequence("", device, model, format);
        INFO(model << " in " << format << " on " << device);
        CHECK(problems(sequence.plan).empty());
        CHECK(sequence.plan.logits.desc.dtype == ENG_F32);
        CHECK(sequence.error(0) < limit);
        CHECK(sequence.error_of_pieces(longest_prefill(batch)) < limit);
        CHECK(sequence.error_of_pieces() < limit);
        // Values that stay f32 are padded, like everything else, to 4,096 elements.
        const uint64_t f32 = std::string(model) == "mamba" ? 3 * 3 * 4096 * 4 : 0;
        CHECK(2 * (weights(sequence.plan) - f32) == weights(wide.plan) - f32);
        CHECK(sequence.expected != wide.expected);
      }
  }
}

TEST_CASE("a position or a cache row off by one is seen") {
  Sequence sequence("num_key_value_heads = 2", "cpu");
  sequence.run("prefill", 0, prefill, 0);
  CHECK(sequence.decode(64, 64) < 1e-5);
  CHECK(sequence.decode(65, 66) > 1e-5);
  CHECK(sequence.decode(65, 65) < 1e-5);  // written again where it belongs
  // One cache moves by one row.
  const View cache = sequence.caches()[1];
  std::vector<float> rows(static_cast<size_t>(count(cache.desc)));
  sequence.executor->download(rows.data(), cache);
  std::rotate(rows.begin(), rows.begin() + 16, rows.end());
  sequence.executor->upload(cache, rows.data());
  CHECK(sequence.decode(66, 66) > 1e-5);
  // The rest of an earlier sequence is not read.
  CHECK(sequence.error(1) < 1e-5);
}

TEST_CASE("a position behind the end of the sequence is refused") {
  for (const char* device : {"cpu", "reference"}) {
    Sequence sequence("", device);
    for (int64_t position : {length, int64_t{-1}})
      CHECK_THROWS_WITH(sequence.run("decode", 0, 1, position), Catch::Contains("of a sequence of 150"));
    CHECK_THROWS_WITH(sequence.run("prefill", 0, prefill, length - prefill + 1),
                      Catch::Contains("of a sequence of 150"));
  }
}

TEST_CASE("an op without a step rule: such a model cannot generate, and its name is reported") {
  Sequence sequence("", "reference");
  Op op = *sequence.model.templates.at(1).graph.nodes[0].op;
  op.step = nullptr;
  sequence.model.templates.at(1).graph.nodes[0].op = &op;
  CHECK_THROWS_WITH(next_positions(sequence.model, 1, true),
                    Catch::Contains("model llama, block layers.0: eng.rms_norm/1 has no step rule"));
  CHECK_NOTHROW(with_logits(sequence.model));

  op.step = [](Stepping& s) {
    s.state(s.desc(0));
    by_position(s);
  };
  CHECK_THROWS_WITH(next_positions(sequence.model, 1, true),
                    Catch::Contains("block layers.0: a step rule made a state that no op writes in place"));
  op.step = [](Stepping&) {};
  CHECK_THROWS_WITH(next_positions(sequence.model, 1, true),
                    Catch::Contains("eng.linear/1 reads a value that no step has: this model cannot generate"));
}
