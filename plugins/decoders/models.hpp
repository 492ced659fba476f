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
decoder::Config read_gpt2(const model::Reader& in);
decoder::Config read_gpt_neox(const model::Reader& in);
decoder::Config read_minicpm(const model::Reader& in);
decoder::Config read_internlm2(const model::Reader& in);
decoder::Config read_mistral(const model::Reader& in);
decoder::Config read_ministral(const model::Reader& in);
decoder::Config read_gemma2(const model::Reader& in);
decoder::Config read_gemma3(const model::Reader& in);

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

struct Gpt2 : decoder::Model {
  static constexpr const char* name = "gpt2";
  Gpt2(const eng_options* options, eng_error* error) : Model(read_gpt2({options, error})) {}
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

struct Mistral : decoder::Model {
  static constexpr const char* name = "mistral";
  Mistral(const eng_options* options, eng_error* error) : Model(read_mistral({options, error})) {}
};

struct Ministral : decoder::Model {
  static constexpr const char* name = "ministral";
  Ministral(const eng_options* options, eng_error* error) : Model(read_ministral({options, error})) {}
};

struct Gemma2 : decoder::Model {
  static constexpr const char* name = "gemma2";
  Gemma2(const eng_options* options, eng_error* error) : Model(read_gemma2({options, error})) {}
};

struct Gemma3 : decoder::Model {
  static constexpr const char* name = "gemma3";
  Gemma3(const eng_options* options, eng_error* error) : Model(read_gemma3({options, error})) {}
};

}  // namespace decoders
