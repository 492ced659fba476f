// SPDX-License-Identifier: Apache-2.0
// Feed-forward layers that are mixtures of experts, for all models that have them. Their ops are those of plugin `moe`
// (expert_ops.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config.hpp"

namespace decoder {

// The experts of a layer. Names are those of parameters, below the name of the layer.
struct Experts {
  int64_t count = 0, chosen = 0, width = 0;  // of a layer; of a token; of one expert. count = 0: there are none
  bool normalise = false;                    // the weights of the chosen ones are divided by their sum
  bool squared = false;                      // experts have no gate: they square what a relu lets through
  std::string router, up, down;              // up: [gate | up] of each expert, or up alone where they have no gate
  // The weights of experts are sigmoids, not shares of a softmax, and there is a correction, a vector that the choice
  // adds to them: a parameter that training leaves alone, and the name of it. Empty: shares.
  std::string correction;
  int64_t groups = 1, chosen_groups = 1;
  double scale = 1.0;
  // Experts read and write vectors of this width, which two maps make of x, and x of; 0: x itself.
  int64_t latent = 0;
  Map to_latent, from_latent;
  // An expert of every token, of the width `shared`; 0: there is none. With a router of its own, the sigmoid of its
  // logit is the weight. Without a name of the gate, it is as the experts without a gate.
  int64_t shared = 0;
  Map shared_gate, shared_up, shared_down;
  const char* shared_router = nullptr;
  // The weights of the terms of the loss; 0: the term is a metric. Not with sigmoids, which have no terms.
  double balance = 0.0, z = 0.0;

  bool terms() const { return count > 0 && correction.empty(); }  // whether routers have terms
};

struct ExpertWeights {
  eng_id router = 0, up = 0, down = 0, correction = 0, shared_router = 0;
  std::array<eng_id, 3> shared{}, shared_bias{};  // gate, up, down
  std::array<eng_id, 2> latent{}, latent_bias{};  // to it, from it
};

// Calls f(id, name, dims, flags, init) for each parameter of the experts of a layer: matrices; biases; the correction,
// which stays f32.
template <class F>
void each_expert_matrix(const Experts& e, const Config& c, ExpertWeights& w, F f) {
  const auto make = [&](eng_id& id, const std::string& name, const std::vector<int64_t>& dims, double std) {
    f(id, name, dims, uint32_t{0}, model::normal(std));
  };
  const auto weight = [](const Map& map) { return std::string(map.name) + ".weight"; };
  const int64_t around = e.latent ? e.latent : c.hidden;
  make(w.router, e.router, {e.count, c.hidden}, c.init_std);
  make(w.up, e.up, {e.count, (e.squared ? 1 : 2) * e.width, around}, c.init_std);
  make(w.down, e.down, {e.count, around, e.width}, c.init_out_std);
  if (e.latent) {
    make(w.latent[0], weight(e.to_latent), {e.latent, c.hidden}, c.init_std);
    make(w.latent[1], weight(e.from_latent), {c.hidden, e.latent}, c.init_out_std);
  }
  if (!e.shared) return;
  if (e.shared_gate.name) make(w.shared[0], weight(e.shared_gate), {e.shared, c.hidden}, c.init_std);
  make(w.shared[1], weight(e.shared_up), {e.shared, c.hidden}, c.init_std);
  make(w.shared[2], weight(e.shared_down), {c.hidden, e.shared}, c.init_out_std);
  if (e.shared_router) make(w.shared_router, std::string(e.shared_router) + ".weight", {1, c.hidden}, c.init_std);
}
template <class F>
void each_expert_bias(const Experts& e, const Config& c, ExpertWeights& w, F f) {
  const auto bias = [&](eng_id& id, const Map& map, int64_t size) {
    if (map.bias)
      f(id, std::string(map.name) + ".bias", std::vector<int64_t>{size}, uint32_t{ENG_PARAM_NO_DECAY},
        model::constant(0.0));
  };
  bias(w.latent_bias[0], e.to_latent, e.latent);
  bias(w.latent_bias[1], e.from_latent, c.hidden);
  bias(w.shared_bias[1], e.shared_up, e.shared);
  bias(w.shared_bias[2], e.shared_down, c.hidden);
}

template <class F>
void each_expert_state(const Experts& e, ExpertWeights& w, F f) {
  constexpr uint32_t flags = ENG_PARAM_NO_DECAY | ENG_PARAM_FP32 | ENG_PARAM_FROZEN;
  if (!e.correction.empty())
    f(w.correction, e.correction, std::vector<int64_t>{e.count}, uint32_t{flags}, model::constant(0.0));
}

// The output of the experts, (B, T, H), from x (B, T, H). `load`: what the router adds to the sums for the terms of the
// loss, (B, 2E + 1); 0 where there are none.
eng_id mixed_experts(eng_build* b, const Experts& e, const ExpertWeights& w, int64_t act, eng_id x, eng_id* load);
// Sums for the terms over no layer: zeros (B, 2E + 1). `h` (B, T, H).
eng_id no_load(eng_build* b, const Experts& e, eng_id h);
// Adds the terms of the loss, of the sums over `layers` layers.
void add_expert_terms(eng_build* b, const Experts& e, int64_t layers, eng_id h, eng_id load);

// num_experts_per_tok, and the weights of the terms. Throws model::Failure if `count`, the key of their number, has
// less.
void read_choice(const model::Reader& in, const char* count, Experts& e);
void read_terms(const model::Reader& in, Experts& e);

}  // namespace decoder
