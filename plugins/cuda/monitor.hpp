// SPDX-License-Identifier: Apache-2.0
// What the driver's management library measures of a GPU as it works (engine/monitor.h).
#pragma once

#include "engine/monitor.h"

namespace cuda {

extern const eng_monitor monitor_table;

}  // namespace cuda
