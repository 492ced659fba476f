// SPDX-License-Identifier: Apache-2.0
// How a launch begins on emulated threads: ENG_EMULATED_ORDER = forward, backward or random:SEED is their order.
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
}
void finish(void*, const eng_exec&) {}

}  // namespace cuda
