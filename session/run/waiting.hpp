// SPDX-License-Identifier: Apache-2.0
// The threads of kernels: how they wait for each other, and whether there can be so many.
#pragma once

#include <cstdint>
#include <string>

namespace eng {

// Kernels run on the threads of libgomp. By default these spin for milliseconds before they sleep, so that where other
// processes, or a control group's quota, leave too few processors, they take the time that the thread needs for which
// they wait. libgomp reads how long to spin in the environment, once, when it is loaded. So the first call loads it,
// with a spin of microseconds, and leaves the environment as it was. What the user says there (OMP_WAIT_POLICY,
// GOMP_SPINCOUNT) holds, and so does what a program has done that loaded libgomp before.
// Call it before a plugin is loaded. Returns what holds, for `engine doctor`.
// Thread: any; but no other thread may read or change the environment during the first call.
const std::string& waiting();

// Throws std::system_error if the system refuses this process so many threads: libgomp would end it without a word of
// ours.
void check_threads(uint32_t count);

}  // namespace eng
