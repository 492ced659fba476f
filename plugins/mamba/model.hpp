// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../common/model.hpp"
#include "config.hpp"

namespace mamba {

class Model {
 public:
  static constexpr const char* name = "mamba";
  Model(const eng_options* options, eng_error* error, bool normed = false) : c_(read_config(options, error, normed)) {}
  eng_model_info describe() const;
  void declare(eng_build* b) const;
  std::vector<model::Signature> templates() const;
  // The output of template `tmpl`.
  eng_id trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const;

 private:
  struct Weights;  // the parameters of one layer
  eng_id layer(eng_build* b, const Weights& w, eng_id h) const;
  Config c_;
};

// Falcon-Mamba (Zuo et al. 2024): Mamba with norms of dt, B and C, which have no weights.
struct FalconMamba : Model {
  static constexpr const char* name = "falcon_mamba";
  FalconMamba(const eng_options* options, eng_error* error) : Model(options, error, true) {}
};

}  // namespace mamba
