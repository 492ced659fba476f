// SPDX-License-Identifier: Apache-2.0
#include "core/registry/normalise.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.hpp"
#include "engine/base.h"

namespace eng {

void copy_struct(const void* theirs, void* out, uint32_t size, uint32_t first_size, const std::string& what) {
  constexpr uint32_t most = 64u << 10;
  const std::string help = "build the plugin again with this engine's headers";
  if (!theirs) throw Error(Exit::environment, what + " is NULL", help);
  uint32_t given = 0;
  std::memcpy(&given, theirs, sizeof(given));
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::environment, fmt::format("{} states struct_size {}: {}", what, given, why), help);
  };
  if (given < first_size) refuse(fmt::format("ABI {}.0 has {} bytes", ENG_ABI_MAJOR, first_size));
  if (given > most) refuse(fmt::format("{} is the most", most));
  if (given % 8 != 0) refuse("it must be a multiple of 8");
  std::memset(out, 0, size);
  std::memcpy(out, theirs, std::min(given, size));
  for (uint32_t at = 8; at + 8 <= first_size; at += 8) {
    uint64_t slot = 0;
    std::memcpy(&slot, static_cast<const char*>(theirs) + at, sizeof(slot));
    if (!slot) throw Error(Exit::environment, fmt::format("{}: the pointer at byte {} is NULL", what, at), help);
  }
}

}  // namespace eng
