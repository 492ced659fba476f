// SPDX-License-Identifier: Apache-2.0
// gated and its gradient, all activations.
#include "reference.hpp"

namespace reference {
namespace {

struct Slope {
  double value, slope;  // act(x), act'(x)
};

Slope activation(int64_t act, double x) {
  switch (act) {
    case ENG_ACT_SILU: {
      const double sigmoid = 1.0 / (1.0 + std::exp(-x));
      return {x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid))};
    }
    case ENG_ACT_GELU: {
      const double below = 0.5 * (1.0 + std::erf(x * 0.70710678118654752440));  // normal distribution
      const double density = 0.39894228040143267794 * std::exp(-0.5 * x * x);   // and its density
      return {x * below, below + x * density};
    }
    case ENG_ACT_GELU_TANH: {
      const double root = 0.79788456080286535588;  // sqrt(2 / pi)
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      const double inner = root * (1.0 + 3.0 * 0.044715 * x * x);
      return {0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner};
    }
    default:
      return x > 0 ? Slope{x, 1.0} : Slope{0.0, 0.0};  // relu
  }
}

void expect_activation(const Call& c) {
  const int64_t act = c.integer("act");
  if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
    throw Error{ENG_UNSUPPORTED, "no activation has the number " + std::to_string(act)};
}

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
        // Read before either write: dgate and dup may lie where gate and up do.
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
  list.insert(list.end(), {&cpu::kernel<Gated>, &cpu::kernel<GatedGrad>});
}

}  // namespace reference
