// SPDX-License-Identifier: Apache-2.0
#include "session/train/packed.hpp"

#include <algorithm>

#include "engine/packed.h"

namespace eng {

static_assert(chunk == ENG_PACKED_CHUNK);

void read_packed(Executor& executor, int32_t packed, const HeldRange& held, uint64_t first, uint64_t n, float* out) {
  const uint64_t size = eng_packed_bytes(packed), end = first + n;
  std::vector<uint8_t> bytes(256 * size);
  float levels[256];
  eng_packed_levels(packed, levels);
  std::vector<float> values(chunk);
  for (uint64_t k = first / chunk; k * chunk < end;) {
    const uint64_t many = std::min<uint64_t>(256, (end + chunk - 1) / chunk - k);
    executor.download(bytes.data(), held.view, k * size, many * size);
    for (uint64_t c = 0; c < many; ++c, ++k) {
      eng_unpack(packed, levels, bytes.data() + c * size, 0, ENG_PACKED_CHUNK, values.data());
      const uint64_t from = std::max(first, k * chunk), until = std::min(end, (k + 1) * chunk);
      std::copy(values.begin() + ptrdiff_t(from - k * chunk), values.begin() + ptrdiff_t(until - k * chunk),
                out + (from - first));
    }
  }
}

void PackedWriter::write(int32_t packed, const HeldRange& held, uint64_t first, uint64_t n, const float* values) {
  const uint64_t size = eng_packed_bytes(packed);
  std::vector<uint8_t> bytes;  // complete chunks
  uint64_t begin = first / chunk;
  for (uint64_t at = first; at < first + n;) {
    const uint64_t k = at / chunk, inside = at % chunk, some = std::min(chunk - inside, first + n - at);
    if (inside == 0)
      std::fill(chunk_.begin(), chunk_.end(), 0.0f);
    else if (held_ != &held || next_ != at)
      throw Error(Exit::bug, "packed weights are not written in ascending order");
    std::copy(values + (at - first), values + (at - first) + some, chunk_.begin() + ptrdiff_t(inside));
    at += some;
    held_ = &held, next_ = at;
    if (at % chunk && at != held.count) break;  // the rest of the chunk comes with the next elements
    bytes.resize(bytes.size() + size);
    eng_pack(packed, chunk_.data(), bytes.data() + (k - begin) * size);
  }
  if (!bytes.empty()) executor_.upload(held.view, begin * size, bytes.data(), bytes.size());
}

}  // namespace eng
