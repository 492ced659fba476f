// SPDX-License-Identifier: Apache-2.0
// Compares kernels of the device cpu on bf16 and f16 tensors with the reference device, whose results are rounded once.
#pragma once

#include "fast_elem.hpp"
#include "half_units.hpp"

namespace kernels_test {

// Outputs of 16 bits as `wrong` says, those of f32 within 3e-6 of the largest; bits that depend neither on the number
// of threads nor on being in place.
inline void check_half(const Case& c, double tolerance) {
  INFO(c.op << (c.out[0].dtype == ENG_BF16 ? ", bf16" : c.out[0].dtype == ENG_F16 ? ", f16" : ", f32"));
  const auto want = reference().run(c.op, c.in, c.out, c.attrs);
  Device::Outputs one;
  for (const Fast& f : fast_devices()) {
    INFO(f.isa << ", threads " << f.threads);
    const auto got = f.device->run(c.op, c.in, c.out, c.attrs, c.in_place);
    if (f.threads == 1) {
      one = f.device->run(c.op, c.in, c.out, c.attrs);
      for (size_t k = 0; k < one.size(); ++k) {
        INFO("output " << k << " of size " << one[k].size());
        if (want[k].d.dtype == ENG_F32)
          CHECK(error_of(one[k], want[k]) <= 3e-6);
        else
          CHECK(wrong(one[k], want[k], tolerance) == 0);
      }
    }
    CHECK(same(got, one));
  }
}

}  // namespace kernels_test
