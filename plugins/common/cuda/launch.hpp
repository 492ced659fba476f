// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/kernel.h"

namespace cuda {

// Each plugin has these two, the device's own or those of stream.cpp. enter: makes the device the current one of this
// thread; finish: reports what a launch left behind, and waits if `exec` asks for it. Both throw Error.
void enter(void* device, const eng_exec& exec);
void finish(void* device, const eng_exec& exec);

}  // namespace cuda
