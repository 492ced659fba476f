// SPDX-License-Identifier: Apache-2.0
// A plugin whose start throws.
#include <stdexcept>

#include "engine/optimizer.h"
#include "engine/plugin.h"

namespace {

// clang-format off
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.throwing'\n"
  "name = 'Throwing'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "[[provides]]\n"
  "kind = '" ENG_OPTIMIZER_DRAFT "'\n"
  "name = 'throwing'\n")
// clang-format on

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  throw std::runtime_error("out of luck");
}
void stop() {}
const void* get_interface(const char*, const char*) {
  return nullptr;
}
const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
