// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config.hpp"
#include "engine/model.h"

namespace mamba {

class Model {
 public:
  explicit Model(const Config& config) : c_(config) {}
  eng_model_info describe() const;
  void declare(eng_build* b) const;
  // The outputs of template `tmpl`; always one.
  eng_id trace(eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t n_params, const eng_id* in,
               uint32_t n_in) const;

 private:
  struct Weights;  // the parameters of one layer
  eng_id layer(eng_build* b, const Weights& w, eng_id h) const;
  Config c_;
};

}  // namespace mamba
