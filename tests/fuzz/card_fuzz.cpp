// SPDX-License-Identifier: Apache-2.0
// Any text as a card's file: accepted with what a plan relies on, or refused with a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/error.hpp"
#include "session/cards/card.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const eng::Card card = eng::read_card(std::string(reinterpret_cast<const char*>(data), size), "card.toml");
    if (card.plugin.empty() || card.workspace == 0) std::abort();
    if (card.reserve + card.communicator + card.workspace >= card.memory) std::abort();
    if (!(card.peak_f32 >= 0) || !(card.memory_bandwidth >= 0)) std::abort();
  } catch (const eng::Error& e) {
    if (e.exit() != eng::Exit::usage || std::string(e.what()).empty()) std::abort();
  }
  return 0;
}
