// SPDX-License-Identifier: Apache-2.0
// Jamba (AI21 2024): mixers of Mamba-1 with norms of the time step, B and C, attention without positions in every
// eighth layer, experts in every second one.
#include <algorithm>

#include "options.hpp"

namespace hybrid {
namespace {

// Layers with a number that leaves `offset` when it is divided by `period`.
struct Every {
  int64_t period, offset;
  bool holds(int64_t layer) const { return layer % period == offset; }
};

Every read_every(const model::Reader& in, const char* period, const char* offset) {
  const Every out{in.size(period), in.integer(offset)};
  if (out.offset >= out.period)
    model::invalid(std::string(offset) + " is " + std::to_string(out.offset) + "; it must be below " + period + ", " +
                   std::to_string(out.period));
  return out;
}

void read_experts(const model::Reader& in, int64_t width, decoder::Experts& e) {
  decoder::read_choice(in, "num_experts", e);
  decoder::read_terms(in, e);
  e.width = width;
  e.router = "feed_forward.router.weight";
  e.up = "feed_forward.experts.gate_up_proj.weight", e.down = "feed_forward.experts.down_proj.weight";
}

}  // namespace

Config read_jamba(const model::Reader& in) {
  Config c{};
  decoder::Config& d = c.decoder;
  d = decoder::read_sizes(in, "intermediate_size");
  decoder::read_grouped_heads(in, d, 0, in.integer("num_key_value_heads"));
  d.act = in.activation("hidden_act");
  decoder::read_rms_norm(in, d);
  decoder::read_init(in, d);
  c.rotary = false;
  decoder::name_maps(d, false, false, false);
  d.maps[decoder::gate].name = "feed_forward.gate_proj";
  d.maps[decoder::up].name = "feed_forward.up_proj";
  d.maps[decoder::down].name = "feed_forward.down_proj";
  d.attention_norm = "input_layernorm";
  d.ffn_norm = "pre_ff_layernorm";
  d.final_norm = "final_layernorm";

  mamba::Mixer& m = c.mixer;
  m.heads = in.size("mamba_expand") * d.hidden, m.width = 1;
  m.taps = in.integer("mamba_d_conv");
  m.bias = m.out_bias = in.flag("mamba_proj_bias"), m.conv_bias = in.flag("mamba_conv_bias");
  m.dt_min = 1e-3, m.dt_max = 0.1, m.dt_floor = 1e-4;
  const int64_t rank = in.integer_or("mamba_dt_rank", (d.hidden + 15) / 16);
  c.selective = mamba::Selective{in.at_least_one("mamba_dt_rank", rank), in.size("mamba_d_state"), d.eps};
  c.mixer_name = "mamba";

  const Every attention = read_every(in, "attn_layer_period", "attn_layer_offset");
  const Every experts = read_every(in, "expert_layer_period", "expert_layer_offset");
  const int64_t count = in.size("num_experts");  // 1: none
  for (int64_t i = 0; i < d.layers; ++i)
    c.layers.push_back((attention.holds(i) ? attends : mixes) | (count > 1 && experts.holds(i) ? routes : feeds));
  if (std::any_of(c.layers.begin(), c.layers.end(), [](uint32_t parts) { return parts & routes; })) {
    c.experts.count = count;
    read_experts(in, d.ffn, c.experts);
  }
  return c;
}

}  // namespace hybrid
