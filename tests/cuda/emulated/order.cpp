// SPDX-License-Identifier: Apache-2.0
// The beginning of a launch on emulated threads:
//   ENG_EMULATED_ORDER = forward, backward or random:SEED is their order;
//   ENG_EMULATED_BLOCK = N runs only one block of each grid: N modulo their number;
//   ENG_EMULATED_WITHOUT = FILE:LINE plants a mistake: the barrier there is none.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "plugins/common/cuda/glue.hpp"

namespace cuda {

void enter(void*, const eng_exec&) {
  const char* order = std::getenv("ENG_EMULATED_ORDER");
  const std::string text = order ? order : "forward";
  emu::settings.order = text == "backward"           ? emu::Order::backward
                        : text.starts_with("random") ? emu::Order::random
                                                     : emu::Order::forward;
  if (text.starts_with("random:")) emu::settings.seed = std::strtoull(text.c_str() + 7, nullptr, 10);
  const char* block = std::getenv("ENG_EMULATED_BLOCK");
  emu::settings.block = block ? std::strtoull(block, nullptr, 10) : UINT64_MAX;
  static std::string file;
  const char* without = std::getenv("ENG_EMULATED_WITHOUT");
  file = without ? without : ":0";
  const size_t colon = file.rfind(':');
  const int line = std::atoi(file.c_str() + colon + 1);
  file.resize(colon);
  emu::settings.without = {file.c_str(), line};
}
void finish(void*, const eng_exec&) {}

}  // namespace cuda
