// SPDX-License-Identifier: Apache-2.0
// y = a + b.
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

struct Add {
  static constexpr const char* op = ENG_OP_ADD;
  const simd_table& simd;
  unsigned threads;
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_f32(c.in[0], "a");
    need_same(c.in[0], c.in[1], "a and b");
    need_same(c.in[0], c.out[0], "a and y");
  }
  Add(const Call& c, void* device) : simd(simd_for(device)), threads(c.parallel), n(elements(c.in[0])) {}
  void run(const Args& args) const {
    const float *a = args.in<float>(0), *b = args.in<float>(1);
    float* y = args.out<float>(0);
    in_lines(threads, n, [&](int64_t first, int64_t last) { simd.add(a + first, b + first, y + first, last - first); });
  }
};

}  // namespace

extern const eng_kernel* const add_kernels[] = {&kernel<Add>};
extern const uint32_t add_kernel_count = std::size(add_kernels);

}  // namespace cpu
