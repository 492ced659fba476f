// SPDX-License-Identifier: Apache-2.0
// Models whose layers are mixers of Mamba, attention, feed-forward layers and experts in a pattern, from a Config
// alone. The attention, the feed-forward layers and the ends of the model are those of decoder::Model. A family derives
// from Model and adds its name and a reader of its options (families.hpp).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../common/decoder/experts.hpp"
#include "../../common/decoder/model.hpp"
#include "../mixer.hpp"
#include "../selective.hpp"

namespace hybrid {

// Parts of a layer, as bits. The mixer and the attention of one layer read the same norm, and their outputs are added;
// so do the feed-forward layer and the experts.
enum Part : uint32_t { mixes = 1, attends = 2, feeds = 4, routes = 8 };

struct Config {
  decoder::Config decoder;  // a layer of one part alone has the norm `attention_norm`, whatever the part
  mamba::Mixer mixer;       // of Mamba-2; with `selective`, its channels, taps, biases and initial time steps alone
  std::optional<mamba::Selective> selective = {};  // mixers are those of Mamba-1, with norms that have weights
  decoder::Experts experts = {};
  std::vector<uint32_t> layers;  // the parts of each
  std::string mixer_name;        // below that of the layer
  bool rotary = true;            // attention turns queries and keys
  bool wide = false;             // the residual stream is f32 where compute has 16 bits
  bool squared = false;          // the plain feed-forward layer squares what its relu lets through
  double out_divisor = 0.0;      // of new out_proj matrices of mixers, drawn by their inputs; 0: drawn as the others
  // Factors of what the mixer and the attention add, of what the attention reads, and of the gate and the output of the
  // feed-forward layer.
  double mixer_out = 1.0, attention_out = 1.0, attention_in = 1.0, gate = 1.0, down = 1.0;
};

// In comments: B batch, T time, H hidden, F feed-forward.
class Model : public decoder::Model {
 public:
  explicit Model(Config config);
  eng_model_info describe() const;
  void declare(eng_build* b) const;
  std::vector<model::Signature> templates() const;
  // The outputs of template `tmpl`: with experts whose routers have terms, blocks hand on the sums of all layers so far
  // beside the residual stream (../../common/decoder/expert_ops.hpp).
  std::vector<eng_id> trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const;

 private:
  struct Weights : Layer {
    mamba::MixerWeights mixer{};
    mamba::SelectiveWeights selective{};
    decoder::ExpertWeights experts{};
  };
  // Calls f(id, name, dims, flags, init) for each parameter of a layer of these parts.
  template <class F>
  void each(uint32_t parts, Weights& w, F f) const;
  template <class F>
  void each_selective_matrix(mamba::SelectiveWeights& w, F f) const;
  template <class F>
  void each_selective_vector(mamba::SelectiveWeights& w, F f) const;
  template <class F>
  void each_selective_state(mamba::SelectiveWeights& w, F f) const;
  eng_id feed_forward(eng_build* b, const Layer& l, eng_id x, eng_id* beside) const override;
  eng_id sublayer(eng_build* b, uint32_t parts, const Weights& w, eng_id x) const;
  eng_id second(eng_build* b, uint32_t parts, const Weights& w, eng_id x, eng_id* load) const;
  eng_id layer(eng_build* b, uint32_t parts, const Weights& w, eng_id h, eng_id* load) const;

  Config h_;
  std::vector<uint32_t> kinds_;  // the different layers, in their order
};

}  // namespace hybrid
