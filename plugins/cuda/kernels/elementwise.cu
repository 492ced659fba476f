// SPDX-License-Identifier: Apache-2.0
// One element of each input, one of each output: add, scale, cast, softcap, activation, gated, and their gradients.
#include "list.hpp"
#include "softcap.hpp"

namespace cuda {
namespace elementwise {

template <class A, class Y>
struct AddOf {  // of 16 bits and f32, a has the 16 bits
  const A* a;
  const Y* b;
  Y* y;
  static constexpr int width = widest<A, Y>;
  template <int W>
  __device__ void at(int64_t i) const {
    float u[W], v[W];
    load(a + i, u), load(b + i, v);
    for (int k = 0; k < W; ++k) u[k] += v[k];
    store(y + i, u);
  }
};

// f(x) for W elements of each of F::inputs: x[k] has those of input k, and becomes those of output k.
template <class F, class X, class Y>
struct MapOf {
  const X* in[F::inputs];
  Y* out[F::outputs];
  F f;
  static constexpr int width = widest<X, Y>;
  template <int W>
  __device__ void at(int64_t i) const {
    float x[F::inputs][W];
    for (int k = 0; k < F::inputs; ++k) load<W, F::nan>(in[k] + i, x[k]);
    f(x);
    for (int k = 0; k < F::outputs; ++k) store<W, F::nan>(out[k] + i, x[k]);
  }
};

template <class X, class Y>
struct WideCastOf {  // between f32 and f64
  const X* x;
  Y* y;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) y[i + k] = static_cast<Y>(x[i + k]);
  }
};

struct Slope {
  float value, slope;  // act(x), act'(x)
};
// The normal distribution below x, and its density times sqrt(2 pi). The distribution below -|x| is that times t P(t),
// t = 1 / (1 + 0.3 |x|); P is of the least relative error for |x| <= 7, 4.4e-8, found by Remez's algorithm.
__device__ __forceinline__ Slope normal(float x) {
  constexpr float of[] = {0.037010137f, -0.162526995f, 0.215003505f, -0.0610171892f,
                          0.131995261f, 0.0990599692f, 0.120848134f, 0.1196272f};
  const float t = reciprocal(fmaf(fabsf(x), 0.3f, 1.0f)), density = exp2_approx(x * x * -0.721347520f);
  float sum = of[0];
  for (int k = 1; k < 8; ++k) sum = fmaf(sum, t, of[k]);
  const float below = sum * t * density;
  return {x > 0 ? 1.0f - below : below, density};
}
template <int act>
__device__ __forceinline__ Slope activation(float x) {
  if constexpr (act == ENG_ACT_SILU) {
    const float open = sigmoid(x);
    return {x * open, open * fmaf(x, 1.0f - open, 1.0f)};
  } else if constexpr (act == ENG_ACT_GELU) {
    const Slope of = normal(x);
    return {x * of.value, fmaf(x * 0.398942280f, of.slope, of.value)};
  } else if constexpr (act == ENG_ACT_GELU_TANH) {  // 1 + tanh(z) = 2 sigmoid(2 z), and 1 - sigmoid = e sigmoid
    constexpr float twice_root = 1.59576912f;       // 2 sqrt(2 / pi)
    const float square = 0.044715f * x * x, e = exp_approx(fminf(-twice_root * fmaf(square, x, x), 80.0f));
    const float open = reciprocal(1.0f + e);
    return {x * open, fmaf(x * open * (e * open), twice_root * fmaf(square, 3.0f, 1.0f), open)};
  } else {  // relu
    return x > 0 ? Slope{x, 1.0f} : Slope{0.0f, 0.0f};
  }
}
// f(k, activation of x[k]) for all of a vector, for which the activation is chosen once.
template <int W, class F>
__device__ __forceinline__ void by_act(int act, const float (&x)[W], F&& f) {
  const auto all = [&]<int which>() {
    for (int k = 0; k < W; ++k) f(k, activation<which>(x[k]));
  };
  switch (act) {
    case ENG_ACT_SILU:
      return all.template operator()<ENG_ACT_SILU>();
    case ENG_ACT_GELU:
      return all.template operator()<ENG_ACT_GELU>();
    case ENG_ACT_GELU_TANH:
      return all.template operator()<ENG_ACT_GELU_TANH>();
    default:
      return all.template operator()<ENG_ACT_RELU>();
  }
}

// ---- ops -------------------------------------------------------------------------------------------------------

struct Add {
  static constexpr const char* op = ENG_OP_ADD;
  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    for (const eng_desc& d : c.in) need_float(d, "a or b"), need_size(d, elements(c.in[0]), "b");
    const int32_t x = c.in[0].dtype, z = c.in[1].dtype;
    if (x != z && x != ENG_F32 && z != ENG_F32) throw Error{ENG_UNSUPPORTED, "a and b differ in their 16-bit types"};
    need_tensor(c.out[0], x == z ? x : int32_t{ENG_F32}, elements(c.in[0]), "y");
  }
  static void run(const Call& c, const Args& args, cudaStream_t stream) {
    const size_t a = c.in[1].dtype == c.out[0].dtype ? 0 : 1, b = 1 - a;  // b has the type of y
    by_types(c.in[a].dtype, c.out[0].dtype, [&]<class A, class Y>(A, Y) {
      launch_each(elements(c.in[0]), stream, AddOf<A, Y>{args.in<A>(a), args.in<Y>(b), args.out<Y>(0)});
    });
  }
};

struct Cast : Exact {
  static constexpr const char* op = ENG_OP_CAST;
  static constexpr int inputs = 1, outputs = 1;
  static constexpr Nan nan = Nan::same;
  template <int W>
  __device__ void operator()(float (&)[1][W]) const {}  // reading and storing is all

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1), need_size(c.out[0], elements(c.in[0]), "y");
    const auto wide = [](const eng_desc& d) { return d.dtype == ENG_F32 || d.dtype == ENG_F64; };
    if (!(is_float(c.in[0]) && is_float(c.out[0])) && !(wide(c.in[0]) && wide(c.out[0])))
      throw Error{ENG_UNSUPPORTED, "casts f32, bf16 and f16 into each other, and f32 and f64"};
  }
  static void run(const Call& c, const Args& args, cudaStream_t stream) {
    const int32_t from = c.in[0].dtype, to = c.out[0].dtype;
    const int64_t n = elements(c.in[0]);
    const auto widely = [&]<class X, class Y>(X, Y) {
      launch_each(n, stream, WideCastOf<X, Y>{args.in<X>(0), args.out<Y>(0)});
    };
    if (from == ENG_F64) return to == ENG_F64 ? widely(double{}, double{}) : widely(double{}, float{});
    if (to == ENG_F64) return widely(float{}, double{});
    by_type(from, [&]<class X>(X) {
      by_type(to, [&]<class Y>(Y) {
        launch_each(n, stream, MapOf<Cast, X, Y>{{args.in<X>(0)}, {args.out<Y>(0)}, {}});
      });
    });
  }
};

// The ops whose inputs and outputs are alike. F reads its attributes from the call.
template <class F>
struct Map {
  static constexpr const char* op = F::op;
  static constexpr uint32_t flags = F::flags;
  F f;
  explicit Map(const Call& c) : f(c) {}
  static void check(const Call& c) {
    need_counts(c, F::inputs, F::inputs, F::outputs, F::outputs), need_float(c.in[0], "x");
    for (const eng_desc& d : c.in) need_tensor(d, c.in[0].dtype, elements(c.in[0]), "an input");
    for (const eng_desc& d : c.out) need_tensor(d, c.in[0].dtype, elements(c.in[0]), "an output");
    (void)F(c);
  }
  void run(const Call& c, const Args& args, cudaStream_t stream) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      MapOf<F, T, T> map{{}, {}, f};
      for (int k = 0; k < F::inputs; ++k) map.in[k] = args.in<T>(k);
      for (int k = 0; k < F::outputs; ++k) map.out[k] = args.out<T>(k);
      launch_each(elements(c.in[0]), stream, map);
    });
  }
};

struct Scale : Exact {
  static constexpr const char* op = ENG_OP_SCALE;
  static constexpr int inputs = 1, outputs = 1;
  static constexpr Nan nan = Nan::same;
  float factor;
  explicit Scale(const Call& c) : factor(static_cast<float>(c.real("factor"))) {}
  template <int W>
  __device__ void operator()(float (&x)[1][W]) const {
    for (int k = 0; k < W; ++k) x[0][k] *= factor;
  }
};

struct Softcap {
  static constexpr const char* op = ENG_OP_SOFTCAP;
  static constexpr uint32_t flags = 0;
  static constexpr int inputs = 1, outputs = 1;
  static constexpr Nan nan = Nan::any;
  float cap;
  explicit Softcap(const Call& c) : cap(need_cap(c)) {}
  template <int W>
  __device__ void operator()(float (&x)[1][W]) const {
    for (int k = 0; k < W; ++k) x[0][k] = cap * tanhf(x[0][k] / cap);
  }
};

// Base of the four ops with an activation.
template <int n_in, int n_out>
struct Activated {
  static constexpr uint32_t flags = 0;
  static constexpr int inputs = n_in, outputs = n_out;
  static constexpr Nan nan = Nan::any;
  int act;
  explicit Activated(const Call& c) : act(static_cast<int>(c.integer("act"))) {
    if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
      throw Error{ENG_UNSUPPORTED, "act = " + std::to_string(act) + " is unknown"};
  }
};
struct Activation : Activated<1, 1> {
  static constexpr const char* op = ENG_OP_ACTIVATION;
  using Activated::Activated;
  template <int W>
  __device__ void operator()(float (&x)[1][W]) const {
    by_act(act, x[0], [&](int k, Slope a) { x[0][k] = a.value; });
  }
};
struct ActivationGrad : Activated<2, 1> {  // of dy, x
  static constexpr const char* op = ENG_OP_ACTIVATION_GRAD;
  using Activated::Activated;
  template <int W>
  __device__ void operator()(float (&x)[2][W]) const {
    by_act(act, x[1], [&](int k, Slope a) { x[0][k] *= a.slope; });
  }
};
struct Gated : Activated<2, 1> {  // of gate, up
  static constexpr const char* op = ENG_OP_GATED;
  using Activated::Activated;
  template <int W>
  __device__ void operator()(float (&x)[2][W]) const {
    by_act(act, x[0], [&](int k, Slope a) { x[0][k] = x[1][k] * a.value; });
  }
};
struct GatedGrad : Activated<3, 2> {  // of dy, gate, up; makes dgate, dup
  static constexpr const char* op = ENG_OP_GATED_GRAD;
  using Activated::Activated;
  template <int W>
  __device__ void operator()(float (&x)[3][W]) const {
    by_act(act, x[1], [&](int k, Slope a) {
      const float dy = x[0][k];
      x[0][k] = dy * x[2][k] * a.slope, x[1][k] = dy * a.value;
    });
  }
};

}  // namespace elementwise

void add_elementwise(List& list) {
  using namespace elementwise;
  list.insert(list.end(),
              {&kernel<Add>, &kernel<Cast>, &kernel<Map<Scale>>, &kernel<Map<Softcap>>, &kernel<Map<Activation>>,
               &kernel<Map<ActivationGrad>>, &kernel<Map<Gated>>, &kernel<Map<GatedGrad>>});
}

}  // namespace cuda
