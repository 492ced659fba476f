// SPDX-License-Identifier: Apache-2.0
// Rotary embedding in GGUF files, from the options that decoders have for it: those of Hugging Face's rope_parameters,
// as rope_theta, rope_type, rope_factor and so on.
#pragma once

#include "core/config/section.hpp"
#include "session/gguf/layout.hpp"

namespace eng {

// Refuses a rope_type that is not among `known`: Error(Exit::usage).
void require_rope(const std::vector<std::string>& known, const std::string& architecture, const Section& model);
// A tensor of the file: what each of the head_dim / 2 frequencies is divided by.
struct RopeFactors {
  std::string name;
  std::vector<float> divisors;
};
// Writes ARCHITECTURE.rope.*. `head_dim`: channels of a head that are turned. Returns no tensors if llama.cpp scales
// the frequencies by itself, or none is scaled; one for llama3; two for longrope.
std::vector<RopeFactors> write_rope(const std::string& architecture, const Section& model, int64_t head_dim,
                                    GgufHeader& out);

}  // namespace eng
