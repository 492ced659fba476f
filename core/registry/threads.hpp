// SPDX-License-Identifier: Apache-2.0
// The extension "eng.threads/1".
#pragma once

#include <atomic>

#include "engine/threads.h"

namespace eng {

extern const eng_threads host_threads;
// No count is higher. Set before plugins are used.
extern std::atomic<uint32_t> most_host_threads;

}  // namespace eng
