// SPDX-License-Identifier: Apache-2.0
// A decoder as a list of ops, from its Config alone. A family derives from Model and adds its name and its options:
//   struct Llama : decoder::Model {
//     static constexpr const char* name = "llama";
//     Llama(const eng_options* options, eng_error* error) : Model(read_llama({options, error})) {}
//   };
// model::interface_of<Llama, ...> makes the tables of the families of a file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config.hpp"

namespace decoder {

// In comments: B batch, T time, V vocabulary, W width of the embeddings, H hidden, F feed-forward, D head size,
// A = heads * D, K = kv_heads * D.
class Model {
 public:
  explicit Model(Config config) : c_(std::move(config)) {}
  virtual ~Model() = default;
  eng_model_info describe() const;
  void declare(eng_build* b) const;
  std::vector<model::Signature> templates() const;
  // The output of template `tmpl`.
  eng_id trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
    return trace(b, tmpl, params, in, nullptr);
  }

 protected:
  struct Norm {
    eng_id weight = 0, bias = 0;
  };
  struct Layer {
    std::array<eng_id, map_count> w{}, bias{};
    const eng_id* own = nullptr;  // those of declare_own; nullptr: the layer has the maps instead
    eng_id query_norm = 0, key_norm = 0;
    Norm attention_norm, behind_attention_norm, ffn_norm, behind_ffn_norm;
  };
  // Without a table, a layer turns nothing. window: 0 for none.
  struct Fields {
    eng_id table = 0, positions = 0, segments = 0;
    int64_t window = 0;
  };
  // The blocks before and behind the layers; `words` are the embeddings, which declare_embed returns.
  eng_id declare_embed(eng_build* b) const;
  void declare_head(eng_build* b, eng_id words) const;
  uint32_t norm_params() const;
  void declare_norm(eng_build* b, const std::string& name, std::vector<eng_id>& params) const;
  Norm take_norm(const eng_id*& params) const;
  eng_id rms_factor(eng_build* b, eng_id weight) const;
  eng_id norm(eng_build* b, const Norm& n, eng_id x) const;
  // The norm of x + residual; `sum` is that sum.
  eng_id add_norm(eng_build* b, const Norm& n, eng_id x, eng_id residual, eng_id* sum) const;

  int64_t norm_width(int64_t heads) const;
  eng_id head_norm(eng_build* b, eng_id weight, eng_id x, int64_t heads) const;

  bool second_kind(int64_t layer) const;
  uint32_t template_of_layer(int64_t layer) const;
  // True if the layer has the maps gate, up and down where others have a feed-forward layer of their own.
  bool dense(int64_t layer) const;
  eng_id rotations(eng_build* b, eng_id h, const Rope& rope) const;
  eng_id turn(eng_build* b, eng_id x, eng_id table, eng_id positions, int64_t heads) const;

  eng_id linear(eng_build* b, const Layer& l, size_t map, eng_id x) const {
    return eng_linear(b, x, l.w[map], l.bias[map]);
  }
  // A family with another feed-forward layer than Config describes, in all layers or those of Config::own, declares the
  // parameters of its own, matrices, of which there are own_count. `beside`: a second result of feed_forward, or
  // nullptr.
  virtual uint32_t own_count() const { return 0; }
  virtual void declare_own(eng_build*, const std::string&, std::vector<eng_id>&) const {}
  virtual eng_id feed_forward(eng_build* b, const Layer& l, eng_id x, eng_id* beside) const;

  Layer take_layer(const eng_id* params, bool dense) const;
  eng_id attention(eng_build* b, const Layer& l, eng_id x, const Fields& fields) const;

  eng_id trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in, eng_id* beside) const;
  eng_id embed(eng_build* b, const eng_id* params) const;
  eng_id layer(eng_build* b, const eng_id* params, eng_id h, bool turned, bool windowed, bool dense,
               eng_id* beside) const;
  eng_id head(eng_build* b, const eng_id* params, eng_id h) const;

  Config c_;
};

}  // namespace decoder
