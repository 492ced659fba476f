// SPDX-License-Identifier: Apache-2.0
// The keys of [offload] that this tier reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../../common/error.hpp"

namespace nvme {

using common::Error;

// The unit of checksums and of whole writes: files and arenas consist of blocks of 4,096 bytes.
constexpr uint64_t page = 4096;

struct Settings {
  std::vector<std::string> paths;  // at least one
  uint64_t block = 1 << 20;        // bytes of the largest request, and of a stripe
  uint32_t depth = 16;             // requests in flight
  bool direct = true;              // past the page cache
  double read_bandwidth = 0, write_bandwidth = 0;
};

Settings read_settings(const eng_options* options);

}  // namespace nvme
