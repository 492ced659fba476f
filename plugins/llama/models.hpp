// SPDX-License-Identifier: Apache-2.0
// LLaMA 1, 2, 3 (Touvron et al. 2023) and its relatives: each is a reader of its options.
#pragma once

#include "../common/decoder/model.hpp"

namespace llama {

decoder::Config read_llama(const model::Reader& in);
decoder::Config read_qwen2(const model::Reader& in);

struct Llama : decoder::Model {
  static constexpr const char* name = "llama";
  Llama(const eng_options* options, eng_error* error) : Model(read_llama({options, error})) {}
};

struct Qwen2 : decoder::Model {
  static constexpr const char* name = "qwen2";
  Qwen2(const eng_options* options, eng_error* error) : Model(read_qwen2({options, error})) {}
};

}  // namespace llama
