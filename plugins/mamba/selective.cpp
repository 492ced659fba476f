// SPDX-License-Identifier: Apache-2.0
#include "selective.hpp"

#include "ops.hpp"

namespace mamba {
namespace {

// x (B, T, parts N), each of its parts divided by the root of its mean square.
eng_id normed(eng_build* b, eng_id x, int64_t parts, int64_t n, double eps) {
  eng_desc d{};
  if (b->api->shape(b, x, &d, nullptr) != ENG_OK) return 0;
  const std::vector<float> ones(static_cast<size_t>(n), 1.0f);
  const eng_desc desc = {ENG_F32, 1, {n}};
  eng_id weight = 0;
  b->api->constant(b, &desc, ones.data(), &weight, nullptr);
  if (d.dtype != ENG_F32) weight = eng_cast(b, weight, d.dtype);
  if (parts == 1) return eng_rms_norm(b, x, weight, eps);
  const int64_t divided[2] = {parts, n}, all[1] = {parts * n};
  return eng_reshape(b, eng_rms_norm(b, eng_reshape(b, x, 2, divided, 2), weight, eps), 2, all, 1);
}

// x as its first columns, `at` of them, and the others.
void split(eng_build* b, eng_id x, int64_t at, eng_id part[2]) {
  const eng_attr attr = {.key = "at", .i = at, .f = 0.0};
  b->api->emit(b, MAMBA_OP_SPLIT, &x, 1, part, 2, &attr, 1, nullptr);
}

}  // namespace

eng_id mixed(eng_build* b, const Selective& c, const SelectiveWeights& w, eng_id x) {
  const eng_id xz = eng_linear(b, x, w.in_proj, w.in_bias);  // (B, T, 2E) = [x | z]
  const eng_id segments = eng_offered(b, "segments");        // (B, T)
  const uint32_t more = segments ? 1 : 0;
  const eng_id conv_in[4] = {xz, w.conv, w.conv_bias, segments};
  const eng_id u = eng_emit1(b, MAMBA_OP_CONV, conv_in, 3 + more, nullptr, 0);  // (B, T, E)
  const eng_id low = eng_linear(b, u, w.x_proj, 0);                             // (B, T, R + 2N)
  eng_id part[2] = {0, 0};                                                      // (B, T, R) and (B, T, 2N) = [B | C]
  split(b, low, c.rank, part);
  if (w.norms[0]) {
    eng_id each[2] = {0, 0};
    split(b, part[1], c.states, each);
    part[0] = eng_rms_norm(b, part[0], w.norms[0], c.inner_eps);
    for (size_t k = 0; k < 2; ++k) each[k] = eng_rms_norm(b, each[k], w.norms[k + 1], c.inner_eps);
    part[1] = eng_concat(b, each, 2, 2);
  } else if (c.inner_eps > 0) {
    part[0] = normed(b, part[0], 1, c.rank, c.inner_eps);
    part[1] = normed(b, part[1], 2, c.states, c.inner_eps);
  }
  const eng_id delta = eng_linear(b, part[0], w.dt_proj, 0);  // (B, T, E)
  const eng_id in[10] = {u, delta, w.a_log, part[1], w.d, w.dt_bias, xz, part[0], w.dt_proj, segments};
  eng_id y[2] = {0, 0};  // (B, T, E), and the states from which the backward starts
  b->api->emit(b, MAMBA_OP_SCAN, in, 9 + more, y, 2, nullptr, 0, nullptr);
  return eng_linear(b, y[0], w.out_proj, w.out_bias);  // (B, T, D)
}

}  // namespace mamba
