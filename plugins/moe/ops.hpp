// SPDX-License-Identifier: Apache-2.0
// The ops of a mixture of experts; what each computes: common/decoder/expert_ops.hpp.
#pragma once

#include <cstdint>

#include "../common/decoder/expert_ops.hpp"
#include "engine/build.h"
#include "engine/op.h"

namespace moe {

extern const eng_ops all_ops;

}  // namespace moe
