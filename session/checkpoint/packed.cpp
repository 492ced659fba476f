// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/packed.hpp"

#include <algorithm>

#include "engine/packed.h"

namespace eng {

static_assert(chunk == ENG_PACKED_CHUNK);

// Chunks that are copied at a time: at most 70 kB.
static constexpr uint64_t at_once = 16;

// Visits this rank's part of elements [first, first + n) of a tensor: visit(packed, held range, its first element that
// is visited, counted in the range, and in [first, first + n), number).
template <class Visit>
static void each_range(const Plan& plan, const TensorSpec& t, uint64_t first, uint64_t n, Visit visit) {
  const Tensor& tensor = plan.tensors[t.id];
  if (tensor.name != t.name || tensor.role != t.role) throw Error(Exit::bug, t.name + " is not the plan's");
  const auto before = [first](const HeldRange& e) { return e.end() <= first; };
  auto e = std::partition_point(tensor.ranges.begin(), tensor.ranges.end(), before);
  for (; e != tensor.ranges.end() && e->first < first + n; ++e) {
    const uint64_t begin = std::max(first, e->first), end = std::min(first + n, e->end());
    if (begin < end) visit(tensor.packed, *e, begin - e->first, begin - first, end - begin);
  }
}

// Into the arena.
Fill fill_of(const Plan& plan, Executor& executor) {
  return [&plan, &executor, packer = std::make_shared<PackedWriter>(executor)](const TensorSpec& t, uint64_t first,
                                                                               uint64_t n, const void* data) {
    const uint64_t size = dtype_size(t.dtype);
    const auto put = [&](int32_t packed, const HeldRange& held, uint64_t to, uint64_t from, uint64_t count) {
      const char* const values = static_cast<const char*>(data) + from * size;
      if (packed)
        packer->write(packed, held, to, count, reinterpret_cast<const float*>(values));
      else
        executor.upload(held.view, to * size, values, count * size);
    };
    each_range(plan, t, first, n, put);
  };
}

Read reader_of(const Plan& plan, Executor& executor) {
  return [&plan, &executor](const TensorSpec& t, uint64_t first, uint64_t n, void* host) {
    const uint64_t size = dtype_size(t.dtype);
    const auto get = [&](int32_t packed, const HeldRange& held, uint64_t from, uint64_t to, uint64_t count) {
      char* const values = static_cast<char*>(host) + to * size;
      if (packed)
        read_packed(executor, packed, held, from, count, reinterpret_cast<float*>(values));
      else
        executor.download(values, held.view, from * size, count * size);
    };
    each_range(plan, t, first, n, get);
  };
}

void read_packed(Executor& executor, int32_t packed, const HeldRange& held, uint64_t first, uint64_t n, float* out) {
  const uint64_t size = eng_packed_bytes(packed), end = first + n;
  std::vector<uint8_t> bytes(at_once * size);
  float levels[256];
  eng_packed_levels(packed, levels);
  std::vector<float> values(chunk);
  for (uint64_t k = first / chunk; k * chunk < end;) {
    const uint64_t many = std::min<uint64_t>(at_once, (end + chunk - 1) / chunk - k);
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
  std::vector<uint8_t> bytes(at_once * size);
  uint64_t begin = first / chunk, filled = 0;  // the chunks that `bytes` holds
  const auto put = [&] {
    if (filled) executor_.upload(held.view, begin * size, bytes.data(), filled * size);
    begin += filled;
    filled = 0;
  };
  for (uint64_t at = first; at < first + n;) {
    const uint64_t inside = at % chunk, some = std::min(chunk - inside, first + n - at);
    if (inside == 0)
      std::fill(chunk_.begin(), chunk_.end(), 0.0f);
    else if (held_ != &held || next_ != at)
      throw Error(Exit::bug, "packed weights are not written in ascending order");
    std::copy(values + (at - first), values + (at - first) + some, chunk_.begin() + ptrdiff_t(inside));
    at += some;
    held_ = &held, next_ = at;
    if (at % chunk && at != held.count) break;  // the rest of the chunk comes with the next elements
    eng_pack(packed, chunk_.data(), bytes.data() + filled++ * size);
    if (filled == at_once) put();
  }
  put();
}

}  // namespace eng
