// SPDX-License-Identifier: Apache-2.0
// activation and its gradient, scale.
#include "activation.hpp"

namespace reference {
namespace {

struct Activation {
  static constexpr const char* op = ENG_OP_ACTIVATION;
  Call c;
  int64_t act;

  explicit Activation(const Call& call) : c(call), act(c.integer("act")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0});
    expect_types(c, 1, {0}, 1, {0});
    expect_activation(c);
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < elements(c.in[0]); ++i) a.out<T>(0)[i] = T(activation(act, double(a.in<T>(0)[i])).value);
    });
  }
};

struct ActivationGrad {
  static constexpr const char* op = ENG_OP_ACTIVATION_GRAD;
  Call c;
  int64_t act;

  explicit ActivationGrad(const Call& call) : c(call), act(c.integer("act")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 2, {0, 1}, 1, {0});
    expect_activation(c);
    expect(elements(c.in[1]) == elements(c.in[0]) && elements(c.out[0]) == elements(c.in[0]),
           "dy, x and dx must have the same shape");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < elements(c.in[0]); ++i)
        a.out<T>(0)[i] = T(double(a.in<T>(0)[i]) * activation(act, double(a.in<T>(1)[i])).slope);
    });
  }
};

struct Scale {
  static constexpr const char* op = ENG_OP_SCALE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  double factor;

  explicit Scale(const Call& call) : c(call), factor(c.real("factor")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0});
    expect_types(c, 1, {0}, 1, {0});
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
    c.real("factor");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < elements(c.in[0]); ++i) a.out<T>(0)[i] = T(Arithmetic<T>(factor) * a.in<T>(0)[i]);
    });
  }
};

}  // namespace

void add_activation(List& list) {
  list.insert(list.end(), {&common::kernel<Activation>, &common::kernel<ActivationGrad>, &common::kernel<Scale>});
}

}  // namespace reference
