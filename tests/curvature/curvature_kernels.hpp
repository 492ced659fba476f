// SPDX-License-Identifier: Apache-2.0
// The plugin's kernels on a device, and calls of its ops.
#pragma once

#include "../kernels/kernel_harness.hpp"

namespace curvature_test {

using namespace kernels_test;
using Tensors = std::vector<Tensor>;

#define PERTURB "eng.curvature.perturb/1"
#define NOISE "eng.curvature.noise/1"
#define HUTCHINSON "eng.curvature.hutchinson/1"
#define FISHER "eng.curvature.fisher/1"
#define COPY "eng.curvature.copy/1"
#define COUNT "eng.curvature.count/1"

inline const eng_plugin* curvature_plugin() {
  static const eng_plugin* const plugin = [] {
    void* library = dlopen((std::string(ENGINE_PLUGIN_DIR) + "/curvature/curvature.eng.so").c_str(), RTLD_NOW);
    if (!library) throw std::runtime_error(dlerror());
    return reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"))(ENG_ABI_MINOR);
  }();
  return plugin;
}
inline const eng_kernels* kernels_of(const char* kind, const char* name) {
  return static_cast<const eng_kernels*>(curvature_plugin()->get_interface(kind, name));
}

struct Plain : Device {
  Plain() : Device("cpu/reference.eng.so", "reference") { kernels = kernels_of(ENG_KERNELS_KIND, "reference"); }
};
struct Fast : Device {
  explicit Fast(const std::string& isa, int64_t threads) : Device("cpu/cpu.eng.so", "cpu", threads) {
    kernels = isa == "auto" ? kernels_of(ENG_KERNELS_KIND, "cpu") : kernels_of("eng.curvature.kernels/1", isa.c_str());
    info.parallel = static_cast<uint32_t>(threads);
  }
};
inline const Device& plain() {
  static const Plain device;
  return device;
}
inline std::vector<std::string> isas() {
  std::vector<std::string> out = {"portable"};
  if (kernels_of("eng.curvature.kernels/1", "avx2")) out.push_back("avx2");
  return out;
}

// The values that determine the random numbers.
struct Drawing {
  int64_t seed = 42, stream = 3, first = 0, counter = 0;
  double rate = 1.0;
  std::vector<eng_attr> attrs() const {
    return {whole("seed", seed), whole("stream", stream), whole("first", first), real("rate", rate)};
  }
};

inline Tensor scalars_of(std::initializer_list<double> numbers) {
  Tensor s(ENG_F32, {ENG_S_COUNT});
  for (int64_t i = 0; i < s.size(); ++i) s.put(i, -7.0);
  int64_t at = ENG_S_LR;
  for (double x : numbers) s.put(at++, x);
  return s;
}
inline Tensor counters_of(int64_t updates) {
  Tensor c(ENG_I64, {ENG_C_COUNT});
  for (int64_t i = 0; i < c.size(); ++i) c.put(i, 0);
  c.put(ENG_C_UPDATES, double(updates));
  return c;
}

inline Tensor perturb(const Device& d, const Tensor& base, double a, const Drawing& by, double share = 1.0) {
  return d.run(PERTURB, {base, scalars_of({a, share}), counters_of(by.counter)}, {base.d}, by.attrs())[0];
}
inline Tensor noise(const Device& d, const Tensor& base, const Tensor& classes, const Tensor& scale, double sigma,
                    int wanted, const Drawing& by) {
  return d.run(NOISE, {base, classes, scale, scalars_of({sigma, double(wanted)}), counters_of(by.counter)}, {base.d},
               by.attrs())[0];
}
inline Tensors hutchinson(const Device& d, const Tensor& plus, const Tensor& grad, const Tensors& moments,
                          double factor, double weight, const Drawing& by, double share = 1.0) {
  return d.run(HUTCHINSON,
               {plus, grad, moments[0], moments[1], scalars_of({factor, share, weight}), counters_of(by.counter)},
               {plus.d, plus.d}, by.attrs(), {{0, 2}, {1, 3}});
}
inline Tensors fisher(const Device& d, const Tensor& grad, const Tensors& moments, double factor, double weight) {
  return d.run(FISHER, {grad, moments[0], moments[1], scalars_of({factor, 0.0, weight})}, {grad.d, grad.d}, {},
               {{0, 1}, {1, 2}});
}
inline Tensor count(const Device& d, const Tensor& x, const Tensor& into, double threshold) {
  return d.run(COUNT, {x, into}, {into.d}, {real("threshold", threshold)}, {{0, 1}})[0];
}

inline Tensor constant(int32_t dtype, const Dims& dims, double value) {
  Tensor t(dtype, dims);
  for (int64_t i = 0; i < t.size(); ++i) t.put(i, value);
  return t;
}
// Elements first .. first + n - 1.
inline Tensor part(const Tensor& t, int64_t first, int64_t n) {
  Tensor out(t.d.dtype, {n});
  const size_t size = dtype_size(t.d.dtype);
  std::memcpy(out.memory.data(), t.memory.data() + first * int64_t(size), size_t(n) * size);
  return out;
}

}  // namespace curvature_test
