// SPDX-License-Identifier: Apache-2.0
// Initial values, computed in f64 and rounded once. An element depends on (seed, stream, its number in the parameter)
// alone; common/philox.hpp says how.
#include <iterator>

#include "../../common/philox.hpp"
#include "../../common/reals.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

void check_output(const Call& c) {
  need_counts(c, 0, 0, 1, 1);
  need_float(c.out[0], "out");
  if (c.integer("first") < 0)
    throw Error{ENG_INVALID, "first = " + std::to_string(c.integer("first")) + " is negative"};
}

struct InitConstant {
  static constexpr const char* op = ENG_OP_INIT_CONSTANT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  unsigned threads;
  int32_t type;
  int64_t n;
  double value;

  static void check(const Call& c) { check_output(c), c.real("value"); }
  explicit InitConstant(const Call& c)
      : threads(c.parallel), type(c.out[0].dtype), n(elements(c.out[0])), value(c.real("value")) {}
  void run(const Args& args) const {
    const Reals out(args.out<void>(0), type);
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) out.set(i, value);
    });
  }
};

// Not EXACT: logarithm and cosine are the C library's.
struct InitNormal {
  static constexpr const char* op = ENG_OP_INIT_NORMAL;
  unsigned threads;
  int32_t type;
  int64_t n, base;
  double mean, std;
  uint64_t seed, stream;

  static void check(const Call& c) { check_output(c), (void)InitNormal(c); }
  explicit InitNormal(const Call& c)
      : threads(c.parallel),
        type(c.out[0].dtype),
        n(elements(c.out[0])),
        base(c.integer("first")),
        mean(c.real("mean")),
        std(c.real("std")),
        seed(static_cast<uint64_t>(c.integer("seed"))),
        stream(static_cast<uint64_t>(c.integer("stream"))) {}
  void run(const Args& args) const {
    const Reals out(args.out<void>(0), type);
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last;) {
        const uint64_t e = static_cast<uint64_t>(base + i);
        const auto z = philox_normal_pair(e / 2, stream, seed);  // elements e and e + 1 if e is even
        for (uint64_t k = e % 2; k < 2 && i < last; ++k, ++i) out.set(i, mean + std * z[k]);
      }
    });
  }
};

struct InitUniform {
  static constexpr const char* op = ENG_OP_INIT_UNIFORM;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  unsigned threads;
  int32_t type;
  int64_t n, base;
  double low, high;
  uint64_t seed, stream;

  static void check(const Call& c) { check_output(c), (void)InitUniform(c); }
  explicit InitUniform(const Call& c)
      : threads(c.parallel),
        type(c.out[0].dtype),
        n(elements(c.out[0])),
        base(c.integer("first")),
        low(c.real("low")),
        high(c.real("high")),
        seed(static_cast<uint64_t>(c.integer("seed"))),
        stream(static_cast<uint64_t>(c.integer("stream"))) {}
  void run(const Args& args) const {
    const Reals out(args.out<void>(0), type);
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last;) {
        const uint64_t e = static_cast<uint64_t>(base + i);
        const PhiloxWords words = philox4x32_10(e / 4, stream, seed);  // elements of one block of four
        for (uint64_t k = e % 4; k < 4 && i < last; ++k, ++i) out.set(i, low + (high - low) * philox_unit(words[k]));
      }
    });
  }
};

}  // namespace

extern const eng_kernel* const init_kernels[] = {&kernel<InitConstant>, &kernel<InitNormal>, &kernel<InitUniform>};
extern const uint32_t init_kernel_count = std::size(init_kernels);

}  // namespace cpu
