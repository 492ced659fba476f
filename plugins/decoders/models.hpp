// SPDX-License-Identifier: Apache-2.0
// Families of decoders beside LLaMA: each is a reader of its options, in a file of its own.
#pragma once

#include "../common/decoder/model.hpp"

namespace decoders {

decoder::Config read_qwen3(const model::Reader& in);
decoder::Config read_olmo2(const model::Reader& in);
decoder::Config read_phi3(const model::Reader& in);
decoder::Config read_smollm3(const model::Reader& in);
decoder::Config read_granite(const model::Reader& in);
decoder::Config read_gpt_neox(const model::Reader& in);
decoder::Config read_minicpm(const model::Reader& in);
decoder::Config read_internlm2(const model::Reader& in);

struct Qwen3 : decoder::Model {
  static constexpr const char* name = "qwen3";
  Qwen3(const eng_options* options, eng_error* error) : Model(read_qwen3({options, error})) {}
};

struct Olmo2 : decoder::Model {
  static constexpr const char* name = "olmo2";
  Olmo2(const eng_options* options, eng_error* error) : Model(read_olmo2({options, error})) {}
};

struct Phi3 : decoder::Model {
  static constexpr const char* name = "phi3";
  Phi3(const eng_options* options, eng_error* error) : Model(read_phi3({options, error})) {}
};

struct SmolLm3 : decoder::Model {
  static constexpr const char* name = "smollm3";
  SmolLm3(const eng_options* options, eng_error* error) : Model(read_smollm3({options, error})) {}
};

struct Granite : decoder::Model {
  static constexpr const char* name = "granite";
  Granite(const eng_options* options, eng_error* error) : Model(read_granite({options, error})) {}
};

struct GptNeoX : decoder::Model {
  static constexpr const char* name = "gpt_neox";
  GptNeoX(const eng_options* options, eng_error* error) : Model(read_gpt_neox({options, error})) {}
};

struct MiniCpm : decoder::Model {
  static constexpr const char* name = "minicpm";
  MiniCpm(const eng_options* options, eng_error* error) : Model(read_minicpm({options, error})) {}
};

struct InternLm2 : decoder::Model {
  static constexpr const char* name = "internlm2";
  InternLm2(const eng_options* options, eng_error* error) : Model(read_internlm2({options, error})) {}
};

}  // namespace decoders
