// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>

#include "config.hpp"

namespace decoder {
namespace {

using model::invalid;
using model::number;
using model::Reader;

RopeType read_rope_type(const Reader& in) {
  const std::string name = in.text("rope_type");
  if (name == "default") return RopeType::plain;
  if (name == "linear") return RopeType::linear;
  if (name == "dynamic") return RopeType::dynamic;
  if (name == "yarn") return RopeType::yarn;
  if (name == "longrope") return RopeType::longrope;
  if (name == "llama3") return RopeType::llama3;
  invalid("rope_type '" + name + "' is not known; use default, linear, dynamic, yarn, longrope or llama3");
}

void need(const Reader& in, const char* type, const char* key, const char* usual) {
  if (!in.given(key))
    invalid("rope_type '" + std::string(type) + "' needs " + key + "; add it (for example " + key + " = " + usual +
            ")");
}

std::vector<double> read_stretch(const Reader& in, const char* key, const Config& c) {
  const std::vector<double> out = in.reals(key);
  if (static_cast<int64_t>(out.size()) != c.turned / 2)
    invalid(std::string(key) + " has " + std::to_string(out.size()) + " numbers; rope_type 'longrope' needs " +
            std::to_string(c.turned / 2) + ", half of " +
            (c.turned == c.head_dim ? "the head size" : "the channels of a head that are turned") + " (" +
            std::to_string(c.turned) + ")");
  for (double value : out)
    if (!std::isfinite(value) || value <= 0.0)
      invalid(std::string(key) + " holds " + number(value) + "; every number must be above 0");
  return out;
}

// The channels of a head that are turned.
int64_t turned_of(const Config& c, double share) {
  const auto turned = static_cast<int64_t>(static_cast<double>(c.head_dim) * share);
  if (turned < 2 || turned % 2 != 0 || turned > c.head_dim)
    invalid("a share of " + number(share) + " of heads of " + std::to_string(c.head_dim) + " is " +
            std::to_string(turned) + " channels; rotary embedding needs an even number, from 2 to the head size");
  return turned;
}

double lengthening(const Rope& rope) {
  return static_cast<double>(rope.max_positions) / static_cast<double>(rope.original_positions);
}

}  // namespace

std::array<Shape, map_count> map_shapes(const Config& c) {
  const int64_t a = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  return {{{c.fused() ? a + 2 * kv : a, c.hidden},
           {kv, c.hidden},
           {kv, c.hidden},
           {c.hidden, a},
           {c.ffn, c.hidden},
           {c.ffn, c.hidden},
           {c.hidden, c.ffn}}};
}

Config read_sizes(const Reader& in, const char* ffn) {
  Config c{};
  c.vocabulary = in.size("vocab_size");
  c.hidden = c.word_width = in.size("hidden_size");
  c.ffn = ffn ? in.size(ffn) : 0;
  c.layers = in.size("num_hidden_layers");
  c.heads = c.kv_heads = in.size("num_attention_heads");
  c.max_positions = in.size("max_position_embeddings");
  if (c.hidden % c.heads != 0)
    invalid("hidden_size (" + std::to_string(c.hidden) + ") must be a multiple of num_attention_heads (" +
            std::to_string(c.heads) + "); change one of them");
  c.head_dim = c.hidden / c.heads;
  c.tied = in.flag("tie_word_embeddings");
  return c;
}

void read_grouped_heads(const Reader& in, Config& c, int64_t head_dim, int64_t kv_heads) {
  c.kv_heads =
      in.at_least_one("num_key_value_heads", in.integer_or("num_key_value_heads", kv_heads ? kv_heads : c.heads));
  if (c.heads % c.kv_heads != 0)
    invalid("num_attention_heads (" + std::to_string(c.heads) + ") must be a multiple of num_key_value_heads (" +
            std::to_string(c.kv_heads) + "); change one of them");
  c.head_dim = in.integer_or("head_dim", head_dim ? head_dim : c.head_dim);
}

void read_rms_norm(const Reader& in, Config& c) {
  c.eps = in.real("rms_norm_eps");
  if (c.eps <= 0.0) invalid("rms_norm_eps is " + number(c.eps) + "; it must be above 0 (1e-5 and 1e-6 are usual)");
}

void read_init(const Reader& in, Config& c) {
  c.init_std = in.real("initializer_range");
  c.init_out_std =
      in.flag("init_depth_scale") ? c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers)) : c.init_std;
}

void read_window(const Reader& in, Config& c, int64_t window, bool by_layer, std::vector<bool> usual) {
  c.window = in.integer_or("sliding_window", window);
  c.windowed = std::move(usual);
  if (!by_layer || !in.given("layer_types")) return;
  const std::vector<std::string> types = in.texts("layer_types");
  if (static_cast<int64_t>(types.size()) != c.layers)
    invalid("layer_types has " + std::to_string(types.size()) + " entries, and there are " + std::to_string(c.layers) +
            " layers (num_hidden_layers); give one for each, or remove the list");
  c.windowed.clear();
  for (const std::string& type : types) {
    if (type != "sliding_attention" && type != "full_attention")
      invalid("layer_types holds '" + type + "'; every entry must be sliding_attention or full_attention");
    if (type == "sliding_attention" && !c.window)
      invalid("layer_types holds sliding_attention, and there is no sliding_window; set it, or use full_attention");
    c.windowed.push_back(type == "sliding_attention");
  }
}

void read_rope(const Reader& in, Config& c, double share) {
  Rope& rope = c.rope;
  if (share == 1.0 && (c.head_dim < 2 || c.head_dim % 2 != 0))
    invalid((in.given("head_dim") ? "head_dim is " : "hidden_size / num_attention_heads is ") +
            std::to_string(c.head_dim) + "; rotary embedding needs an even head size: " +
            (in.given("head_dim") ? "change head_dim" : "change num_attention_heads or hidden_size, or set head_dim"));
  const int64_t turned = c.turned = turned_of(c, share);
  rope.type = read_rope_type(in);
  rope.theta = in.real("rope_theta");
  if (rope.theta <= 1.0) invalid("rope_theta is " + number(rope.theta) + "; it must be above 1 (10000 is usual)");
  rope.max_positions = c.max_positions;
  rope.original_positions = in.integer_or("rope_original_max_position_embeddings", c.max_positions);
  rope.attention_factor = in.real_or("rope_attention_factor", 0.0);
  rope.beta_fast = in.real_or("rope_beta_fast", 32.0);
  rope.beta_slow = in.real_or("rope_beta_slow", 1.0);
  rope.low_freq_factor = in.real_or("rope_low_freq_factor", 1.0);
  rope.high_freq_factor = in.real_or("rope_high_freq_factor", 4.0);
  rope.factor = in.real_or("rope_factor", 1.0);
  if (!in.given("rope_type")) {
    // Without this check a missing rope_type would silently train a model other than the intended one.
    for (const char* key :
         {"rope_factor", "rope_low_freq_factor", "rope_high_freq_factor", "rope_attention_factor", "rope_beta_fast",
          "rope_beta_slow", "rope_original_max_position_embeddings", "rope_short_factor", "rope_long_factor"})
      if (in.given(key))
        invalid(std::string(key) + " has no effect without rope_type; add rope_type = \"...\" or remove " + key);
  }
  switch (rope.type) {
    case RopeType::plain:
      break;
    case RopeType::linear:
      need(in, "linear", "rope_factor", "2.0");
      break;
    case RopeType::dynamic:
      need(in, "dynamic", "rope_factor", "2.0");
      if (turned < 4) invalid("rope_type 'dynamic' needs a head_dim of at least 4, not " + std::to_string(turned));
      break;
    case RopeType::yarn:
      if (!in.given("rope_original_max_position_embeddings")) need(in, "yarn", "rope_factor", "4.0");
      rope.factor = in.real_or("rope_factor", lengthening(rope));
      if (rope.factor < 1.0)
        invalid("rope_original_max_position_embeddings must not be above max_position_embeddings, or give rope_factor");
      if (rope.beta_fast < rope.beta_slow)
        invalid("rope_beta_fast (" + number(rope.beta_fast) + ") must not be below rope_beta_slow (" +
                number(rope.beta_slow) + ")");
      break;
    case RopeType::longrope:
      rope.short_factor = read_stretch(in, "rope_short_factor", c);
      rope.long_factor = read_stretch(in, "rope_long_factor", c);
      rope.factor = in.real_or("rope_factor", lengthening(rope));
      if (rope.original_positions < 2) invalid("rope_original_max_position_embeddings must be at least 2");
      break;
    case RopeType::llama3:
      need(in, "llama3", "rope_factor", "8.0");
      need(in, "llama3", "rope_low_freq_factor", "1.0");
      need(in, "llama3", "rope_high_freq_factor", "4.0");
      if (rope.high_freq_factor <= rope.low_freq_factor)
        invalid("rope_high_freq_factor (" + number(rope.high_freq_factor) + ") must be above rope_low_freq_factor (" +
                number(rope.low_freq_factor) + ")");
      break;
  }
}

Config read_relative(const Reader& in, double share, int64_t head_dim, int64_t kv_heads, const char* ffn) {
  Config c = read_sizes(in, ffn);
  read_grouped_heads(in, c, head_dim, kv_heads);
  c.act = in.activation("hidden_act");
  read_rms_norm(in, c);
  read_init(in, c);
  read_rope(in, c, share);
  c.attention_norm = "input_layernorm";
  c.ffn_norm = "post_attention_layernorm";
  c.final_norm = "norm";
  return c;
}

void name_maps(Config& c, bool qkv_bias, bool o_bias, bool mlp_bias) {
  c.maps = {{{"self_attn.q_proj", qkv_bias},
             {"self_attn.k_proj", qkv_bias},
             {"self_attn.v_proj", qkv_bias},
             {"self_attn.o_proj", o_bias},
             {"mlp.gate_proj", mlp_bias},
             {"mlp.up_proj", mlp_bias},
             {"mlp.down_proj", mlp_bias}}};
}

}  // namespace decoder
