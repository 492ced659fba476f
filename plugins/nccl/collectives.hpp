// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/kernel.h"

namespace nccl {

extern const eng_kernels collectives;

}  // namespace nccl
