// SPDX-License-Identifier: Apache-2.0
// loopback.c as a library in memory: what mpirun binds to all interfaces is bound to the loopback interface.
#pragma once

#include "session/file.hpp"

namespace eng {

// The library in an anonymous file. Throws Error(Exit::environment).
Fd loopback_library();
// In the child, before exec: has the system load it into the next program.
void preload_loopback(int library);

}  // namespace eng
