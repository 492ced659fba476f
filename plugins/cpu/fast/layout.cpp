// SPDX-License-Identifier: Apache-2.0
// reshape, transpose, split and concat.
#include "../../common/layout.hpp"

#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

struct AllThreads {
  template <class F>
  static void ranges(unsigned threads, int64_t n, int64_t weight, F&& f) {
    in_ranges(threads, n, weight, 1, f);
  }
};

}  // namespace

extern const eng_kernel* const layout_kernels[] = {&kernel<ReshapeKernel<AllThreads>>,
                                                   &kernel<TransposeKernel<AllThreads>>,
                                                   &kernel<SplitKernel<AllThreads>>, &kernel<ConcatKernel<AllThreads>>};
extern const uint32_t layout_kernel_count = std::size(layout_kernels);

}  // namespace cpu
