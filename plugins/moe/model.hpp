// SPDX-License-Identifier: Apache-2.0
// Decoders whose feed-forward layers are mixtures of experts, or some of them: what decoder::Model makes, with those
// layers and with two terms of the loss that their routers add.
#pragma once

#include <algorithm>
#include <vector>

#include "../common/decoder/experts.hpp"
#include "../common/decoder/model.hpp"

namespace moe {

struct Config {
  decoder::Config decoder;  // Config::own says which layers have experts
  decoder::Experts experts;
};

Config read_mixtral(const model::Reader& in);
Config read_qwen2_moe(const model::Reader& in);
Config read_qwen3_moe(const model::Reader& in);
Config read_olmoe(const model::Reader& in);

class Model : public decoder::Model {
 public:
  explicit Model(const Config& c) : decoder::Model(c.decoder), e_(c.experts) {}
  std::vector<model::Signature> templates() const;
  // Besides the residual stream, blocks hand on the sums of the routers of all layers so far (expert_ops.hpp).
  std::vector<eng_id> trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const;

 private:
  uint32_t own_count() const override { return 3 + (e_.shared ? 3 : 0) + (e_.shared_router ? 1 : 0); }
  void declare_own(eng_build* b, const std::string& prefix, std::vector<eng_id>& params) const override;
  eng_id feed_forward(eng_build* b, const Layer& l, eng_id x, eng_id* load) const override;

  decoder::Experts e_;
};

struct Mixtral : Model {
  static constexpr const char* name = "mixtral";
  Mixtral(const eng_options* options, eng_error* error) : Model(read_mixtral({options, error})) {}
};

struct Qwen2Moe : Model {
  static constexpr const char* name = "qwen2_moe";
  Qwen2Moe(const eng_options* options, eng_error* error) : Model(read_qwen2_moe({options, error})) {}
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
