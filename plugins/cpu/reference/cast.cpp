// SPDX-License-Identifier: Apache-2.0
// eng.cast/1: between f32, bf16 and f16, and between f32 and f64.
#include "../../common/half.hpp"
#include "reference.hpp"

namespace reference {
namespace {

// Calls body(T{}), where T is the C++ type of bf16, f16 or, for any other dtype, f32.
template <class Body>
void by_half(int32_t dtype, Body&& body) {
  if (dtype == ENG_BF16)
    body(cpu::Bf16{});
  else if (dtype == ENG_F16)
    body(cpu::F16{});
  else
    body(float{});
}

struct Cast {
  static constexpr const char* op = ENG_OP_CAST;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;

  explicit Cast(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_inputs(c, {0});
    expect(c.in.size() == 1 && c.out.size() == 1, "takes one input and gives one output");
    const int32_t from = c.in[0].dtype, to = c.out[0].dtype;
    const auto narrow = [](int32_t t) { return t == ENG_F32 || t == ENG_BF16 || t == ENG_F16; };
    const auto wide = [](int32_t t) { return t == ENG_F32 || t == ENG_F64; };
    if (!(narrow(from) && narrow(to)) && !(wide(from) && wide(to)))
      throw Error{ENG_UNSUPPORTED, "casts f32, bf16 and f16 into each other, and f32 and f64"};
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
  }
  void run(const Args& a) const {
    const int64_t n = elements(c.in[0]);
    if (c.in[0].dtype == ENG_F64 || c.out[0].dtype == ENG_F64) {
      const Reals x(c, a, 0);
      const RealsOut y(c, a, 0);
      for (int64_t i = 0; i < n; ++i) y.set(i, x[i]);
      return;
    }
    by_half(c.in[0].dtype, [&]<class From>(From) {
      by_half(c.out[0].dtype, [&]<class To>(To) {
        for (int64_t i = 0; i < n; ++i) cpu::from_f32(cpu::to_f32(a.in<From>(0)[i]), a.out<To>(0)[i]);
      });
    });
  }
};

}  // namespace

void add_cast(List& list) {
  list.push_back(&cpu::kernel<Cast>);
}

}  // namespace reference
