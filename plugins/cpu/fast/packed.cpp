// SPDX-License-Identifier: Apache-2.0
// pack and unpack.
#include "../../common/packed.hpp"

#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

struct ByChunks {
  template <class F>
  static void ranges(unsigned threads, int64_t n, int64_t weight, F&& f) {
    in_ranges(threads, n, weight, 1, f);
  }
};

}  // namespace

extern const eng_kernel* const packed_kernels[] = {&kernel<PackKernel<ByChunks>>, &kernel<UnpackKernel<ByChunks>>};
extern const uint32_t packed_kernel_count = std::size(packed_kernels);

}  // namespace cpu
