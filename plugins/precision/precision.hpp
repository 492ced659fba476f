// SPDX-License-Identifier: Apache-2.0
// The number formats of this plugin.
#pragma once

#include "engine/policy.h"

namespace precision {

extern const eng_axis fp32, bf16, bf16_sr, fp16;

}  // namespace precision
