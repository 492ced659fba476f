// SPDX-License-Identifier: Apache-2.0
// The plugin's kernels on a device, and what the ops take.
#pragma once

#include "../kernels/half_units.hpp"

namespace moe_test {

using namespace kernels_test;
using Tensors = std::vector<Tensor>;

inline const eng_kernels* kernels_of(const char* kind, const char* name) {
  static const eng_plugin* const plugin = [] {
    void* library = dlopen(built_plugin("moe/moe.eng.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    return reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"))(ENG_ABI_MINOR);
  }();
  return static_cast<const eng_kernels*>(plugin->get_interface(kind, name));
}

inline const Device& reference_moe() {
  static Device device("cpu/reference.eng.so", "reference");
  device.kernels = kernels_of(ENG_KERNELS_KIND, "reference");
  return device;
}

// The device cpu with the plugin's kernels for one instruction set, or for the best ("auto").
struct Fast : Device {
  explicit Fast(const std::string& isa, int64_t threads = 1) : Device("cpu/cpu.eng.so", "cpu", threads) {
    kernels = isa == "auto" ? kernels_of(ENG_KERNELS_KIND, "cpu") : kernels_of("eng.moe.kernels/1", isa.c_str());
    info.parallel = static_cast<uint32_t>(threads);
  }
};

inline std::vector<std::string> isas() {
  std::vector<std::string> out;
  for (const char* name : {"portable", "avx2", "avx512"})
    if (kernels_of("eng.moe.kernels/1", name)) out.push_back(name);
  return out;
}

struct Shape {
  int64_t B, T, H, I, E, k;
  bool normalise = true;
  int64_t act = ENG_ACT_SILU;
};

inline int32_t wide(int32_t dtype) {
  return dtype == ENG_F64 ? ENG_F64 : ENG_F32;
}
inline std::vector<eng_attr> routing(const Shape& s) {
  return {whole("k", s.k), whole("normalise", s.normalise)};
}

// weights, experts, order, place, offsets, load
inline Tensors route(const Device& device, const Shape& s, const Tensor& logits) {
  const eng_desc pairs = desc(ENG_I32, {s.B, s.T, s.k});
  const int32_t type = wide(logits.d.dtype);
  return device.run(
      "eng.moe.route/1", {logits},
      {desc(type, {s.B, s.T, s.k}), pairs, pairs, pairs, desc(ENG_I32, {s.E + 1}), desc(type, {s.B, 2 * s.E + 1})},
      routing(s));
}
inline Tensor route_grad(const Device& device, const Shape& s, const Tensor& logits, const Tensors& routed,
                         const Tensor& dweights, const Tensor& dload, bool in_place = false) {
  return device.run("eng.moe.route_grad/1", {logits, routed[1], dweights, dload}, {logits.d}, routing(s),
                    in_place ? Device::InPlace{{0, 0}} : Device::InPlace{})[0];
}

// The attributes of routers with sigmoids.
struct Sigmoid {
  double scale = 1.0;
  int64_t groups = 1, chosen_groups = 1;
};
inline std::vector<eng_attr> routing(const Shape& s, const Sigmoid& how) {
  std::vector<eng_attr> out = routing(s);
  out.push_back({"scale", 0, how.scale});
  out.push_back(whole("groups", how.groups)), out.push_back(whole("chosen_groups", how.chosen_groups));
  return out;
}
// weights, experts, order, place, offsets
inline Tensors route_sigmoid(const Device& device, const Shape& s, const Sigmoid& how, const Tensor& logits,
                             const Tensor& correction) {
  const eng_desc pairs = desc(ENG_I32, {s.B, s.T, s.k});
  return device.run("eng.moe.route_sigmoid/1", {logits, correction},
                    {desc(wide(logits.d.dtype), {s.B, s.T, s.k}), pairs, pairs, pairs, desc(ENG_I32, {s.E + 1})},
                    routing(s, how));
}
inline Tensor route_sigmoid_grad(const Device& device, const Shape& s, const Sigmoid& how, const Tensor& logits,
                                 const Tensors& routed, const Tensor& dweights) {
  return device.run("eng.moe.route_sigmoid_grad/1", {logits, routed[1], dweights}, {logits.d}, routing(s, how))[0];
}

inline Tensor linear(const Device& device, const Tensor& x, const Tensor& w, const Tensors& routed, bool gathers) {
  const eng_desc& pairs = routed[2].d;
  Tensors in = {x, w, routed[4]};
  if (gathers) in.push_back(routed[2]), in.push_back(routed[3]);
  return device.run("eng.moe.linear/1", in,
                    {desc(x.d.dtype, {pairs.dims[0], pairs.dims[1], pairs.dims[2], w.d.dims[1]})})[0];
}
inline Tensor linear_input_grad(const Device& device, const Tensor& dy, const Tensor& w, const Tensors& routed) {
  eng_desc out = dy.d;
  out.dims[3] = w.d.dims[2];
  return device.run("eng.moe.linear_input_grad/1", {dy, w, routed[4]}, {out})[0];
}
inline Tensor linear_weight_grad(const Device& device, const Tensor& dy, const Tensor& x, const Tensors& routed,
                                 const Tensor& acc = {}, int32_t sums = 0) {
  const eng_desc out = desc(sums ? sums : x.d.dtype, {routed[4].d.dims[0] - 1, dy.d.dims[3], x.d.dims[3]});
  Tensors in = {dy, x, routed[4]};
  if (acc.d.dtype) in.push_back(acc);
  return device.run("eng.moe.linear_weight_grad/1", in, {out}, {},
                    acc.d.dtype ? Device::InPlace{{0, 3}} : Device::InPlace{})[0];
}
inline Tensor gated(const Device& device, const Shape& s, const Tensor& x, const Tensors& routed) {
  return device.run("eng.moe.gated/1", {x, routed[0], routed[2]}, {desc(x.d.dtype, {s.B, s.T, s.k, s.I})},
                    {whole("act", s.act)})[0];
}
// dx, dweights
inline Tensors gated_grad(const Device& device, const Shape& s, const Tensor& dy, const Tensor& x,
                          const Tensors& routed, bool in_place = false) {
  return device.run("eng.moe.gated_grad/1", {dy, x, routed[0], routed[2]}, {x.d, routed[0].d}, {whole("act", s.act)},
                    in_place ? Device::InPlace{{0, 1}} : Device::InPlace{});
}
inline Tensor combine(const Device& device, const Shape& s, const Tensor& x, const Tensors& routed) {
  return device.run("eng.moe.combine/1", {x, routed[3], routed[2]}, {desc(x.d.dtype, {s.B, s.T, x.d.dims[3]})})[0];
}
inline Tensor gather(const Device& device, const Shape& s, const Tensor& x, const Tensors& routed) {
  return device.run("eng.moe.gather/1", {x, routed[2]}, {desc(x.d.dtype, {s.B, s.T, s.k, x.d.dims[2]})})[0];
}
// balance, z
inline Tensors balance(const Device& device, const Tensor& load, int64_t rows) {
  const eng_desc one = desc(load.d.dtype, {1});
  return device.run("eng.moe.balance/1", {load}, {one, one}, {whole("rows", rows)});
}
inline Tensor balance_grad(const Device& device, const Tensor& load, const Tensor& d, const Tensor& dz, int64_t rows) {
  return device.run("eng.moe.balance_grad/1", {load, d, dz}, {load.d}, {whole("rows", rows)})[0];
}

inline bool same_bits(const Tensors& a, const Tensors& b) {
  bool same = a.size() == b.size();
  for (size_t k = 0; same && k < a.size(); ++k) same = a[k].same_bits(b[k]);
  return same;
}

// All that the ops give for one shape on one device, from the same random inputs.
inline Tensors run_all(const Device& device, const Shape& s, int32_t dtype, bool in_place = false, int32_t sums = 0) {
  Random random(static_cast<uint64_t>(s.T * 1000 + s.E));
  const auto normal = [&](int32_t type, const Dims& dims, double std = 1.0) {
    return random_normal(random, type, dims, std);
  };
  const Tensor logits = normal(dtype, {s.B, s.T, s.E}, 2.0), x = normal(dtype, {s.B, s.T, s.H});
  const Tensor up = normal(dtype, {s.E, 2 * s.I, s.H}, 0.3), down = normal(dtype, {s.E, s.H, s.I}, 0.3);
  const Tensor inner = normal(dtype, {s.B, s.T, s.k, 2 * s.I}), rows = normal(dtype, {s.B, s.T, s.k, s.I});
  const Tensor dy = normal(dtype, {s.B, s.T, s.k, s.H}), dload = normal(wide(dtype), {s.B, 2 * s.E + 1}, 0.01);
  const Tensor acc = normal(sums ? sums : dtype, {s.E, s.H, s.I});
  Tensors out = route(device, s, logits);
  const Tensors routed = out;
  const Tensors grads = gated_grad(device, s, rows, inner, routed, in_place);
  out.push_back(linear(device, x, up, routed, true));
  out.push_back(gated(device, s, inner, routed));
  out.insert(out.end(), grads.begin(), grads.end());
  out.push_back(linear(device, rows, down, routed, false));
  out.push_back(linear_input_grad(device, dy, down, routed));
  out.push_back(linear_weight_grad(device, dy, rows, routed, {}, sums));
  out.push_back(linear_weight_grad(device, dy, rows, routed, acc, sums));
  out.push_back(combine(device, s, dy, routed));
  out.push_back(gather(device, s, x, routed));
  out.push_back(route_grad(device, s, logits, routed, normal(wide(dtype), {s.B, s.T, s.k}), dload, in_place));
  return out;
}

}  // namespace moe_test
