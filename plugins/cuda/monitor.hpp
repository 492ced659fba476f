// SPDX-License-Identifier: Apache-2.0
// The measurements of a GPU at work by the driver's management library (engine/monitor.h).
#pragma once

#include "engine/monitor.h"

namespace cuda {

extern const eng_monitor monitor_table;

}  // namespace cuda
