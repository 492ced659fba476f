// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config.hpp"
#include "engine/model.h"

namespace llama {

class Model {
 public:
  explicit Model(Config config) : c_(std::move(config)) {}
  eng_model_info describe() const;
  void declare(eng_build* b) const;
  // The outputs of template `tmpl`; always one.
  eng_id trace(eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t n_params, const eng_id* in,
               uint32_t n_in) const;

 private:
  eng_id embed(eng_build* b, const eng_id* params) const;
  eng_id layer(eng_build* b, const eng_id* params, eng_id h) const;
  eng_id head(eng_build* b, const eng_id* params, eng_id h) const;
  eng_id matrix(eng_build* b, const std::string& name, int64_t rows, int64_t columns, double std) const;
  eng_id vector(eng_build* b, const std::string& name, int64_t size, double value) const;

  Config c_;
};

}  // namespace llama
