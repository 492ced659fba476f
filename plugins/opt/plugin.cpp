// SPDX-License-Identifier: Apache-2.0
#include "../common/plugin.hpp"

#include "description.hpp"
#include "model.hpp"

namespace {

const char* describe() {
  return eng_description;
}

const eng_plugin plugin = common::plain_plugin(describe, model::interface_of<opt::Opt>);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
