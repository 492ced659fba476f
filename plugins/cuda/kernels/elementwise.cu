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
__device__ __forceinline__ Slope activation(int act, float x) {
  switch (act) {
    case ENG_ACT_SILU: {
      const float sigmoid = 1.0f / (1.0f + expf(-x));
      return {x * sigmoid, sigmoid * (1.0f + x * (1.0f - sigmoid))};
    }
    case ENG_ACT_GELU: {
      const float below = 0.5f * (1.0f + erff(x * 0.70710678118654752440f));  // normal distribution
      const float density = 0.39894228040143267794f * expf(-0.5f * x * x);    // and its density
      return {x * below, below + x * density};
    }
    case ENG_ACT_GELU_TANH: {
      const float root = 0.79788456080286535588f;  // sqrt(2 / pi)
      const float t = tanhf(root * (x + 0.044715f * x * x * x));
      const float inner = root * (1.0f + 3.0f * 0.044715f * x * x);
      return {0.5f * x * (1.0f + t), 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner};
    }
    default:  // relu
      return x > 0 ? Slope{x, 1.0f} : Slope{0.0f, 0.0f};
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
    load(x + i, u);
    for (int k = 0; k < W; ++k) u[k] = activation(act, u[k]).value;
    store(y + i, u);
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
    load(dy + i, g), load(x + i, u);
    for (int k = 0; k < W; ++k) g[k] *= activation(act, u[k]).slope;
    store(dx + i, g);
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
    load(gate + i, g), load(up + i, u);
    for (int k = 0; k < W; ++k) u[k] *= activation(act, g[k]).value;
    store(y + i, u);
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
    load(dy + i, d), load(gate + i, g), load(up + i, u);
    for (int k = 0; k < W; ++k) {
      const Slope a = activation(act, g[k]);
      g[k] = d[k] * u[k] * a.slope, u[k] = d[k] * a.value;
    }
    store(dgate + i, g), store(dup + i, u);
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
struct Activated {
  int32_t type;
  int64_t n;
  int act;
  explicit Activated(const Call& c) : type(c.in[0].dtype), n(elements(c.in[0])), act(act_of(c)) {}
};
struct Activation : Activated {
  static constexpr const char* op = ENG_OP_ACTIVATION;
  static void check(const Call& c) { need_alike(c, 1, 1), act_of(c); }
  using Activated::Activated;
  void run(const Args& args, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) { launch_each(n, stream, ActivationOf<T>{args.in<T>(0), args.out<T>(0), act}); });
  }
};
struct ActivationGrad : Activated {
  static constexpr const char* op = ENG_OP_ACTIVATION_GRAD;
  static void check(const Call& c) { need_alike(c, 2, 1), act_of(c); }
  using Activated::Activated;
  void run(const Args& args, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      launch_each(n, stream, ActivationGradOf<T>{args.in<T>(0), args.in<T>(1), args.out<T>(0), act});
    });
  }
};
struct Gated : Activated {
  static constexpr const char* op = ENG_OP_GATED;
  static void check(const Call& c) { need_alike(c, 2, 1), act_of(c); }
  using Activated::Activated;
  void run(const Args& args, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      launch_each(n, stream, GatedOf<T>{args.in<T>(0), args.in<T>(1), args.out<T>(0), act});
    });
  }
};
struct GatedGrad : Activated {
  static constexpr const char* op = ENG_OP_GATED_GRAD;
  static void check(const Call& c) { need_alike(c, 3, 2), act_of(c); }
  using Activated::Activated;
  void run(const Args& args, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      launch_each(n, stream,
                  GatedGradOf<T>{args.in<T>(0), args.in<T>(1), args.in<T>(2), args.out<T>(0), args.out<T>(1), act});
    });
  }
};

}  // namespace elementwise

void add_elementwise(List& list) {
  using namespace elementwise;
  list.insert(list.end(), {&kernel<Add>, &kernel<Scale>, &kernel<Cast>, &kernel<Activation>, &kernel<ActivationGrad>,
                           &kernel<Gated>, &kernel<GatedGrad>});
}

}  // namespace cuda
