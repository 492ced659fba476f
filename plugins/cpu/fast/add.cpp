// SPDX-License-Identifier: Apache-2.0
// y = a + b. If one of them is f32 and the other has 16 bits, y is f32.
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

struct Add {
  static constexpr const char* op = ENG_OP_ADD;
  const simd_table& simd;
  unsigned threads;
  int32_t type;       // of the narrower input
  bool mixed, first;  // first: the narrower input is a
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_float(c.in[0], "a"), need_float(c.in[1], "b");
    const eng_desc& sum = c.in[c.in[0].dtype == ENG_F32 ? 0 : 1];
    if (sum.dtype != ENG_F32) need_same_type(c.in[0], c.in[1], "a and b");
    need_size(c.in[1], elements(c.in[0]), "b");
    need_same(sum, c.out[0], "the wider input and y");
  }
  Add(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[c.in[0].dtype == ENG_F32 ? 1 : 0].dtype),
        mixed(c.in[0].dtype != c.in[1].dtype),
        first(c.in[0].dtype == type),
        n(elements(c.in[0])) {}
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      if (mixed) {
        const T* a = args.in<T>(first ? 0 : 1);
        const float* b = args.in<float>(first ? 1 : 0);
        float* y = args.out<float>(0);
        return in_lines(threads, n, [&](int64_t from, int64_t to) {
          simd.of<T>().add_wide(a + from, b + from, y + from, to - from);
        });
      }
      const T *a = args.in<T>(0), *b = args.in<T>(1);
      T* y = args.out<T>(0);
      in_lines(threads, n,
               [&](int64_t from, int64_t to) { simd.of<T>().add(a + from, b + from, y + from, to - from); });
    });
  }
};

}  // namespace

extern const eng_kernel* const add_kernels[] = {&kernel<Add>};
extern const uint32_t add_kernel_count = std::size(add_kernels);

}  // namespace cpu
