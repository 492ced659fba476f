// SPDX-License-Identifier: Apache-2.0
// Decoders whose feed-forward layers are mixtures of experts: what decoder::Model makes, with those layers and with two
// terms of the loss that their routers add.
#pragma once

#include <string>
#include <vector>

#include "../common/decoder/model.hpp"

namespace moe {

// The experts of a layer, besides their width, which is Config::ffn.
struct Experts {
  int64_t count, chosen;  // of a layer; of a token
  bool normalise;         // the weights of the chosen ones are divided by their sum
  double balance, z;      // weights of the terms of the loss; 0: the term is a metric
  std::string block;      // below the name of the layer: its router is BLOCK.gate, the maps are BLOCK.experts.NAME
};

struct Config {
  decoder::Config decoder;
  Experts experts;
};

Config read_mixtral(const model::Reader& in);
Config read_qwen3_moe(const model::Reader& in);
Config read_olmoe(const model::Reader& in);

// In comments: B batch, T time, H hidden, I width of an expert, E experts of a layer, k of a token.
class Model : public decoder::Model {
 public:
  explicit Model(const Config& c) : decoder::Model(c.decoder), e_(c.experts) {}
  std::vector<model::Signature> templates() const;
  // Besides the residual stream, blocks hand on the sums of the routers of all layers so far (ops.hpp).
  std::vector<eng_id> trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const;

 private:
  uint32_t own_count() const override { return 3; }
  void declare_own(eng_build* b, const std::string& prefix, std::vector<eng_id>& params) const override;
  eng_id feed_forward(eng_build* b, const Layer& l, eng_id x, eng_id* load) const override;
  eng_id no_load(eng_build* b, eng_id h) const;
  void add_terms(eng_build* b, eng_id h, eng_id load) const;

  Experts e_;
};

struct Mixtral : Model {
  static constexpr const char* name = "mixtral";
  Mixtral(const eng_options* options, eng_error* error) : Model(read_mixtral({options, error})) {}
};

struct Qwen3Moe : Model {
  static constexpr const char* name = "qwen3_moe";
  Qwen3Moe(const eng_options* options, eng_error* error) : Model(read_qwen3_moe({options, error})) {}
};

struct Olmoe : Model {
  static constexpr const char* name = "olmoe";
  Olmoe(const eng_options* options, eng_error* error) : Model(read_olmoe({options, error})) {}
};

}  // namespace moe
