// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mixer.hpp"

namespace mamba {

struct Config2 {
  int64_t vocabulary, hidden, layers;
  Mixer mixer;
  double eps, std;  // of the norms; of new matrices
  bool tied, rescale;
  bool wide;          // the residual stream is f32 where compute has 16 bits
  bool hugging_face;  // rules of initialisation: those of transformers; false: those of mamba_ssm
};

class Mamba2 {
 public:
  static constexpr const char* name = "mamba2";
  // Throws model::Failure that names the key and what to change.
  Mamba2(const eng_options* options, eng_error* error);
  eng_model_info describe() const;
  void declare(eng_build* b) const;
  std::vector<model::Signature> templates() const;
  // The output of template `tmpl`.
  eng_id trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const;

 private:
  struct Weights;  // the parameters of one layer
  eng_id layer(eng_build* b, const Weights& w, eng_id h) const;
  Config2 c_{};
};

}  // namespace mamba
