// SPDX-License-Identifier: Apache-2.0
// The plugin's kernels on a device, and what the ops take.
#pragma once

#include "../kernels/half_units.hpp"

namespace mamba_test {

using namespace kernels_test;
using Tensors = std::vector<Tensor>;

#define CONV "eng.mamba.causal_conv1d/1"
#define CONV_GRAD "eng.mamba.causal_conv1d_grad/1"
#define CONV_STEP "eng.mamba.causal_conv1d_step/1"
#define SCAN_STEP "eng.mamba.selective_scan_step/1"
#define SCAN "eng.mamba.selective_scan/1"
#define SCAN_GRAD "eng.mamba.selective_scan_grad/1"
constexpr int64_t chunk = 64;  // tokens between two kept states

inline const eng_kernels* kernels_of(const char* kind, const char* name) {
  static const eng_plugin* const plugin = [] {
    void* library = dlopen((std::string(ENGINE_PLUGIN_DIR) + "/mamba/mamba.eng.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    return reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"))(ENG_ABI_MINOR);
  }();
  return static_cast<const eng_kernels*>(plugin->get_interface(kind, name));
}

inline const Device& reference_scan() {
  static Device device("cpu/reference.eng.so", "reference");
  device.kernels = kernels_of(ENG_KERNELS_KIND, "reference");
  return device;
}

// The device cpu with the plugin's kernels for one instruction set, or for the best ("auto").
struct Fast : Device {
  Fast(const std::string& isa, int64_t threads) : Device("cpu/cpu.eng.so", "cpu", threads) {
    kernels = isa == "auto" ? kernels_of(ENG_KERNELS_KIND, "cpu") : kernels_of("eng.mamba.kernels/1", isa.c_str());
    info.parallel = static_cast<uint32_t>(threads);
  }
};

// Sizes and which optional parts there are.
struct Shape {
  int64_t B, T, E, N, K, G;
  bool bias = true, add = false;
  int64_t chunks() const { return (T + chunk - 1) / chunk; }
};

// Whole and partial registers, blocks and chunks; states from 8 to 64; a gate beside other columns.
inline const Shape shapes[] = {{1, 1, 1, 1, 4, 1},       {2, 7, 5, 8, 4, 10},          {1, 64, 16, 16, 3, 32},
                               {1, 65, 33, 16, 2, 66},   {2, 130, 70, 12, 4, 140},     {1, 20, 100, 64, 4, 100, false},
                               {1, 9, 2100, 8, 4, 4200}, {3, 70, 48, 16, 4, 96, false}};

inline std::vector<std::string> isas() {
  std::vector<std::string> out;
  for (const char* name : {"portable", "avx2", "avx512"})
    if (kernels_of("eng.mamba.kernels/1", name)) out.push_back(name);
  return out;
}

inline bool same_bits(const Tensors& a, const Tensors& b) {
  bool same = a.size() == b.size();
  for (size_t k = 0; same && k < a.size(); ++k) same = a[k].same_bits(b[k]);
  return same;
}

inline Tensor normal(Random& random, int32_t dtype, const Dims& dims, double std = 1.0, double mean = 0.0) {
  Tensor t = random_normal(random, dtype, dims, std);
  for (int64_t i = 0; i < t.size(); ++i) t.put(i, t.at(i) + mean);
  return t;
}

// x, w, [bias]
inline Tensors conv_inputs(Random& random, int32_t dtype, const Shape& s) {
  Tensors in = {normal(random, dtype, {s.B, s.T, s.G}), normal(random, dtype, {s.E, 1, s.K}, 0.5)};
  in.push_back(s.bias ? normal(random, dtype, {s.E}, 0.5) : Tensor());
  return in;
}
inline Tensor conv_run(const Device& device, const Shape& s, const Tensors& in) {
  return device.run(CONV, in, {desc(in[0].d.dtype, {s.B, s.T, s.E})})[0];
}
// dx, dw, [dbias]; the latter two have the type `sums`, by default that of x.
inline Tensors conv_grad_run(const Device& device, const Shape& s, const Tensor& dy, const Tensors& in,
                             const Tensor& acc = {}, int32_t sums = 0, const Tensor& segments = {}) {
  std::vector<eng_desc> out = {in[0].d, in[1].d};
  if (s.bias) out.push_back(in[2].d);
  for (size_t k = 1; sums && k < out.size(); ++k) out[k].dtype = sums;
  Tensors all = {dy, in[0], in[1], in[2], acc};
  if (segments.d.dtype) all.push_back(segments);
  return device.run(CONV_GRAD, all, out, {}, acc.d.dtype ? Device::InPlace{{0, 4}} : Device::InPlace{});
}

// The type of the states, a_log, d and dt_bias.
inline int32_t wide(int32_t dtype) {
  return dtype == ENG_F64 ? ENG_F64 : ENG_F32;
}
// u, delta, a_log, bc, d, dt_bias, gate. Steps from short to beyond the linear part of the softplus.
inline Tensors scan_inputs(Random& random, int32_t dtype, const Shape& s) {
  Tensors in = {normal(random, dtype, {s.B, s.T, s.E}),
                normal(random, dtype, {s.B, s.T, s.E}),
                normal(random, wide(dtype), {s.E, s.N}, 0.7, 0.5),
                normal(random, dtype, {s.B, s.T, 2 * s.N}),
                normal(random, wide(dtype), {s.E}),
                normal(random, wide(dtype), {s.E}, 1.0, -1.0),
                normal(random, dtype, {s.B, s.T, s.G})};
  if (s.E > 1) in[5].put(0, 21.5);
  return in;
}
// y, states
inline Tensors scan_run(const Device& device, const Shape& s, const Tensors& in) {
  return device.run(SCAN, in, {in[0].d, desc(wide(in[0].d.dtype), {s.B, s.chunks(), s.N, s.E})});
}
// Runs one step of sequences: y, and the state afterwards.
inline Tensors conv_step_run(const Device& device, const Shape& s, const Tensors& in, const Tensor& last) {
  return device.run(CONV_STEP, {in[0], in[1], last, in[2]}, {desc(in[0].d.dtype, {s.B, s.T, s.E}), last.d}, {},
                    {{1, 2}});
}
inline Tensors scan_step_run(const Device& device, const Tensors& in, const Tensor& h) {
  Tensors all = in;
  all.push_back(h);
  return device.run(SCAN_STEP, all, {in[0].d, h.d}, {}, {{1, 7}});
}
// In the order of the inputs.
inline Tensors scan_grad_run(const Device& device, const Tensor& dy, const Tensors& in, const Tensor& states,
                             bool in_place = false, const Tensor& segments = {}) {
  Tensors all = {dy};
  all.insert(all.end(), in.begin(), in.end());
  all.push_back(states);
  if (segments.d.dtype) all.push_back(segments);
  std::vector<eng_desc> out;
  for (const Tensor& t : in) out.push_back(t.d);
  return device.run(SCAN_GRAD, all, out, {}, in_place ? Device::InPlace{{0, 0}, {1, 2}} : Device::InPlace{});
}

}  // namespace mamba_test
