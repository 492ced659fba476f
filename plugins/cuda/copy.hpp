// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/kernel.h"

namespace cuda {

// eng.copy/1 between memory of the device and pinned memory of the host.
extern const eng_kernel copy_kernel;

}  // namespace cuda
