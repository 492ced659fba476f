// SPDX-License-Identifier: Apache-2.0
#include "../common/plugin.hpp"

#include "description.hpp"
#include "models.hpp"

namespace {

using namespace decoders;

const char* describe() {
  return eng_description;
}

const eng_plugin plugin =
    common::plain_plugin(describe, model::interface_of<Gpt2, Qwen3, Olmo2, Phi3, SmolLm3, Granite, GptNeoX, MiniCpm,
                                                       InternLm2, Mistral, Ministral, Gemma2, Gemma3>);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
