// SPDX-License-Identifier: Apache-2.0
// The extension "eng.threads/1".
#pragma once

#include "engine/threads.h"

namespace eng {

extern const eng_threads host_threads;

}  // namespace eng
