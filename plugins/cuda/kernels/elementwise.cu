// SPDX-License-Identifier: Apache-2.0
// One element of each input, one of each output: add, scale, cast, activation, gated, and their gradients.
#include "../../common/cuda/glue.hpp"
#include "list.hpp"

namespace cuda {
namespace elementwise {

template <class A, class B, class Y>
struct AddOf {
  const A* a;
  const B* b;
  Y* y;
  static constexpr int width = widest<A, B, Y>;
  template <int W>
  __device__ void at(int64_t i) const {
    float u[W], v[W];
    load(a + i, u), load(b + i, v);
    for (int k = 0; k < W; ++k) u[k] += v[k];
    store(y + i, u);
  }
};

template <class T>
struct ScaleOf {
  const T* x;
  T* y;
  float factor;
  static constexpr int width = widest<T>;
  template <int W>
  __device__ void at(int64_t i) const {
    float u[W];
    load(x + i, u);
    for (int k = 0; k < W; ++k) u[k] *= factor;
    store(y + i, u);
  }
};

template <class X, class Y>
struct CastOf {
  const X* x;
  Y* y;
  static constexpr int width = widest<X, Y>;
  template <int W>
  __device__ void at(int64_t i) const {
    float u[W];
    load(x + i, u);
    store(y + i, u);
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
// f<act>(): chosen once for all elements of a vector.
template <class F>
__device__ __forceinline__ void by_act(int act, F&& f) {
  switch (act) {
    case ENG_ACT_SILU:
      return f.template operator()<ENG_ACT_SILU>();
    case ENG_ACT_GELU:
      return f.template operator()<ENG_ACT_GELU>();
    case ENG_ACT_GELU_TANH:
      return f.template operator()<ENG_ACT_GELU_TANH>();
    default:
      return f.template operator()<ENG_ACT_RELU>();
  }
}

template <class T>
struct ActivationOf {
  const T* x;
  T* y;
  int act;
  static constexpr int width = widest<T>;
  template <int W>
  __device__ void at(int64_t i) const {
    float u[W];
    load<W, Nan::any>(x + i, u);
    by_act(act, [&]<int which>() {
      for (int k = 0; k < W; ++k) u[k] = activation<which>(u[k]).value;
    });
    store<W, Nan::any>(y + i, u);
  }
};
template <class T>
struct ActivationGradOf {
  const T *dy, *x;
  T* dx;
  int act;
  static constexpr int width = widest<T>;
  template <int W>
  __device__ void at(int64_t i) const {
    float g[W], u[W];
    load<W, Nan::any>(dy + i, g), load<W, Nan::any>(x + i, u);
    by_act(act, [&]<int which>() {
      for (int k = 0; k < W; ++k) g[k] *= activation<which>(u[k]).slope;
    });
    store<W, Nan::any>(dx + i, g);
  }
};
template <class T>
struct GatedOf {
  const T *gate, *up;
  T* y;
  int act;
  static constexpr int width = widest<T>;
  template <int W>
  __device__ void at(int64_t i) const {
    float g[W], u[W];
    load<W, Nan::any>(gate + i, g), load<W, Nan::any>(up + i, u);
    by_act(act, [&]<int which>() {
      for (int k = 0; k < W; ++k) u[k] *= activation<which>(g[k]).value;
    });
    store<W, Nan::any>(y + i, u);
  }
};
template <class T>
struct GatedGradOf {
  const T *dy, *gate, *up;
  T *dgate, *dup;
  int act;
  static constexpr int width = widest<T>;
  template <int W>
  __device__ void at(int64_t i) const {
    float d[W], g[W], u[W];
    load<W, Nan::any>(dy + i, d), load<W, Nan::any>(gate + i, g), load<W, Nan::any>(up + i, u);
    by_act(act, [&]<int which>() {
      for (int k = 0; k < W; ++k) {
        const Slope a = activation<which>(g[k]);
        g[k] = d[k] * u[k] * a.slope, u[k] = d[k] * a.value;
      }
    });
    store<W, Nan::any>(dgate + i, g), store<W, Nan::any>(dup + i, u);
  }
};

// ---- ops -------------------------------------------------------------------------------------------------------

void need_alike(const Call& c, size_t n_in, size_t n_out) {
  need_counts(c, n_in, n_in, n_out, n_out);
  need_float(c.in[0], "x");
  for (const eng_desc& d : c.in) need_type(d, c.in[0].dtype, "an input"), need_size(d, elements(c.in[0]), "an input");
  for (const eng_desc& d : c.out)
    need_type(d, c.in[0].dtype, "an output"), need_size(d, elements(c.in[0]), "an output");
}
int act_of(const Call& c) {
  const int64_t act = c.integer("act");
  if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
    throw Error{ENG_UNSUPPORTED, "act = " + std::to_string(act) + " is unknown"};
  return static_cast<int>(act);
}

struct Add {
  static constexpr const char* op = ENG_OP_ADD;
  int32_t a, b, y;
  int64_t n;
  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    for (const eng_desc& d : c.in) need_float(d, "a or b"), need_size(d, elements(c.in[0]), "b");
    const int32_t x = c.in[0].dtype, z = c.in[1].dtype;
    if (x != z && x != ENG_F32 && z != ENG_F32) throw Error{ENG_UNSUPPORTED, "a and b differ in their 16-bit types"};
    need_type(c.out[0], x == z ? x : int32_t{ENG_F32}, "y"), need_size(c.out[0], elements(c.in[0]), "y");
  }
  explicit Add(const Call& c) : a(c.in[0].dtype), b(c.in[1].dtype), y(c.out[0].dtype), n(elements(c.in[0])) {}
  void run(const Args& args, cudaStream_t stream) const {
    by_type(a, [&]<class A>(A) {
      if (a == b)
        launch_each(n, stream, AddOf<A, A, A>{args.in<A>(0), args.in<A>(1), args.out<A>(0)});
      else if (b == ENG_F32)
        launch_each(n, stream, AddOf<A, float, float>{args.in<A>(0), args.in<float>(1), args.out<float>(0)});
      else
        by_type(b, [&]<class B>(B) {
          launch_each(n, stream, AddOf<float, B, float>{args.in<float>(0), args.in<B>(1), args.out<float>(0)});
        });
    });
  }
};

struct Scale {
  static constexpr const char* op = ENG_OP_SCALE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t type;
  int64_t n;
  float factor;
  static void check(const Call& c) { need_alike(c, 1, 1), c.real("factor"); }
  explicit Scale(const Call& c)
      : type(c.in[0].dtype), n(elements(c.in[0])), factor(static_cast<float>(c.real("factor"))) {}
  void run(const Args& args, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) { launch_each(n, stream, ScaleOf<T>{args.in<T>(0), args.out<T>(0), factor}); });
  }
};

struct Cast {
  static constexpr const char* op = ENG_OP_CAST;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t from, to;
  int64_t n;
  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1), need_size(c.out[0], elements(c.in[0]), "y");
    const auto wide = [](const eng_desc& d) { return d.dtype == ENG_F32 || d.dtype == ENG_F64; };
    if (!(is_float(c.in[0]) && is_float(c.out[0])) && !(wide(c.in[0]) && wide(c.out[0])))
      throw Error{ENG_UNSUPPORTED, "casts f32, bf16 and f16 into each other, and f32 and f64"};
  }
  explicit Cast(const Call& c) : from(c.in[0].dtype), to(c.out[0].dtype), n(elements(c.in[0])) {}
  template <class X, class Y>
  void widely(const Args& args, cudaStream_t stream) const {
    launch_each(n, stream, WideCastOf<X, Y>{args.in<X>(0), args.out<Y>(0)});
  }
  void run(const Args& args, cudaStream_t stream) const {
    if (from == ENG_F64)
      return to == ENG_F64 ? widely<double, double>(args, stream) : widely<double, float>(args, stream);
    if (to == ENG_F64) return widely<float, double>(args, stream);
    by_type(from, [&]<class X>(X) {
      by_type(to, [&]<class Y>(Y) { launch_each(n, stream, CastOf<X, Y>{args.in<X>(0), args.out<Y>(0)}); });
    });
  }
};

// What the four with an activation have in common.
template <template <class> class Of, size_t n_in, size_t n_out>
struct Activated {
  int32_t type;
  int64_t n;
  int act;
  static void check(const Call& c) { need_alike(c, n_in, n_out), act_of(c); }
  explicit Activated(const Call& c) : type(c.in[0].dtype), n(elements(c.in[0])), act(act_of(c)) {}
  void run(const Args& args, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      [&]<size_t... I, size_t... O>(std::index_sequence<I...>, std::index_sequence<O...>) {
        launch_each(n, stream, Of<T>{args.in<T>(I)..., args.out<T>(O)..., act});
      }
      (std::make_index_sequence<n_in>(), std::make_index_sequence<n_out>());
    });
  }
};
struct Activation : Activated<ActivationOf, 1, 1> {
  static constexpr const char* op = ENG_OP_ACTIVATION;
  using Activated::Activated;
};
struct ActivationGrad : Activated<ActivationGradOf, 2, 1> {
  static constexpr const char* op = ENG_OP_ACTIVATION_GRAD;
  using Activated::Activated;
};
struct Gated : Activated<GatedOf, 2, 1> {
  static constexpr const char* op = ENG_OP_GATED;
  using Activated::Activated;
};
struct GatedGrad : Activated<GatedGradOf, 3, 2> {
  static constexpr const char* op = ENG_OP_GATED_GRAD;
  using Activated::Activated;
};

}  // namespace elementwise

void add_elementwise(List& list) {
  using namespace elementwise;
  list.insert(list.end(), {&kernel<Add>, &kernel<Scale>, &kernel<Cast>, &kernel<Activation>, &kernel<ActivationGrad>,
                           &kernel<Gated>, &kernel<GatedGrad>});
}

}  // namespace cuda
