// SPDX-License-Identifier: Apache-2.0
// Code that the four strategies share. They differ only in the roles of which a rank keeps a part.
//
//            WEIGHT  MASTER  STATE  GRAD
//   none     whole   whole   whole  part   (gathered for the update)
//   zero1    whole   part    part   part
//   zero2    whole   part    part   part
//   zero3    part    part    part   part
//
// With W ranks a part is 1/W of every piece; rank r keeps the r-th. PARTIAL and ACT are always whole, because every
// rank has its own sequences.
#pragma once

#include <cstdint>

#include "engine/plugin.h"
#include "engine/policy.h"

namespace zero {

constexpr uint32_t role(int32_t r) {
  return uint32_t{1} << r;
}

struct Strategy {
  const char* name;
  const char* description;
  uint32_t parted;  // the roles of which a rank keeps a part
};

// Each plugin has one.
extern const Strategy strategy;

}  // namespace zero

// clang-format off
#define ZERO_DESCRIPTION(name, summary) \
  "[plugin]\n" \
  "id = 'eng." name "'\n" \
  "name = '" name "'\n" \
  "version = '0.1.0'\n" \
  "license = 'Apache-2.0'\n" \
  "summary = '" summary "'\n" \
  "\n" \
  "[[provides]]\n" \
  "kind = '" ENG_ZERO_KIND "'\n" \
  "name = '" name "'\n" \
  "summary = '" summary "'\n" \
  "\n" \
  "[provides.options.fast]\n" \
  "type = 'bool'\n" \
  "default = false\n" \
  "help = \"sum gradients with the communicator's own reductions; the strategies then no longer give equal bits\"\n"
// clang-format on
