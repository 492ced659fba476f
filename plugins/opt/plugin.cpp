// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin.h"

#include "description.hpp"
#include "model.hpp"

namespace {

using Boundary = model::Boundary<opt::Model>;

const char* describe() {
  return eng_description;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, Boundary::start, Boundary::stop, Boundary::get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
