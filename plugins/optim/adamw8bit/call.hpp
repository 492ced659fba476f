// SPDX-License-Identifier: Apache-2.0
// The checks and values of a call that the kernels of all devices share.
#pragma once

#include "../../common/weight.hpp"
#include "adamw8bit.hpp"

namespace adamw8bit {

using common::Args;
using common::Call;
using common::elements;

inline void need(bool right, const char* text) {
  if (!right) throw common::Error{ENG_UNSUPPORTED, text};
}

inline void check_call(const Call& c) {
  need(c.in.size() == 7 && c.out.size() >= 5,
       "takes p, grad, m_codes, m_scales, v_codes, v_scales, scalars, and gives p, the codes and scales, [weight]");
  const int64_t n = elements(c.in[0]);
  need(n % block == 0, "the number of elements must be a multiple of 256");
  const auto is = [](const eng_desc& d, int32_t dtype, int64_t count) {
    return d.dtype == dtype && elements(d) == count;
  };
  need(is(c.in[0], ENG_F32, n) && is(c.in[1], ENG_F32, n), "p and grad must be f32 and of one length");
  for (size_t k : {2, 4}) {
    need(is(c.in[k], ENG_U8, n), "codes must be u8, one for each element");
    need(is(c.in[k + 1], ENG_F32, n / block), "scales must be f32, one for every 256 elements");
  }
  need(is(c.in[6], ENG_F32, ENG_S_COUNT), "scalars must be f32 (32)");
  const size_t from[] = {0, 2, 3, 4, 5};
  for (size_t k = 0; k < 5; ++k)
    need(is(c.out[k], c.in[from[k]].dtype, elements(c.in[from[k]])),
         "outputs must be like the inputs that they replace");
  common::check_weight(c, 5);
  for (const char* key : {"beta1", "beta2", "eps", "weight_decay"}) (void)c.real(key);
}

// The fixed values of a call: 1 - beta is computed in f64 and rounded once.
struct Settings {
  int64_t blocks;
  int32_t weight;  // its dtype; 0: none
  float rest1, beta2, rest2, eps, wd;
  explicit Settings(const Call& c)
      : blocks(elements(c.in[0]) / block),
        weight(common::has_weight(c, 5) ? c.out[5].dtype : 0),
        rest1(static_cast<float>(1.0 - c.real("beta1"))),
        beta2(static_cast<float>(c.real("beta2"))),
        rest2(static_cast<float>(1.0 - c.real("beta2"))),
        eps(static_cast<float>(c.real("eps"))),
        wd(static_cast<float>(c.real("weight_decay"))) {}
};

}  // namespace adamw8bit
