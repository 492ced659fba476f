// SPDX-License-Identifier: Apache-2.0
// OPT (Zhang et al. 2022). The layer norm comes before attention and before the feed-forward layer; in the 350M model
// it comes after each residual sum.
#pragma once

#include "../common/decoder/model.hpp"

namespace opt {

decoder::Config read_options(const model::Reader& in);

struct Opt : decoder::Model {
  static constexpr const char* name = "opt";
  Opt(const eng_options* options, eng_error* error) : Model(read_options({options, error})) {}
};

}  // namespace opt
