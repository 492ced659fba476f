// SPDX-License-Identifier: Apache-2.0
#include "../common/plugin.hpp"

#include "description.hpp"
#include "models.hpp"

namespace {

const char* describe() {
  return eng_description;
}

const eng_plugin plugin = common::plain_plugin(describe, model::interface_of<llama::Llama, llama::Qwen2>);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
