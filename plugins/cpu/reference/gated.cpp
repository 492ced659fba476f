// SPDX-License-Identifier: Apache-2.0
// gated and its gradient.
#include "activation.hpp"

namespace reference {
namespace {

struct Gated {
  static constexpr const char* op = ENG_OP_GATED;
  Call c;
  int64_t act;

  explicit Gated(const Call& call) : c(call), act(c.integer("act")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 2, {0, 1}, 1, {0});
    expect_activation(c);
    expect(elements(c.in[1]) == elements(c.in[0]) && elements(c.out[0]) == elements(c.in[0]),
           "gate, up and y must have the same shape");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *gate = a.in<T>(0), *up = a.in<T>(1);
      for (int64_t i = 0; i < elements(c.in[0]); ++i)
        a.out<T>(0)[i] = T(activation(act, double(gate[i])).value * double(up[i]));
    });
  }
};

struct GatedGrad {
  static constexpr const char* op = ENG_OP_GATED_GRAD;
  Call c;
  int64_t act;

  explicit GatedGrad(const Call& call) : c(call), act(c.integer("act")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2});
    expect_types(c, 3, {0, 1, 2}, 2, {0, 1});
    expect_activation(c);
    const int64_t n = elements(c.in[0]);
    expect(elements(c.in[1]) == n && elements(c.in[2]) == n && elements(c.out[0]) == n && elements(c.out[1]) == n,
           "dy, gate, up, dgate and dup must have the same shape");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        // Both values are read before either is written: dgate and dup may share memory with gate and up.
        const double dy = double(a.in<T>(0)[i]), up = double(a.in<T>(2)[i]);
        const Slope s = activation(act, double(a.in<T>(1)[i]));
        a.out<T>(0)[i] = T(dy * up * s.slope);
        a.out<T>(1)[i] = T(dy * s.value);
      }
    });
  }
};

}  // namespace

void add_gated(List& list) {
  list.insert(list.end(), {&common::kernel<Gated>, &common::kernel<GatedGrad>});
}

}  // namespace reference
