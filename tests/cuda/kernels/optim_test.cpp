// SPDX-License-Identifier: Apache-2.0
// The kernels of muon's and adamw8bit's ops for the cuda device, emulated: the bits of the reference.
#include "emulated.hpp"

namespace optim_on_cuda {

using namespace cuda_test;

namespace {

const Device& on() {
  static const Emulated device("optim");
  return device;
}
const Device& muon() {
  static const Plain device("optim/muon.eng.so");
  return device;
}
const Device& adamw8bit() {
  static const Plain device("optim/adamw8bit.eng.so");
  return device;
}
Tensor scalars_of(double ok) {
  Tensor t(ENG_F32, {ENG_S_COUNT});
  t.put(ENG_S_OK, ok), t.put(ENG_S_CLIP, 0.37), t.put(ENG_S_LR, 3e-3);
  t.put(ENG_S_LR + 1, 0.5217031), t.put(ENG_S_LR + 2, 0.5491286);
  return t;
}

}  // namespace

TEST_CASE("emulated cuda: muon's ops, exactly") {
  Random random(31);
  const Dims dims = GENERATE(Dims{1, 1}, Dims{3, 77}, Dims{64, 130});
  const Tensor g = random_normal(random, ENG_F32, dims), m = random_normal(random, ENG_F32, dims);
  for (const int64_t nesterov : {0, 1})
    for (const double ok : {1.0, 0.0})
      check_exact({"eng.muon.momentum/1",
                   {g, m, scalars_of(ok)},
                   {g.d, m.d},
                   {real("momentum", 0.95), whole("nesterov", nesterov)},
                   {{0, 0}, {1, 1}},
                   &on(),
                   &muon()});
  check_exact({"eng.muon.normalize/1", {g}, {g.d}, {real("eps", 1e-7)}, {}, &on(), &muon()});
  const Tensor zero(ENG_F32, dims);
  check_exact({"eng.muon.normalize/1", {zero}, {g.d}, {real("eps", 1e-7)}, {}, &on(), &muon()});
  Tensor v(ENG_F32, {dims[0]});
  for (int64_t i = 0; i < dims[0]; ++i) v.put(i, i % 5 == 4 ? 0 : 0.01 * double(i));
  for (const Tensor& o : {g, zero})
    for (const double ok : {1.0, 0.0})
      check_exact({"eng.muon.neurons/1",
                   {o, v, scalars_of(ok)},
                   {o.d, v.d},
                   {real("beta2", 0.95), real("eps", 1e-8), real("norm", 1.7)},
                   {{0, 0}, {1, 1}},
                   &on(),
                   &muon()});
  for (const double decay : {0.0, 0.1})
    for (const double ok : {1.0, 0.0})
      for (const int32_t weight : {0, int(ENG_BF16), int(ENG_F16)}) {
        std::vector<eng_desc> out = {g.d};
        std::vector<eng_attr> attrs = {real("weight_decay", decay)};
        if (weight) out.push_back(desc(weight, dims)), attrs.push_back(whole("weight", weight));
        check_exact({"eng.muon.apply/1", {g, m, scalars_of(ok)}, out, attrs, {{0, 0}}, &on(), &muon()});
      }
}

TEST_CASE("emulated cuda: norms over more chunks than a block of threads", "[.slow]") {
  Random random(32);
  const Tensor g = random_normal(random, ENG_F32, {261, 4096});
  check_exact({"eng.muon.normalize/1", {g}, {g.d}, {real("eps", 1e-7)}, {}, &on(), &muon()});
  const Tensor o = random_normal(random, ENG_F32, {3, 8200}), v(ENG_F32, {3}, {0, 1, 2});
  check_exact({"eng.muon.neurons/1",
               {o, v, scalars_of(1)},
               {o.d, v.d},
               {real("beta2", 0.95), real("eps", 1e-8), real("norm", 1.7)},
               {{0, 0}, {1, 1}},
               &on(),
               &muon()});
}

TEST_CASE("emulated cuda: adamw8bit's update, exactly") {
  constexpr int64_t block = 256;
  Random random(33);
  const int64_t blocks = GENERATE(1, 11);
  const int64_t n = blocks * block;
  Tensor p = random_normal(random, ENG_F32, {n}), grad = random_normal(random, ENG_F32, {n}, 1e-3), m(ENG_U8, {n}),
         v(ENG_U8, {n}), m_scales(ENG_F32, {blocks}), v_scales(ENG_F32, {blocks});
  for (int64_t i = 0; i < n; ++i) {  // every byte, and gradients of all sizes
    m.put(i, double(pick(random, 0, 255))), v.put(i, double(pick(random, 0, 255)));
    grad.put(i, grad.at(i) * std::ldexp(1.0, int(pick(random, -20, 3))));
  }
  for (int64_t b = 0; b < blocks; ++b) m_scales.put(b, 1e-3 * double(b + 1)), v_scales.put(b, 1e-6 * double(b + 1));
  if (blocks > 1) {  // nothing so far, and no gradient; infinity; NaN; v alone is 0; negative zeros
    for (int64_t i = 0; i < block; ++i) m.put(i, 0), v.put(i, 0), grad.put(i, 0);
    m_scales.put(0, 0), v_scales.put(0, 0);
    grad.put(block + 7, INFINITY), grad.put(2 * block + 255, NAN), v_scales.put(3, 0);
    for (int64_t i = 4 * block; i < 5 * block; ++i) m.put(i, 0), v.put(i, 0), grad.put(i, -0.0);
  }
  for (const double decay : {0.0, 0.1})
    for (const double ok : {1.0, 0.0})
      for (const int32_t weight : {0, int(ENG_BF16), int(ENG_F16)}) {
        std::vector<eng_desc> out = {p.d, m.d, m_scales.d, v.d, v_scales.d};
        std::vector<eng_attr> attrs = {real("beta1", 0.9), real("beta2", 0.95), real("eps", 1e-8),
                                       real("weight_decay", decay)};
        if (weight) out.push_back(desc(weight, {n})), attrs.push_back(whole("weight", weight));
        check_exact({"eng.adamw8bit.update/1",
                     {p, grad, m, m_scales, v, v_scales, scalars_of(ok)},
                     out,
                     attrs,
                     {{0, 0}, {1, 2}, {2, 3}, {3, 4}, {4, 5}},
                     &on(),
                     &adamw8bit()});
      }
}

TEST_CASE("emulated cuda: adamw8bit's codes of all sizes of a moment, exactly", "[.slow]") {
  constexpr int64_t block = 256, blocks = 100, n = blocks * block;
  Random random(34);
  const Tensor p(ENG_F32, {n}), codes(ENG_U8, {n}), scales(ENG_F32, {blocks});
  Tensor grad(ENG_F32, {n});
  for (int64_t i = 0; i < n; ++i)  // the first of each block is its scale, the others lie down to 2^-30 of it
    grad.put(i, i % block == 0 ? 1.0 : std::ldexp(std::ldexp(double(pick(random, 1, 1 << 24)), -24), -int(i % 31)));
  check_exact({"eng.adamw8bit.update/1",
               {p, grad, codes, scales, codes, scales, scalars_of(1)},
               {p.d, codes.d, scales.d, codes.d, scales.d},
               {real("beta1", 0.9), real("beta2", 0.95), real("eps", 1e-8), real("weight_decay", 0)},
               {{0, 0}, {1, 2}, {2, 3}, {3, 4}, {4, 5}},
               &on(),
               &adamw8bit()});
}

}  // namespace optim_on_cuda
