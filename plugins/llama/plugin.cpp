// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin.h"

#include "description.hpp"
#include "model.hpp"

namespace {

using Boundary = model::Boundary<llama::Model>;

const char* describe() {
  return eng_description;
}

const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                           .abi_minor = ENG_ABI_MINOR,
                           .draft_id = ENG_ABI_DRAFT_ID,
                           .describe = describe,
                           .start = Boundary::start,
                           .stop = Boundary::stop,
                           .get_interface = Boundary::get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
