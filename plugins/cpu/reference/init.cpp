// SPDX-License-Identifier: Apache-2.0
// init_constant, init_normal, init_uniform. How an element becomes a number is written in common/philox.hpp.
#include "../../common/philox.hpp"
#include "reference.hpp"

namespace reference {
namespace {

void expect_output(const Call& c) {
  expect(c.in.empty() && c.out.size() == 1 && (is_real(c.out[0]) || is_half(c.out[0])),
         "takes nothing and gives out (n) in f32, f64, bf16 or f16");
  expect(c.integer("first") >= 0, "first must not be negative");
}

// value(e) for each element e of the part of the parameter that `out` is.
template <class Value>
void fill(const Call& c, const Args& a, Value&& value) {
  const int64_t first = c.integer("first");
  by_type(c.out[0].dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < elements(c.out[0]); ++i) a.out<T>(0)[i] = T(value(uint64_t(first + i)));
  });
}

struct InitConstant {
  static constexpr const char* op = ENG_OP_INIT_CONSTANT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  double value;

  explicit InitConstant(const Call& call) : c(call), value(c.real("value")) {}
  static void check(const Call& c) { expect_output(c), c.real("value"); }
  void run(const Args& a) const {
    fill(c, a, [&](uint64_t) { return value; });
  }
};

struct InitNormal {
  static constexpr const char* op = ENG_OP_INIT_NORMAL;
  Call c;
  double mean, std;
  uint64_t seed, stream;

  explicit InitNormal(const Call& call)
      : c(call),
        mean(c.real("mean")),
        std(c.real("std")),
        seed(uint64_t(c.integer("seed"))),
        stream(uint64_t(c.integer("stream"))) {}
  static void check(const Call& c) { expect_output(c), (void)InitNormal(c); }
  void run(const Args& a) const {
    fill(c, a, [&](uint64_t e) { return mean + std * common::philox_normal(e, stream, seed); });
  }
};

struct InitUniform {
  static constexpr const char* op = ENG_OP_INIT_UNIFORM;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  double low, high;
  uint64_t seed, stream;

  explicit InitUniform(const Call& call)
      : c(call),
        low(c.real("low")),
        high(c.real("high")),
        seed(uint64_t(c.integer("seed"))),
        stream(uint64_t(c.integer("stream"))) {}
  static void check(const Call& c) { expect_output(c), (void)InitUniform(c); }
  void run(const Args& a) const {
    fill(c, a, [&](uint64_t e) { return low + (high - low) * common::philox_uniform(e, stream, seed); });
  }
};

}  // namespace

void add_init(List& list) {
  list.insert(list.end(), {&common::kernel<InitConstant>, &common::kernel<InitNormal>, &common::kernel<InitUniform>});
}

}  // namespace reference
