// SPDX-License-Identifier: Apache-2.0
// Peaks that a device which is here does not state, from those that it does.
#pragma once

#include <string>

#include "engine/device.h"

namespace eng {

// FLOP/s of products of 8 bits; 0: unknown. GPUs of cuda from sm_89 on have twice as many as in bf16, as the data
// sheets of the engine's cards say; older ones have none.
inline double derived_fp8(const std::string& device, const eng_device_info& info) {
  return device == "cuda" && info.arch >= 89 ? 2 * info.peak_bf16 : 0;
}
// FLOP/s in f16: on GPUs of cuda as many as in bf16.
inline double derived_f16(const std::string& device, const eng_device_info& info) {
  return device == "cuda" ? info.peak_bf16 : 0;
}

}  // namespace eng
