// SPDX-License-Identifier: Apache-2.0
// eng.cast/1: between f32, bf16 and f16, and between f32 and f64.
#include "reference.hpp"

namespace reference {
namespace {

// A NaN keeps the bits that fit.
template <class From, class To>
void convert(From x, To& y) {
  if constexpr (std::is_same_v<From, double> || std::is_same_v<To, double>)
    y = To(x);
  else
    common::from_f32(common::to_f32(x), y);
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
    by_type(c.in[0].dtype, [&]<class From>(From) {
      by_type(c.out[0].dtype, [&]<class To>(To) {
        for (int64_t i = 0; i < n; ++i) convert(a.in<From>(0)[i], a.out<To>(0)[i]);
      });
    });
  }
};

}  // namespace

void add_cast(List& list) {
  list.push_back(&common::kernel<Cast>);
}

}  // namespace reference
